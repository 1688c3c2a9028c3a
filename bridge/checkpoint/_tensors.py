"""Storages and the views of them that PyTorch calls tensors.

A PyTorch file holds *storages*, runs of numbers, and *tensors*, which are an offset, a size and a
stride over a storage; several tensors may view one storage. While the file's pickle runs, both are
only described (:class:`Storage`, :class:`Tensor`); the old formats put the numbers after the pickle.
When the storages have their blocks, each tensor becomes a read-only NumPy array over one: broadcast
and transposed tensors stay views, however large they look. Two tensors with the same storage,
offset, size, stride and dtype are tied weights, and come back as the same array object.

Bounds are checked in Python's unbounded integers before NumPy sees a number. A "conj" or "neg" mark
on a tensor means that the bytes are the numbers before conjugation or negation; it is resolved once
per storage into a second block, so a forged huge broadcast cannot make it allocate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bridge.checkpoint._dtypes import resolve_marks, swapped
from bridge.checkpoint._memory import aligned_empty
from bridge.checkpoint._packed import FLOAT4, unpack
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported, brief


_MAX_DIMS = 64
_MAX_BYTES = (1 << 63) - 1
_ROOM = 1 << 20

_Variant = tuple[bool, bool, np.dtype]


class Tensor:
    """A view of a storage, in elements, whose numbers may not be in reach yet.

    Attributes:
        storage: What it views.
        start: The element it starts at.
        shape: Its size.
        steps: Its strides.
        dtype: Its dtype.
        conj: Whether the storage holds the conjugates of its numbers.
        neg: Whether the storage holds the negatives of its numbers.
    """

    __slots__ = ("_array", "conj", "dtype", "neg", "shape", "start", "steps", "storage")

    def __init__(
        self,
        storage: Storage,
        start: int,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        dtype: np.dtype,
        conj: bool,
        neg: bool,
    ) -> None:
        self.storage = storage
        self.start = start
        self.shape = shape
        self.steps = steps
        self.dtype = dtype
        self.conj = conj
        self.neg = neg
        self._array: np.ndarray | None = None

    def array(self) -> np.ndarray:
        """Return the numbers, read-only; the same array each time."""
        if self._array is None:
            self._array = self._view()
        return self._array

    def _view(self) -> np.ndarray:
        if self.storage.skim:
            packed = self.dtype == FLOAT4
            shape = (*self.shape[:-1], self.shape[-1] * 2) if packed else self.shape
            return described(shape, self.dtype)
        if self.conj or self.neg:
            data = self.storage.variant(self.dtype, conj=self.conj, neg=self.neg)
        else:
            data = self.storage.data
        if 0 in self.shape:
            array = np.empty(self.shape, self.dtype)
        else:
            width = self.dtype.itemsize
            # A stride that is never stepped may be any number; NumPy's must fit 64 bits.
            strides = [
                step * width if n > 1 else width for n, step in zip(self.shape, self.steps, strict=True)
            ]
            array = np.ndarray(self.shape, self.dtype, cast("Any", data), self.start * width, strides)
        if self.dtype == FLOAT4:
            self.storage.spend(2 * array.size)
            array = unpack(array)
        if array.flags.writeable:
            array.flags.writeable = False
        return array


class Storage:
    """A run of numbers with the dtype its class declares (None: untyped bytes).

    Attributes:
        key: The file's name for it.
        dtype: The declared dtype, or None.
        numel: The declared number of elements (bytes when untyped).
        nbytes: The declared length in bytes.
        skim: Whether the numbers are of no interest.
        data: The bytes, ``uint8``; set when the file's structure has been read.
    """

    data: np.ndarray

    def __init__(self, key: str, dtype: np.dtype | None, numel: int, *, skim: bool = False) -> None:
        self.key = key
        self.dtype = dtype
        self.numel = numel
        self.nbytes = numel * (dtype.itemsize if dtype is not None else 1)
        self.skim = skim
        self._tensors: dict[tuple[object, ...], Tensor] = {}
        self._variants: dict[_Variant, np.ndarray] = {}
        self._windows: dict[tuple[int, int], Storage] = {}
        self._root: Storage | None = None  # of a window, the storage that it is a part of
        self._spent = 0

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
            window = Storage(key, self.dtype, numel, skim=self.skim)
            window._root = self
            self._windows[offset, numel] = window
        return self._windows[offset, numel]

    def tensor(
        self,
        offset: object,
        size: object,
        stride: object,
        dtype: np.dtype | None = None,
        *,
        conj: bool = False,
        neg: bool = False,
    ) -> Tensor:
        """Return the tensor at ``offset`` (in elements) with ``size`` and ``stride``."""
        start = natural(offset, "a tensor's offset")
        for part in (size, stride):
            if isinstance(part, tuple | list) and len(part) > _MAX_DIMS:
                raise Unsupported(f"a tensor has {len(part)} dimensions; NumPy has {_MAX_DIMS} at most")
        shape = naturals(size, "a tensor's size")
        steps = naturals(stride, "a tensor's stride")
        if dtype is None and not (conj or neg):
            key: tuple[object, ...] = (start, shape, steps)
        else:
            key = (start, shape, steps, dtype, conj, neg)
        tensor = self._tensors.get(key)
        if tensor is None:
            tensor = self._tensors[key] = self._new_tensor(start, shape, steps, dtype, conj, neg)
        return tensor

    def _new_tensor(
        self,
        start: int,
        shape: tuple[int, ...],
        steps: tuple[int, ...],
        dtype: np.dtype | None,
        conj: bool,
        neg: bool,
    ) -> Tensor:
        if dtype is None or self.dtype is not None:
            dtype = self._agreed(dtype)
        self._check(start, shape, steps, dtype)
        if conj or neg:
            if neg and dtype.kind in "bu":
                raise BadFormat(f"a {dtype} tensor is marked as negated")
            # Where there is nothing to conjugate, the mark says nothing.
            conj = conj and dtype.kind in "cV"
        return Tensor(self, start, shape, steps, dtype, conj, neg)

    def whole(self) -> np.ndarray:
        """Return the storage itself as one dimension of numbers."""
        return self.tensor(0, (self.numel,), (1,), self.dtype or np.dtype(np.uint8)).array()

    def variant(self, dtype: np.dtype, *, conj: bool, neg: bool) -> np.ndarray:
        """Return the storage's bytes with its numbers conjugated, negated or both."""
        key = (conj, neg, dtype)
        if key not in self._variants:
            count = len(self.data) // dtype.itemsize
            self.spend(len(self.data))
            block = aligned_empty(len(self.data))
            numbers = block.view(dtype)[:count] if count else block[:0].view(dtype)
            numbers[...] = self.data[: count * dtype.itemsize].view(dtype)
            resolve_marks(numbers, conj=conj, neg=neg)
            self._variants[key] = block
        return self._variants[key]

    def spend(self, count: int) -> None:
        """Count bytes that are made from the storage's: many tensors can view one."""
        root = self._root or self
        root._spent += count
        if root._spent > 4 * root.nbytes + _ROOM:
            raise Unsafe(f"storage {root.key!r} is copied over and over")

    def attach(self, block: np.ndarray) -> None:
        """Give the storage its bytes."""
        self.data = block
        for (offset, numel), window in self._windows.items():
            width = block.nbytes // max(self.numel, 1)
            window.attach(block[offset * width : (offset + numel) * width])

    def _agreed(self, dtype: np.dtype | None) -> np.dtype:
        if self.dtype is None:
            raise BadFormat("a tensor over untyped storage does not say its dtype")
        if dtype is not None and self.dtype != dtype:
            raise BadFormat(f"a {dtype} tensor views storage {self.key!r} of {self.dtype}")
        return self.dtype

    def _check(
        self, start: int, shape: tuple[int, ...], steps: tuple[int, ...], dtype: np.dtype
    ) -> None:
        if len(shape) != len(steps):
            raise BadFormat(f"a tensor has {len(shape)} sizes but {len(steps)} strides")
        if dtype == FLOAT4 and not shape:
            raise Unsupported(f"a {dtype} tensor without dimensions, two numbers to a byte")
        # NumPy counts the bytes a view seems to have, ignoring zeros, and must not overflow.
        if 0 in shape:
            if math.prod(n for n in shape if n) * dtype.itemsize > _MAX_BYTES:
                raise BadFormat(f"a tensor of size {shape} has more than 2**63 bytes")
            return
        if math.prod(shape) * dtype.itemsize > _MAX_BYTES:
            raise BadFormat(f"a tensor of size {shape} has more than 2**63 bytes")
        last = start
        for n, step in zip(shape, steps, strict=True):
            last += (n - 1) * step
        held = self.numel if dtype is self.dtype else self.nbytes // dtype.itemsize
        if last >= held:
            raise BadFormat(
                f"a tensor of size {shape}, stride {steps} and offset {start} reaches element "
                f"{last} of storage {self.key!r}, which has {held}"
            )


