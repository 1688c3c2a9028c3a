"""Parts of arrays, read from their file and nothing else.

An array that views a map of a file costs nothing until it is used; used, every page it touches is
read, and a page holds more than one needs: a column of a matrix touches the whole matrix. Where only
a part is wanted (one process's share of a sharded model) or where the numbers have to be copied
anyway, the bytes are read from the file instead, straight into memory that is aligned as JAX needs
it to take them over without another copy.

The part is read run by run, a run being what lies together in the file. Runs that lie close are
read together with what is between them, because a system call costs as much as copying some KiB.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from bridge.checkpoint._memory import aligned_empty
from bridge.checkpoint._source import ReadsAt, place_of


#: Runs whose starts are closer than this are read together with what lies between them.
_NEAR = 2048
_SPAN = 1 << 20


def read_part(array: np.ndarray, index: tuple[slice, ...] = ()) -> np.ndarray:
    """Return a part of an array in memory of its own, row-major and aligned to 64 bytes.

    Args:
        array: An array of any layout; one that views a map of a file is read from the file.
        index: A slice with step 1 for each axis, or ``()`` for the whole.

    Returns:
        The part, which shares no memory with ``array``.

    Raises:
        Truncated: If the file became shorter.
    """
    part = array[index] if index else array
    result = aligned(part.shape, part.dtype)
    if not part.size:
        return result
    if part.nbytes <= _NEAR and part.flags.c_contiguous:
        # Within a page or two of the map, which cost less than to open the file.
        result[...] = part
        return result
    # What a broadcast repeats is read once.
    repeats = tuple(slice(0, 1) if step == 0 else slice(None) for step in part.strides)
    once = part[repeats] if 0 in part.strides else part
    place = place_of(once)
    if place is None or any(step < 0 for step in once.strides):
        result[...] = part
        return result
    order = _order_in_file(once)
    shape = [once.shape[axis] for axis in order]
    strides = [once.strides[axis] for axis in order]
    straight = order == list(range(once.ndim)) and once.shape == part.shape
    block = result if straight else aligned(shape, part.dtype)
    out = block.reshape(-1).view(np.uint8)
    with place.file.opened() as file:
        _read_runs(file, place.offset, shape, strides, out, block.itemsize)
    if not straight:
        result[...] = block.transpose(np.argsort(order))
    return result


def _order_in_file(array: np.ndarray) -> list[int]:
    """The axes from the widest step to the narrowest: their own order, but for a transposed view."""
    axes = list(range(array.ndim))
    steps = [array.strides[axis] for axis in axes if array.shape[axis] > 1]
    if steps == sorted(steps, reverse=True):
        return axes
    return sorted(axes, key=lambda axis: -array.strides[axis])


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array whose memory starts at a multiple of 64."""
    shape = tuple(shape)
    return np.ndarray(shape, dtype, aligned_empty(math.prod(shape) * dtype.itemsize))


def _read_runs(
    file: ReadsAt, origin: int, shape: list[int], strides: list[int], out: np.ndarray, itemsize: int
) -> None:
    """Fill ``out`` (``uint8``) with the elements at ``origin`` of this shape and these strides."""
    axes = [(count, step) for count, step in zip(shape, strides, strict=True) if count > 1]
    run = itemsize
    while axes and axes[-1][1] == run:
        run *= axes.pop()[0]
    count, step = axes.pop() if axes else (1, run)
    at, view = 0, memoryview(cast("bytes", out))
    for offsets in itertools.product(*(range(0, n * s, s) for n, s in axes)):
        base = origin + sum(offsets)
        if count > 1 and step <= _NEAR:
            _read_near(file, base, step, out[at : at + count * run].reshape(count, run))
        else:
            for row in range(count):
                start = at + row * run
                file.pread(base + row * step, view[start : start + run])
        at += count * run


def _read_near(file: ReadsAt, base: int, step: int, rows: np.ndarray) -> None:
    """Read runs that lie close together, a span at a time, and keep what belongs to them."""
    count, run = rows.shape
    together = max(1, _SPAN // step)
    scratch = np.empty(min(together, count) * step, np.uint8)
    for first in range(0, count, together):
        many = min(together, count - first)
        span = scratch[: (many - 1) * step + run]
        file.pread(base + first * step, memoryview(cast("bytes", span)))
        rows[first : first + many] = np.ndarray((many, run), np.uint8, span, 0, (step, 1))
