"""Arrays on their way out: what counts as one, and its bytes.

Anything that NumPy can take as an array may be saved: NumPy's own arrays and scalars, and objects
with ``__array__``, which JAX arrays are (so this file need not import JAX to save them).
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from bridge.checkpoint._dtypes import swap_bytes
from bridge.checkpoint.errors import Unwritable


_CHUNK = 16 << 20


def as_array(value: object, path: str) -> np.ndarray | None:
    """Return ``value`` as an array in this machine's byte order, or None if it is no array.

    Args:
        value: Any object.
        path: Where it stands, for messages.

    Returns:
        The array, sharing the value's memory where possible.

    Raises:
        Unwritable: If the value claims to be an array but does not convert.
    """
    if not isinstance(value, np.ndarray | np.generic):
        if isinstance(value, type) or not hasattr(value, "__array__"):
            return None
        try:
            value = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise Unwritable(
                f"a {type(value).__name__} does not convert to a NumPy array ({error})",
                advice="Save its numbers; for a JAX random key, jax.random.key_data(key)",
                entry=path,
            ) from error
    array: Any = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def array_bytes(array: np.ndarray, *, swapped: bool = False) -> np.ndarray:
    """Return the array's numbers in row-major order as ``uint8``, copied only if they must be."""
    flat = np.ascontiguousarray(array).reshape(-1)
    data = flat.view(np.uint8)
    if swapped:
        data = data.copy()
        swap_bytes(data, array.dtype)
    return data


def chunks(data: np.ndarray) -> list[memoryview]:
    """Return the bytes in pieces, so that no step holds or hashes them all at once."""
    view = memoryview(data)  # pyright: ignore[reportArgumentType]
    return [view[at : at + _CHUNK] for at in range(0, len(view), _CHUNK)]


def write_array(file: BinaryIO, array: np.ndarray, *, swapped: bool = False) -> None:
    """Write the array's numbers in row-major order."""
    for chunk in chunks(array_bytes(array, swapped=swapped)):
        file.write(chunk)
