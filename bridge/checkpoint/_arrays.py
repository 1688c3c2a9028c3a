"""Arrays on their way out: what counts as one, and its bytes.

Anything that NumPy can take as an array may be saved: NumPy's own arrays and scalars, and objects
with ``__array__``, which JAX arrays are (so this file need not import JAX to save them). An array
may lie in memory in any way: its numbers leave in row-major order, a piece at a time, so that an
array that is not dense is never copied as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from bridge.checkpoint._dtypes import swap_bytes
from bridge.checkpoint._source import place_of
from bridge.checkpoint.errors import Unwritable


#: How much is hashed and written at once. It should stay in the processor's cache between the two,
#: and where memory is short Linux can be several times slower at writes of more than this into the
#: cache of a file.
PIECE = 128 << 10

#: Up to this size an array that is not dense is put in order in one step.
_COPIED = 8 << 20


def as_array(value: object, path: str) -> np.ndarray | None:
    """Return ``value`` as an array in this machine's byte order, or None if it is no array.

    Args:
        value: Any object.
        path: Where it stands, for messages.

    Returns:
        The array, sharing the value's memory where possible.

    Raises:
        Unwritable: If the value claims to be an array but does not convert, or has parts elsewhere.
    """
    if type(value) is np.ndarray and value.dtype.isnative:
        return value
    if not isinstance(value, np.ndarray | np.generic):
        if isinstance(value, type) or not hasattr(value, "__array__"):
            return None
        if is_spread(value):
            raise spread(path)
        try:
            value = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise Unwritable(
                f"a {type(value).__name__} does not convert to a NumPy array ({error})",
                advice="Save its numbers; for a JAX random key, jax.random.key_data(key)",
                entry=path,
            ) from error
    elif isinstance(value, np.ma.MaskedArray):
        raise Unwritable(
            "a masked array, whose mask no file has a place for",
            advice="Save x.filled() or x.data, and x.mask beside it",
            entry=path,
        )
    array: Any = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def is_spread(value: object) -> bool:
    """Whether an array has parts that only other processes hold, as JAX's may."""
    array: Any = value
    try:
        return not (array.is_fully_addressable or array.is_fully_replicated)
    except (AttributeError, TypeError):  # Not of JAX, or traced.
        return False


def spread(path: str) -> Unwritable:
    """Return the error for such an array.

    What every process has a copy of must not be gathered: ``process_allgather`` would put the copies
    one after another.
    """
    return Unwritable(
        "an array that is spread over several processes, of which this one has a part",
        advice="Gather it first, in all processes:\n"
        "    from jax.experimental.multihost_utils import process_allgather\n"
        "    model = jax.tree.map(lambda x: x if x.is_fully_addressable "
        "else process_allgather(x, tiled=True), model)\n"
        "and save it in the one where jax.process_index() == 0",
        entry=path,
    )


def address(array: np.ndarray) -> int:
    """Return where in memory the array's first element lies."""
    return array.__array_interface__["data"][0]


def pieces(array: np.ndarray, *, swapped: bool = False) -> Iterator[memoryview]:
    """Yield the array's numbers in row-major order, as bytes.

    Args:
        array: Any array, in any layout.
        swapped: Reverse the bytes of every number.

    Yields:
        Views of at most :data:`PIECE` bytes, each valid until the next: of the array's own memory where
        it lies in order, or of a buffer. A mapped array is read from its file, so that the file's pages
        do not come to stay in this process.
    """
    if swapped or not array.flags.c_contiguous:
        if array.nbytes > _COPIED and array.ndim and len(array) > 1:
            rows = max(1, _COPIED * len(array) // array.nbytes)
            for start in range(0, len(array), rows):
                yield from pieces(array[start : start + rows], swapped=swapped)
            return
        if array.nbytes > _COPIED and array.ndim:
            yield from pieces(array[0], swapped=swapped)
            return
        ordered = np.array(array, order="C", copy=True)
        if swapped and ordered.size:
            swap_bytes(ordered.reshape(-1).view(np.uint8), ordered.dtype)
        array = ordered
    if not array.nbytes:
        return
    place = place_of(array) if array.nbytes > PIECE else None
    if place is not None:
        buffer = memoryview(bytearray(PIECE))
        for at in range(0, array.nbytes, PIECE):
            piece = buffer[: min(PIECE, array.nbytes - at)]
            place.file.pread(place.offset + at, piece)
            yield piece
        return
    view = memoryview(cast("bytes", array.reshape(-1).view(np.uint8)))
    if len(view) <= PIECE:
        yield view
        return
    for at in range(0, len(view), PIECE):
        yield view[at : at + PIECE]
