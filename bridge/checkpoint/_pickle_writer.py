"""The pickle inside a .pt file, written opcode by opcode.

The output is what ``torch.save`` writes for the same object, byte for byte: protocol 2, only names
that ``torch.load(weights_only=True)`` allows, and Python's rules for when a value is written in
full and when as a reference to an earlier one. Containers are recognised again by identity, text
by value, so that equal objects give equal bytes.

Arrays become tensors over storages. Two arrays that are the same object, or that look at the same
memory in the same way, share one storage, which is how PyTorch's files say "tied". An array that
is a transposed view of dense memory keeps its strides; any other layout is made dense.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._arrays import as_array
from bridge.checkpoint._dtypes import STORAGE_CLASS_OF, TORCH_NAME_OF
from bridge.checkpoint._pickle_machine import MAX_DEPTH
from bridge.checkpoint.errors import CheckpointError, Unwritable, brief


_BATCH = 1000
_KEY_KINDS = (str, int, float, bool, type(None), bytes, tuple)


class PickleWriter:
    """Pickle one object.

    Attributes:
        storages: After :meth:`dump`, the arrays whose row-major bytes are the storages 0, 1, ...
    """

    def __init__(self) -> None:
        self.storages: list[np.ndarray] = []
        self._out: list[bytes] = []
        self._memo: dict[Any, int] = {}
        self._keys: dict[Any, int] = {}
        # Values whose identity is remembered must outlive the memo.
        self._alive: list[Any] = []

    def dump(self, value: object) -> bytes:
        """Return the pickle of ``value``; the root's path in messages is ``object``."""
        self._out = [b"\x80\x02"]
        self._save(value, "object", 0)
        self._out.append(b".")
        return b"".join(self._out)

    def _save(self, value: Any, path: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unwritable(f"values are nested more than {MAX_DEPTH} deep", entry=path)
        kind = type(value)
        if kind in _SIMPLE:
            try:
                _SIMPLE[kind](self, value)
            except CheckpointError as error:
                raise error.locate(entry=path) from error.__cause__
        elif kind in _CONTAINERS:
            if not self._recall(("id", id(value))):
                _CONTAINERS[kind](self, value, path, depth)
        elif isinstance(value, np.dtype):
            self._dtype(value, path)
        else:
            array = as_array(value, path)
            if array is None:
                raise _unwritable(value, path)
            self._tensor(array, value, path)

    def _write(self, *parts: bytes) -> None:
        self._out.extend(parts)

    def _recall(self, key: Any) -> bool:
        index = self._memo.get(key)
        if index is None:
            return False
        self._write(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))
        return True

    def _remember(self, key: Any) -> None:
        index = len(self._memo)
        self._memo[key] = index
        self._write(b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index))

    def _remember_id(self, value: Any) -> None:
        self._alive.append(value)
        self._remember(("id", id(value)))

    def _bool(self, value: bool) -> None:
        self._write(b"\x88" if value else b"\x89")

    def _none(self, value: None) -> None:
        del value
        self._write(b"N")

    def _int(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self._write(b"K" + bytes([value]))
        elif 0 <= value < 1 << 16:
            self._write(b"M" + struct.pack("<H", value))
        elif -(1 << 31) <= value < 1 << 31:
            self._write(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            # to_bytes leaves a spare byte for some negative numbers; Python's pickles do not.
            if value < 0 and len(data) > 1 and data[-1] == 0xFF and data[-2] & 0x80:
                data = data[:-1]
            if len(data) > 255:
                raise Unwritable("an integer beyond 255 bytes, which torch.load refuses")
            self._write(b"\x8a" + bytes([len(data)]) + data)

    def _float(self, value: float) -> None:
        self._write(b"G" + struct.pack(">d", value))

    def _text(self, value: str, namespace: str = "text") -> None:
        if not self._recall((namespace, value)):
            data = value.encode("utf-8", "surrogatepass")
            self._write(b"X" + struct.pack("<I", len(data)), data)
            self._remember((namespace, value))

    def _bytes(self, value: bytes) -> None:
        self._call("_codecs", "encode", lambda: self._latin1(value))
        self._remember(("call", len(self._memo)))

    def _latin1(self, value: bytes) -> None:
        self._text(value.decode("latin-1"))
        self._text("latin1")
        self._write(b"\x86")
        self._remember(("args", len(self._memo)))

    def _bytearray(self, value: bytearray) -> None:
        self._call("builtins", "bytearray", lambda: self._one(lambda: self._bytes(bytes(value))))
        self._remember(("call", len(self._memo)))

    def _complex(self, value: complex) -> None:
        def parts() -> None:
            self._float(value.real)
            self._float(value.imag)
            self._write(b"\x86")
            self._remember(("args", len(self._memo)))

        self._call("builtins", "complex", parts)
        self._remember(("call", len(self._memo)))

    def _one(self, save: Callable[[], None]) -> None:
        save()
        self._write(b"\x85")
        self._remember(("args", len(self._memo)))

    def _call(self, module: str, name: str, args: Callable[[], None]) -> None:
        self._name(module, name)
        args()
        self._write(b"R")

    def _name(self, module: str, name: str) -> None:
        # Protocol 2 is read by Python 2 as well, which knows builtins by another name.
        module = {"builtins": "__builtin__"}.get(module, module)
        if not self._recall(("name", module, name)):
            self._write(f"c{module}\n{name}\n".encode("ascii"))
            self._remember(("name", module, name))

    def _dtype(self, dtype: np.dtype, path: str) -> None:
        if dtype not in TORCH_NAME_OF:
            raise Unwritable(f"PyTorch has no dtype {dtype}", entry=path)
        self._name("torch", TORCH_NAME_OF[dtype])

    def _tuple(self, value: tuple[Any, ...], path: str, depth: int) -> None:
        if not value:
            self._write(b")")
            return
        if len(value) > 3:
            self._write(b"(")
        for index, item in enumerate(value):
            self._save(item, f"{path}[{index}]", depth + 1)
        self._write({1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value), b"t"))
        self._remember_id(value)

    def _list(self, value: list[Any], path: str, depth: int) -> None:
        self._write(b"]")
        self._remember_id(value)
        self._items(value, path, depth)

    def _items(self, value: list[Any], path: str, depth: int) -> None:
        if len(value) == 1:
            self._save(value[0], f"{path}[0]", depth + 1)
            self._write(b"a")
            return
        for start in range(0, len(value), _BATCH):
            self._write(b"(")
            for index in range(start, min(start + _BATCH, len(value))):
                self._save(value[index], f"{path}[{index}]", depth + 1)
            self._write(b"e")

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> None:
        self._write(b"}")
        self._remember_id(value)
        if len(value) == 1:
            self._pair(next(iter(value.items())), path, depth)
            self._write(b"s")
            return
        pairs = iter(value.items())
        for count in _batches(len(value)):
            self._write(b"(")
            for _ in range(count):
                self._pair(next(pairs), path, depth)
            self._write(b"u")

    def _ordered(self, value: dict[Any, Any], path: str, depth: int) -> None:
        self._call("collections", "OrderedDict", lambda: self._write(b")"))
        self._remember_id(value)
        pairs = list(value.items())
        for start in range(0, len(pairs), _BATCH):
            batch = pairs[start : start + _BATCH]
            self._write(b"(" if len(batch) > 1 else b"")
            for pair in batch:
                self._pair(pair, path, depth)
            self._write(b"u" if len(batch) > 1 else b"s")
        metadata = getattr(value, "metadata", None) or getattr(value, "_metadata", None)
        if metadata:
            ordered = OrderedDict(metadata)
            self._alive.append(ordered)
            self._dict({"_metadata": ordered}, f"{path}.metadata", depth)
            self._write(b"b")

    def _pair(self, pair: tuple[Any, Any], path: str, depth: int) -> None:
        key, item = pair
        if type(key) not in _KEY_KINDS:
            raise Unwritable(
                f"a dictionary key of type {type(key).__name__}",
                advice="Use text, a number, None or a tuple of these as the key",
                entry=path,
            )
        here = f"{path}[{brief(key)}]"
        self._save(key, here, depth + 1)
        self._save(item, here, depth + 1)

    def _counter(self, value: Counter[Any], path: str, depth: int) -> None:
        self._name("collections", "Counter")
        self._one(lambda: self._dict(dict(value), path, depth))
        self._write(b"R")
        self._remember_id(value)

    def _set(self, value: set[Any], path: str, depth: int) -> None:
        # Sets have no order of their own; sorting makes equal sets give equal bytes.
        items = sorted(value, key=lambda item: (type(item).__name__, repr(item)))
        self._name("builtins", "set")
        self._one(lambda: self._list(items, path, depth))
        self._write(b"R")
        self._remember_id(value)

    def _tensor(self, array: np.ndarray, original: object, path: str) -> None:
        dtype = array.dtype
        if dtype not in TORCH_NAME_OF:
            raise Unwritable(
                f"an array of {dtype}, for which PyTorch has no tensor",
                advice="Convert it to a number type of PyTorch, or leave this entry out",
                entry=path,
            )
        dense, stride = _dense(array)
        key = self._storage_key(array, dense, original)
        typed = STORAGE_CLASS_OF.get(dtype)
        self._name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._write(b"(")
        self._persistent(key, typed, dense)
        self._int(0)
        self._tuple(array.shape, path, 0)
        self._tuple(stride, path, 0)
        self._bool(False)
        self._call("collections", "OrderedDict", lambda: self._write(b")"))
        self._remember(("hooks", len(self._memo)))
        if not typed:
            self._dtype(dtype, path)
        self._write(b"t")
        self._remember(("args", len(self._memo)))
        self._write(b"R")
        # Tied entries are written as two tensors over one storage, as a state_dict has them.
        self._remember(("tensor", len(self._memo)))

    def _storage_key(self, array: np.ndarray, dense: np.ndarray, original: object) -> int:
        identity = ("object", id(original))
        layout = ("memory", array.ctypes.data, array.shape, array.strides, array.dtype)
        known = self._keys.get(identity)
        if known is None and array.nbytes:
            known = self._keys.get(layout)
        if known is None:
            known = len(self.storages)
            self.storages.append(dense)
        self._alive.extend((original, array))
        self._keys[identity] = self._keys[layout] = known
        return known

    def _persistent(self, key: int, typed: str | None, dense: np.ndarray) -> None:
        self._write(b"(")
        self._text("storage")
        self._name(*(("torch", typed) if typed else ("torch.storage", "UntypedStorage")))
        # torch.save makes this string anew, so it is never a reference to an equal one.
        self._text(str(key), "storage key")
        self._text("cpu")
        self._int(dense.size if typed else dense.nbytes)
        self._write(b"t")
        self._remember(("args", len(self._memo)))
        self._write(b"Q")


def _batches(count: int) -> Iterator[int]:
    """Yield the sizes of the groups in which Python's pickler writes a plain dictionary."""
    while count >= _BATCH:
        yield _BATCH
        count -= _BATCH
        if not count:
            # It only notices the end after a full group by opening another.
            yield 0
    if count:
        yield count


def _dense(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return an array whose row-major order is the storage, and strides in elements over it."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    if array.flags.c_contiguous or not array.transpose(order).flags.c_contiguous:
        return array, _row_major(array.shape)
    dense = array.transpose(order)
    strides = _row_major(dense.shape)
    return dense, tuple(strides[order.index(axis)] for axis in range(array.ndim))


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return PyTorch's strides of a contiguous tensor, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def _unwritable(value: object, path: str) -> CheckpointError:
    return Unwritable(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be saved in a file of "
        "arrays and plain values",
        advice="Save its arrays and numbers in a dictionary instead",
        entry=path,
    )


_SIMPLE: dict[type, Callable[[PickleWriter, Any], None]] = {
    type(None): PickleWriter._none,
    bool: PickleWriter._bool,
    int: PickleWriter._int,
    float: PickleWriter._float,
    str: PickleWriter._text,
    bytes: PickleWriter._bytes,
    bytearray: PickleWriter._bytearray,
    complex: PickleWriter._complex,
}

_CONTAINERS: dict[type, Callable[[PickleWriter, Any, str, int], None]] = {
    dict: PickleWriter._dict,
    StateDict: PickleWriter._ordered,
    OrderedDict: PickleWriter._ordered,
    list: PickleWriter._list,
    tuple: PickleWriter._tuple,
    Counter: PickleWriter._counter,
    set: PickleWriter._set,
}