class Storages:
    """The storages of one file, by key.

    Args:
        available: How many bytes of storage the file can hold at most.
        swap: Whether the file's byte order is not this machine's.
        skim: Whether the numbers are of no interest.
    """

    def __init__(self, available: int, *, swap: bool = False, skim: bool = False) -> None:
        self.by_key: dict[str, Storage] = {}
        self._available = available
        self._swap = swap
        self._skim = skim

    def declare(self, key: str, dtype: np.dtype | None, numel: object) -> Storage:
        """Return the storage ``key``, described as it was the first time it was named."""
        count = natural(numel, f"the length of storage {key!r}")
        known = self.by_key.get(key)
        if known is not None:
            if not _same(known.dtype, dtype) or known.numel != count:
                raise BadFormat(
                    f"storage {key!r} is declared as {known.numel} x {known.dtype} and again as "
                    f"{count} x {dtype}"
                )
            return known
        storage = Storage(key, dtype, count, skim=self._skim)
        if storage.nbytes > self._available:
            raise BadFormat(
                f"storage {key!r} claims {storage.nbytes} bytes, but the file has room for "
                f"{self._available}"
            )
        self._available -= storage.nbytes
        if self._swap and dtype is None:
            raise Unsupported("untyped storage in a file of the other byte order")
        self.by_key[key] = storage
        return storage

    def attach(self, block_of: Callable[[Storage], np.ndarray]) -> None:
        """Give every storage its bytes, in this machine's byte order.

        Args:
            block_of: Returns a storage's bytes, read-only, as they are in the file.
        """
        for storage in self.by_key.values():
            block = block_of(storage)
            if not self._skim and storage.dtype is not None:
                if self._swap:
                    block = swapped(block, storage.dtype)
                if storage.dtype.kind == "b":
                    block = truth_values(block)
            storage.attach(block)


