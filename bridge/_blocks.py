"""An array's numbers a block at a time, without keeping the file they come from in memory.

A mapped file's pages count as this process's memory once they were looked at. Numbers that are looked
at once, to compare or to cast them, are better read into a buffer that is used again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from bridge.checkpoint._source import place_of


#: How many numbers a block has. Temporary arrays of this length stay in the processor's cache.
BLOCK = 1 << 15


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array's numbers in row-major order.

    Args:
        array: Any array, in any layout.

    Yields:
        Arrays of one dimension with at most ``BLOCK`` numbers, each valid until the next.
    """
    if not array.flags.c_contiguous:
        for start in range(0, array.size, BLOCK):
            yield np.asarray(array.flat[start : start + BLOCK])
        return
    place = place_of(array)
    flat = array.reshape(-1)
    buffer = np.empty(min(BLOCK, array.size) if place is not None else 0, array.dtype)
    view = memoryview(cast("Any", buffer.view(np.uint8)))
    width = array.itemsize
    for start in range(0, array.size, BLOCK):
        if place is None:
            yield flat[start : start + BLOCK]
            continue
        count = min(BLOCK, array.size - start)
        place.file.pread(place.offset + start * width, view[: count * width])
        yield buffer[:count]
