"""NumPy's own objects in a pickle: arrays, scalars and dtypes.

NumPy pickles an array as an empty one that is then told its shape, dtype and bytes, and a dtype as a
code that is then told its byte order. Both are described here until they are complete. Arrays of
Python objects and dtypes with fields are not read; they, and scalars of such dtypes, stay the
placeholders that the file describes.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import numpy as np

from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat, Unsupported, brief


_MAX_DIMS = 64
_MAX_BYTES = (1 << 63) - 1
_PLAIN_CODE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16|[SU][0-9]{1,6}|g|c32|f16)")


class NumpyDtype:
    """A dtype under construction.

    Attributes:
        dtype: The dtype so far.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype

    def build(self, state: object) -> None:
        """Take the byte order."""
        if not isinstance(state, tuple) or len(state) < 3 or state[1] not in ("<", ">", "|", "="):
            raise BadFormat("a NumPy dtype's state must start with a version and a byte order")
        if any(part is not None for part in state[2:5]):
            raise Unsupported("a NumPy dtype with fields")
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class NumpyArray:
    """An array under construction.

    Attributes:
        content: The array, or a placeholder for one of Python objects; None before it is told.
    """

    content: Any = None

    @property
    def dtype(self) -> object:
        """The array's dtype."""
        return getattr(self.content, "dtype", None)

    def build(self, state: object) -> None:
        """Take shape, dtype, order and bytes."""
        match state:
            case (_, shape, Placeholder(), _, _):
                self.content = Placeholder("numpy.ndarray", (), state=state)
            case (_, shape, NumpyDtype(dtype=dtype), bool() as fortran, bytes() as data):
                # NumPy gives such an array this machine's byte order.
                array = _array(data, dtype, shape, "F" if fortran else "C")
                self.content = array.astype(dtype.newbyteorder("="), copy=False)
                self.content.flags.writeable = False
            case _:
                raise BadFormat("a NumPy array's state must be version, shape, dtype, order, bytes")


def _array(data: bytes | bytearray, dtype: np.dtype, shape: object, order: Any) -> np.ndarray:
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise BadFormat(f"a NumPy array's shape is {brief(shape)}")
    if len(shape) > _MAX_DIMS or math.prod(shape) * dtype.itemsize != len(data):
        raise BadFormat(f"a NumPy array of shape {shape} and {dtype} comes with {len(data)} bytes")
    # NumPy counts the bytes an array seems to have, ignoring zeros, and must not overflow.
    if math.prod(n for n in shape if n) * max(dtype.itemsize, 1) > _MAX_BYTES:
        raise BadFormat(f"a NumPy array of shape {shape} and {dtype} is larger than any")
    if not dtype.itemsize:
        # Texts of no length: NumPy would set a byte aside for each.
        return np.broadcast_to(np.zeros((), dtype), shape)
    _check_text(data, dtype)
    array = np.frombuffer(bytes(data), dtype).reshape(shape, order=order)
    array.flags.writeable = False
    return array


def _check_text(data: bytes | bytearray, dtype: np.dtype) -> None:
    """Refuse text with numbers that are no characters, which Python fails to show."""
    if dtype.kind == "U" and len(data):
        points = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max() > sys.maxunicode:
            raise BadFormat(f"a NumPy text of {dtype} has a character {points.max()}")


def reconstruct(cls: object, shape: object, code: object) -> NumpyArray:
    """Stand in for ``numpy.core.multiarray._reconstruct``."""
    del cls, shape, code
    return NumpyArray()


def frombuffer(data: object, dtype: object, shape: object, order: object) -> NumpyArray:
    """Stand in for ``numpy.core.numeric._frombuffer``, which protocol 5 uses."""
    if not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise BadFormat("a NumPy array from a buffer needs bytes and an order")
    result = NumpyArray()
    if isinstance(dtype, Placeholder):
        # What the older form says of such an array.
        result.build((1, shape, dtype, order == "F", bytes(data)))
    else:
        result.content = _array(data, _known(dtype), shape, order)
    return result


def scalar(dtype: object, data: object = b"") -> object:
    """Stand in for ``numpy.core.multiarray.scalar``."""
    if isinstance(dtype, Placeholder):
        return Placeholder("numpy._core.multiarray.scalar", (dtype, data))
    found = _known(dtype)
    if not isinstance(data, bytes) or len(data) != found.itemsize:
        raise BadFormat(f"a NumPy scalar of {found} comes with {brief(data)}")
    if not data:
        # A text of no length, of which NumPy makes no array.
        return found.type()
    _check_text(data, found)
    return np.frombuffer(data, found)[0]


def dtype(code: object, align: object = False, copy: object = False) -> object:
    """Stand in for ``numpy.dtype``."""
    if type(code) is not str or not _PLAIN_CODE.fullmatch(code):
        return Placeholder("numpy.dtype", (code, align, copy))
    return NumpyDtype(np.dtype(code))


def _known(value: object) -> np.dtype:
    if isinstance(value, NumpyDtype):
        return value.dtype
    raise BadFormat(f"a NumPy value of a dtype that is {brief(value)}")
