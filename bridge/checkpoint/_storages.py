"""Which arrays share a storage: PyTorch's ties, found in NumPy's memory.

A tensor in a PyTorch file is an offset, a size and a stride over a *storage*, a run of numbers, and
tensors over one storage are tied: what one changes the other sees. NumPy's arrays say the same by
their addresses. So an array that lies within the memory of another array *that is saved with it*
becomes a view of that one's storage: the same memory twice, a transposed twin, a row, every other
column, an array that was broadcast. PyTorch saves the whole storage of a small view; here nothing is
written that no saved array holds, so a slice that is saved alone is as long as the slice.

An array is the *host* of a storage when its own numbers fill a run of memory in some order of its
axes. What has no host is made dense and has a storage of its own: what lies in memory with gaps,
overlaps only in part with another, or runs backwards (PyTorch has no negative strides). So are
arrays of another dtype over the same memory, which PyTorch refuses to save. A stride over an axis of
one element means nothing, and is that of a contiguous tensor here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bridge.checkpoint._arrays import address


class Placed(NamedTuple):
    """An array as a view of a storage.

    Attributes:
        host: The array whose dense numbers are the storage.
        offset: Where the array starts in it, in elements.
        strides: The array's strides over it, in elements, as PyTorch counts them.
    """

    host: np.ndarray
    offset: int
    strides: tuple[int, ...]


def dense(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return an array whose row-major order is a storage for ``array``, and strides over it.

    The strides count elements. An axis that was broadcast keeps its stride of 0, and a transposed
    array its order; any other layout is to be copied into row-major order.
    """
    if array.flags.c_contiguous:
        return array, row_major(array.shape)
    core = _core(array)
    order = sorted(range(core.ndim), key=lambda axis: -core.strides[axis])
    turned = core.transpose(order)
    if not turned.flags.c_contiguous:
        return array, row_major(array.shape)
    strides = row_major(turned.shape)
    own = [strides[order.index(axis)] for axis in range(array.ndim)]
    return turned, tuple(
        0 if size > 1 and not step else stride
        for size, step, stride in zip(array.shape, array.strides, own, strict=True)
    )


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return PyTorch's strides of a contiguous tensor, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def views(arrays: Iterable[np.ndarray]) -> dict[int, Placed]:
    """Find the arrays that lie in another one's memory.

    Args:
        arrays: The arrays that are saved together, in order.

    Returns:
        By the position in ``arrays``: the array as a view of another array's storage. Arrays that
        are not in it have storages of their own. One that equals an earlier one in memory, shape
        and strides is in it, too.
    """
    # Sorted by where they start, the longest first, an array lies within another exactly if it ends
    # no later than some earlier one; the earlier host that ends last will do.
    spans: dict[np.dtype, list[tuple[int, int, bool, int, np.ndarray]]] = {}
    for position, array in enumerate(arrays):
        if array.flags.c_contiguous:
            start = address(array)
            entry = (start, -(start + array.nbytes), False, position, array)
        elif min(array.strides) < 0:
            continue
        else:
            start, stop = _span(array)
            entry = (start, -stop, not _is_host(array), position, array)
        if array.size:
            spans.setdefault(array.dtype, []).append(entry)
    found: dict[int, Placed] = {}
    for same in spans.values():
        same.sort(key=_place)
        host, end = None, 0
        for start, minus_stop, gaps, position, array in same:
            if host is not None and -minus_stop <= end:
                placed = _within(array, start, host)
                if placed is not None:
                    found[position] = placed
            elif not gaps:
                host, end = array, -minus_stop
    return found


def storage_groups(arrays: Sequence[np.ndarray]) -> list[int]:
    """Return for each array the position of the array whose storage it is in, often its own."""
    found = views(arrays)
    position = {id(array): index for index, array in reversed(list(enumerate(arrays)))}
    return [
        position[id(found[index].host)] if index in found else position[id(array)]
        for index, array in enumerate(arrays)
    ]


def _place(entry: tuple[int, int, bool, int, np.ndarray]) -> tuple[int, int, bool, int]:
    return entry[:4]


def _core(array: np.ndarray) -> np.ndarray:
    """Return the array without the repetition of its broadcast axes."""
    if 0 not in array.strides:
        return array
    return array[
        tuple(
            slice(0, 1) if size > 1 and not step else slice(None)
            for size, step in zip(array.shape, array.strides, strict=True)
        )
    ]


def _is_host(array: np.ndarray) -> bool:
    return dense(array)[0].flags.c_contiguous


def _span(array: np.ndarray) -> tuple[int, int]:
    start = address(array)
    last = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True))
    return start, start + last + array.itemsize


def _within(array: np.ndarray, start: int, host: np.ndarray) -> Placed | None:
    width = array.itemsize
    offset, rest = divmod(start - address(host), width)
    if array.flags.c_contiguous:
        strides = row_major(array.shape)
    else:
        own = dense(array)
        strides = own[1] if own[0].flags.c_contiguous else None
        if strides is None:
            if any(step % width for step in array.strides):
                return None
            strides = tuple(step // width for step in array.strides)
    return None if rest else Placed(host, offset, strides)