def described(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array that has a tensor's shape and dtype, no numbers of its own and no memory."""
    array = np.ndarray(shape, dtype, bytes(dtype.itemsize), 0, (0,) * len(shape))
    array.flags.writeable = False
    return array


def _same(one: np.dtype | None, other: np.dtype | None) -> bool:
    # ``np.dtype(float) == None`` is True, because NumPy reads None as float64.
    return one is other or (one is not None and other is not None and one == other)


def truth_values(data: np.ndarray) -> np.ndarray:
    """Return bytes that are 0 or 1: NumPy's ``bool_`` misbehaves on any other value."""
    if data.size and data.max() > 1:
        return np.not_equal(data, 0).view(np.uint8)
    return data


def natural(value: object, what: str) -> int:
    """Return ``value`` if it is a natural number (``True`` is not), else raise."""
    if type(value) is not int or value < 0:
        raise BadFormat(f"{what} must be a natural number, not {brief(value)}")
    return value


def naturals(value: object, what: str) -> tuple[int, ...]:
    """Return ``value`` if it is a tuple (or list) of natural numbers, else raise."""
    if type(value) is not tuple:
        if not isinstance(value, tuple | list):
            raise BadFormat(f"{what} must be a tuple, not {type(value).__name__}")
        value = tuple(value)
    for item in value:
        if type(item) is not int or item < 0:
            natural(item, what)
    return value
