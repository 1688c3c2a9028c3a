"""Arrays of another dtype, with their ties.

Only floating-point numbers are cast, as PyTorch casts them (`_torch_cast.py`). What shares a storage
keeps sharing one: the storage is cast once, and each array is put over it anew. Numbers that are beyond
the new dtype are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from bridge._torch_cast import cast_into
from bridge.checkpoint._dtypes import FLOAT4, TORCH_DTYPES
from bridge.checkpoint._storages import dense, views


#: Dtypes that hold floating-point numbers.
FLOATS = frozenset(
    [np.dtype(np.longdouble), FLOAT4]
    + [dtype for name, dtype in TORCH_DTYPES.items() if "float" in name]
)


class Cast(NamedTuple):
    """An array after a cast.

    Attributes:
        array: Its numbers in the new dtype.
        overflowed: How many numbers of its storage are beyond the new dtype; 0 if an earlier array has
            the same storage.
    """

    array: np.ndarray
    overflowed: int


def cast_all(arrays: Iterable[np.ndarray], dtype: np.dtype) -> dict[int, Cast]:
    """Cast arrays that are saved together.

    Args:
        arrays: Distinct arrays, which the caller keeps alive.
        dtype: Their new dtype.

    Returns:
        For each array with floating-point numbers of another dtype, by its ``id``, what it became.
    """
    chosen = [
        array for array in arrays if array.dtype.newbyteorder("=") in FLOATS and array.dtype != dtype
    ]
    found = views(chosen)
    stores: dict[int, np.ndarray] = {}
    result = {}
    for position, array in enumerate(chosen):
        placed = found.get(position)
        host = array if placed is None else placed.host
        storage, strides = dense(host)
        overflowed = 0
        if id(host) not in stores:
            stores[id(host)], overflowed = _numbers(storage, dtype)
        new = stores[id(host)]
        offset, strides = (0, strides) if placed is None else (placed.offset, placed.strides)
        width = dtype.itemsize
        over = np.ndarray(
            array.shape, dtype, cast("Any", new), offset * width, [step * width for step in strides]
        )
        result[id(array)] = Cast(over if array.size else np.empty(array.shape, dtype), overflowed)
    return result


def _numbers(storage: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Return the numbers of an array, in row-major order, and how many of them overflowed."""
    result = np.empty(max(storage.size, 1), dtype)
    return result, cast_into(result[: storage.size], storage)
