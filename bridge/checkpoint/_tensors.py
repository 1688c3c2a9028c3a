"""Storages and the views of them that PyTorch calls tensors.

A PyTorch file holds *storages*, runs of numbers, and *tensors*, which are an offset, a size and a
stride over a storage; several tensors may view one storage. Here a storage is a block of bytes in
memory and a tensor is a read-only NumPy array over that block: broadcast and transposed tensors
stay views, however large they look. Two tensors with the same storage, offset, size, stride and
dtype are tied weights, and come back as the same array object.

Bounds are checked in Python's unbounded integers before NumPy sees a number. A "conj" or "neg" mark
on a tensor means that the bytes are the numbers before conjugation or negation; it is resolved once
per storage into a second block, so a forged huge broadcast cannot make it allocate.

The old formats put the bytes after the objects that view them, so blocks are allocated first and
:meth:`Storages.finish` resolves everything that needs their contents.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bridge.checkpoint._dtypes import swap_bytes
from bridge.checkpoint._source import aligned_empty
from bridge.checkpoint.errors import BadFormat, Unsupported, brief


_MAX_DIMS = 64
_MAX_BYTES = (1 << 63) - 1

_Variant = tuple[bool, bool, np.dtype]


class Storage:
    """A block of bytes with the dtype its class declares (None: untyped bytes).

    Attributes:
        key: The file's name for the block.
        dtype: The declared dtype, or None.
        numel: The declared number of elements (bytes when untyped).
        data: The bytes, ``uint8``.
    """

    def __init__(self, key: str, dtype: np.dtype | None, numel: int, data: np.ndarray) -> None:
        self.key = key
        self.dtype = dtype
        self.numel = numel
        self.data = data
        self._views: dict[tuple[object, ...], np.ndarray] = {}
        self._variants: dict[_Variant, np.ndarray] = {}
        self._windows: dict[tuple[int, int], Storage] = {}

    def window(self, key: str, offset: int, numel: int) -> Storage:
        """Return the storage that is elements ``[offset, offset + numel)`` of this one."""
        assert self.dtype is not None
        if (offset, numel) == (0, self.numel):
            return self
        if offset + numel > self.numel:
            raise BadFormat(
                f"storage {key!r} is elements {offset} to {offset + numel} of a storage of {self.numel}"
            )
        if (offset, numel) not in self._windows:
            width = self.dtype.itemsize
            part = self.data[offset * width : (offset + numel) * width]
            self._windows[offset, numel] = Storage(key, self.dtype, numel, part)
        return self._windows[offset, numel]

    def view(
        self,
        offset: object,
        size: object,
        stride: object,
        dtype: np.dtype | None = None,
        *,
        conj: bool = False,
        neg: bool = False,
    ) -> np.ndarray:
        """Return the tensor at ``offset`` (in elements) with ``size`` and ``stride``."""
        dtype = self._agree(dtype)
        start, shape, steps = self._check(offset, size, stride, dtype)
        # Where there is nothing to conjugate or negate, the marks say nothing.
        conj = conj and dtype.kind == "c"
        key = (start, shape, steps, dtype, conj, neg)
        if key not in self._views:
            data = self._variant(dtype, conj=conj, neg=neg) if conj or neg else self.data
            if 0 in shape:
                array = np.empty(shape, dtype)
            else:
                width = dtype.itemsize
                strides = tuple(step * width for step in steps)
                array = np.ndarray(shape, dtype, data, start * width, strides)
            array.flags.writeable = False
            self._views[key] = array
        return self._views[key]

    def whole(self) -> np.ndarray:
        """Return the storage itself as one dimension of numbers."""
        return self.view(0, (self.numel,), (1,), self.dtype or np.dtype(np.uint8))

    def finish(self) -> None:
        """Resolve what depends on the contents, which have been read by now."""
        for window in self._windows.values():
            window.finish()
        for (conj, neg, dtype), block in self._variants.items():
            count = len(self.data) // dtype.itemsize
            numbers = block.view(dtype)[:count]
            numbers[...] = self.data[: count * dtype.itemsize].view(dtype)
            if conj:
                np.conjugate(numbers, out=numbers)
            if neg:
                np.negative(numbers, out=numbers)
            block.flags.writeable = False
        self.data.flags.writeable = False

    def _agree(self, dtype: np.dtype | None) -> np.dtype:
        if dtype is None:
            if self.dtype is None:
                raise BadFormat("a tensor over untyped storage does not say its dtype")
            return self.dtype
        if self.dtype is not None and self.dtype != dtype:
            raise BadFormat(f"a {dtype} tensor views storage {self.key!r} of {self.dtype}")
        return dtype

    def _check(
        self, offset: object, size: object, stride: object, dtype: np.dtype
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        start = natural(offset, "a tensor's offset")
        shape = naturals(size, "a tensor's size")
        steps = naturals(stride, "a tensor's stride")
        if len(shape) != len(steps):
            raise BadFormat(f"a tensor has {len(shape)} sizes but {len(steps)} strides")
        if len(shape) > _MAX_DIMS:
            raise Unsupported(f"a tensor has {len(shape)} dimensions; NumPy has {_MAX_DIMS} at most")
        # NumPy counts the bytes a view seems to have, ignoring zeros, and must not overflow.
        if math.prod(n for n in shape if n) * dtype.itemsize > _MAX_BYTES:
            raise BadFormat(f"a tensor of size {shape} has more than 2**63 bytes")
        if 0 not in shape:
            last = start + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
            held = len(self.data) // dtype.itemsize
            if last >= held:
                raise BadFormat(
                    f"a tensor of size {shape}, stride {steps} and offset {start} reaches element "
                    f"{last} of storage {self.key!r}, which has {held}"
                )
            # A stride that is never stepped may be any number; NumPy's must fit 64 bits.
            steps = tuple(step if n > 1 else 1 for n, step in zip(shape, steps, strict=True))
        return start, shape, steps

    def _variant(self, dtype: np.dtype, *, conj: bool, neg: bool) -> np.ndarray:
        if neg and dtype.kind in "bu":
            raise BadFormat(f"a {dtype} tensor is marked as negated")
        key = (conj, neg, dtype)
        if key not in self._variants:
            self._variants[key] = aligned_empty(len(self.data))
        return self._variants[key]


class Storages:
    """The storages of one file, by key.

    Args:
        available: How many bytes of storage the file can hold at most.
        fill: Reads a storage's bytes into its block when it is declared; None when the contents
            follow later, in which case the caller fills every block before :meth:`finish`.
        swapped: Whether the file's byte order is not this machine's.
    """

    def __init__(
        self,
        available: int,
        fill: Callable[[str, np.ndarray], None] | None = None,
        *,
        swapped: bool = False,
    ) -> None:
        self.by_key: dict[str, Storage] = {}
        self.swapped = swapped
        self.skim = False
        self._available = available
        self._fill = fill

    def declare(self, key: str, dtype: np.dtype | None, numel: object) -> Storage:
        """Return the storage ``key``, allocating its block the first time it is named."""
        count = natural(numel, f"the length of storage {key!r}")
        known = self.by_key.get(key)
        if known is not None:
            if not _same(known.dtype, dtype) or known.numel != count:
                raise BadFormat(
                    f"storage {key!r} is declared as {known.numel} x {known.dtype} and again as "
                    f"{count} x {dtype}"
                )
            return known
        nbytes = count * (dtype.itemsize if dtype is not None else 1)
        if nbytes > self._available:
            raise BadFormat(
                f"storage {key!r} claims {nbytes} bytes, but the file has room for {self._available}"
            )
        self._available -= nbytes
        if self.swapped and dtype is None:
            raise Unsupported("untyped storage in a file of the other byte order")
        storage = Storage(key, dtype, count, aligned_empty(nbytes))
        self.by_key[key] = storage
        if self._fill is not None:
            self._fill(key, storage.data)
        return storage

    def finish(self) -> None:
        """Make every array final: byte order, truth values, conjugation; then read-only."""
        for storage in self.by_key.values():
            if not self.skim:
                if self.swapped and storage.dtype is not None:
                    swap_bytes(storage.data, storage.dtype)
                if storage.dtype == np.bool_:
                    normalise_bools(storage.data)
                storage.finish()


def _same(one: np.dtype | None, other: np.dtype | None) -> bool:
    # ``np.dtype(float) == None`` is True, because NumPy reads None as float64.
    return one is other or (one is not None and other is not None and one == other)


def normalise_bools(data: np.ndarray) -> None:
    """Make every byte 0 or 1 in place: NumPy's ``bool_`` misbehaves on any other value."""
    if data.size and data.max() > 1:
        np.not_equal(data, 0, out=data.view(np.bool_))


def natural(value: object, what: str) -> int:
    """Return ``value`` if it is a natural number (``True`` is not), else raise."""
    if type(value) is not int or value < 0:
        raise BadFormat(f"{what} must be a natural number, not {brief(value)}")
    return value


def naturals(value: object, what: str) -> tuple[int, ...]:
    """Return ``value`` if it is a tuple (or list) of natural numbers, else raise."""
    if not isinstance(value, tuple | list):
        raise BadFormat(f"{what} must be a tuple, not {type(value).__name__}")
    return tuple(natural(item, what) for item in value)
