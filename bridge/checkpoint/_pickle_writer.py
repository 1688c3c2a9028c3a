"""The pickle inside a .pt file, written opcode by opcode.

The output is what ``torch.save`` writes for the same object, byte for byte: protocol 2, only names
that ``torch.load(weights_only=True)`` allows, and Python's rules for when a value is written in
full and when as a reference to an earlier one. Containers are recognised again by identity, text
by value, so that equal objects give equal bytes.

Arrays become tensors over storages (``_tensor_table.py``); which of them share one is told by
``_storages.py``. That needs all arrays at once, and nearly no object has any that share: so the pickle
is written as if none did, and once more if some do.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._dtypes import TORCH_NAME_OF
from bridge.checkpoint._object_path import METADATA, Path, where
from bridge.checkpoint._opcodes import BATCH, batches, get, integer, put, tuple_end, tuple_start
from bridge.checkpoint._pickle_machine import MAX_DEPTH
from bridge.checkpoint._storages import views
from bridge.checkpoint._tensor_table import STORAGE_CLASSES, TensorTable
from bridge.checkpoint.errors import CheckpointError, Unwritable


_KEY_KINDS = (str, int, float, bool, type(None), bytes, tuple)


def dump(value: object) -> tuple[bytes, list[np.ndarray]]:
    """Pickle ``value``.

    Returns:
        The pickle, and the arrays whose row-major bytes are the storages 0, 1, ...

    Raises:
        Unwritable: If there is no way to write something in ``value``; its path starts ``object``.
    """
    tensors = TensorTable({}, (), {})
    pickle = _PickleWriter(tensors).dump(value)
    found = views(tensors.arrays.values())
    if found:
        placed = dict(zip(tensors.arrays, map(found.get, range(len(tensors.arrays))), strict=True))
        tensors = TensorTable(tensors.arrays, tensors.packed, placed)
        pickle = _PickleWriter(tensors).dump(value)
    return pickle, tensors.storages


class _PickleWriter:
    """One pass over one object.

    Args:
        tensors: What its arrays become.
    """

    def __init__(self, tensors: TensorTable) -> None:
        self._table = tensors
        self._out: list[bytes] = []
        self._memo: dict[Any, bytes] = {}
        self._count = 0
        self._heads: dict[str, bytes] = {}
        self._tuples: dict[tuple[int, ...], bytes] = {}
        # Values whose identity is remembered must outlive the memo.
        self._alive: list[Any] = []

    def dump(self, value: object) -> bytes:
        """Return the pickle of ``value``."""
        self._out = [b"\x80\x02"]
        self._save(value, None, 0)
        self._out.append(b".")
        return b"".join(self._out)

    def _save(self, value: Any, path: Path, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unwritable(f"values are nested more than {MAX_DEPTH} deep", entry=where(path))
        kind = type(value)
        if kind is np.ndarray:
            self._tensor(value, path)
        elif kind is str:
            self._text(value)
        elif kind in _CONTAINERS:
            if not self._recall(("id", id(value))):
                _CONTAINERS[kind](self, value, path, depth)
        elif kind in _SIMPLE:
            try:
                _SIMPLE[kind](self, value)
            except CheckpointError as error:
                raise error.locate(entry=where(path)) from error.__cause__
        elif isinstance(value, np.dtype):
            self._dtype(value, path)
        else:
            self._tensor(value, path)

    def _write(self, *parts: bytes) -> None:
        self._out.extend(parts)

    def _recall(self, key: Any) -> bool:
        reference = self._memo.get(key)
        if reference is None:
            return False
        self._out.append(reference)
        return True

    def _remember(self, key: Any) -> None:
        index = self._count
        self._memo[key] = get(index)
        self._out.append(self._put())

    def _put(self) -> bytes:
        """Return the opcode that numbers the newest value, which nothing will refer to."""
        index = self._count
        self._count = index + 1
        return put(index)

    def _remember_id(self, value: Any) -> None:
        self._alive.append(value)
        self._remember(("id", id(value)))

    def _bool(self, value: bool) -> None:
        self._write(b"\x88" if value else b"\x89")

    def _none(self, value: None) -> None:
        del value
        self._write(b"N")

    def _int(self, value: int) -> None:
        self._write(integer(value))

    def _float(self, value: float) -> None:
        self._write(b"G" + struct.pack(">d", value))

    def _text(self, value: str, namespace: str = "text") -> None:
        if not self._recall((namespace, value)):
            data = value.encode("utf-8", "surrogatepass")
            self._write(b"X" + struct.pack("<I", len(data)), data)
            self._remember((namespace, value))

    def _bytes(self, value: bytes) -> None:
        self._call("_codecs", "encode", lambda: self._latin1(value))
        self._write(self._put())

    def _latin1(self, value: bytes) -> None:
        self._text(value.decode("latin-1"))
        self._text("latin1")
        self._write(b"\x86")
        self._write(self._put())

    def _bytearray(self, value: bytearray) -> None:
        self._call("builtins", "bytearray", lambda: self._one(lambda: self._bytes(bytes(value))))
        self._write(self._put())

    def _complex(self, value: complex) -> None:
        def parts() -> None:
            self._float(value.real)
            self._float(value.imag)
            self._write(b"\x86")
            self._write(self._put())

        self._call("builtins", "complex", parts)
        self._write(self._put())

    def _one(self, save: Callable[[], None]) -> None:
        save()
        self._write(b"\x85")
        self._write(self._put())

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

    def _dtype(self, dtype: np.dtype, path: Path) -> None:
        if dtype not in TORCH_NAME_OF:
            raise Unwritable(f"PyTorch has no dtype {dtype}", entry=where(path))
        self._name("torch", TORCH_NAME_OF[dtype])

    def _tuple(self, value: tuple[Any, ...], path: Path, depth: int) -> None:
        if not value:
            self._write(b")")
            return
        self._write(tuple_start(len(value)))
        for index, item in enumerate(value):
            self._save(item, (path, index), depth + 1)
        self._write(tuple_end(len(value)))
        self._remember_id(value)

    def _list(self, value: list[Any], path: Path, depth: int) -> None:
        self._write(b"]")
        self._remember_id(value)
        self._items(value, path, depth)

    def _items(self, value: list[Any], path: Path, depth: int) -> None:
        if len(value) == 1:
            self._save(value[0], (path, 0), depth + 1)
            self._write(b"a")
            return
        for start in range(0, len(value), BATCH):
            self._write(b"(")
            for index in range(start, min(start + BATCH, len(value))):
                self._save(value[index], (path, index), depth + 1)
            self._write(b"e")

    def _dict(self, value: dict[Any, Any], path: Path, depth: int) -> None:
        self._write(b"}")
        self._remember_id(value)
        if len(value) == 1:
            self._pair(next(iter(value.items())), path, depth)
            self._write(b"s")
            return
        pairs = iter(value.items())
        for count in batches(len(value)):
            self._write(b"(")
            for _ in range(count):
                self._pair(next(pairs), path, depth)
            self._write(b"u")

    def _ordered(self, value: dict[Any, Any], path: Path, depth: int) -> None:
        self._call("collections", "OrderedDict", lambda: self._write(b")"))
        self._remember_id(value)
        pairs = list(value.items())
        for start in range(0, len(pairs), BATCH):
            batch = pairs[start : start + BATCH]
            self._write(b"(" if len(batch) > 1 else b"")
            for pair in batch:
                self._pair(pair, path, depth)
            self._write(b"u" if len(batch) > 1 else b"s")
        metadata = getattr(value, "metadata", None) or getattr(value, "_metadata", None)
        if metadata:
            ordered = OrderedDict(metadata)
            self._alive.append(ordered)
            self._dict({"_metadata": ordered}, (path, METADATA), depth)
            self._write(b"b")

    def _pair(self, pair: tuple[Any, Any], path: Path, depth: int) -> None:
        key, item = pair
        if type(key) not in _KEY_KINDS:
            raise Unwritable(
                f"a dictionary key of type {type(key).__name__}",
                advice="Use text, a number, None or a tuple of these as the key",
                entry=where(path),
            )
        here = (path, key)
        self._save(key, here, depth + 1)
        self._save(item, here, depth + 1)

    def _counter(self, value: Counter[Any], path: Path, depth: int) -> None:
        self._name("collections", "Counter")
        self._one(lambda: self._dict(dict(value), path, depth))
        self._write(b"R")
        self._remember_id(value)

    def _set(self, value: set[Any], path: Path, depth: int) -> None:
        # Sets have no order of their own; sorting makes equal sets give equal bytes.
        items = sorted(value, key=lambda item: (type(item).__name__, repr(item)))
        self._name("builtins", "set")
        self._one(lambda: self._list(items, path, depth))
        self._write(b"R")
        self._remember_id(value)

    def _tensor(self, value: object, path: Path) -> None:
        shape, dtype, key, numel, offset, strides = self._table.of(value, path)
        mark = len(self._out)
        head = self._heads.get(dtype)
        if head is None:
            self._head(dtype)
            # From now on all of it is references, the same for every tensor of this dtype.
            start = len(self._out)
            self._head(dtype)
            self._heads[dtype] = b"".join(self._out[start:])
            del self._out[start:]
        else:
            self._out.append(head)
        # torch.save makes this string anew, so it is never a reference to an equal text.
        self._text(str(key), "storage key")
        self._text("cpu")
        new = self._put
        self._write(integer(numel), b"t", new(), b"Q", integer(offset))
        self._write(self._ints(shape), new() if strides else b"")
        self._write(self._ints(strides), new() if strides else b"", b"\x89")
        # The tensor's hooks: none.
        self._name("collections", "OrderedDict")
        self._write(b")R", new())
        if dtype not in STORAGE_CLASSES:
            self._name("torch", dtype)
        # Tied entries are written as two tensors over one storage, as a state_dict has them.
        self._write(b"t", new(), b"R", new())
        # One piece of memory in place of thirty.
        self._out[mark:] = [b"".join(self._out[mark:])]

    def _head(self, dtype: str) -> None:
        """Write what comes before the key of a tensor's storage."""
        typed = STORAGE_CLASSES.get(dtype)
        self._name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._write(b"((")
        self._text("storage")
        self._name(*(("torch", typed) if typed else ("torch.storage", "UntypedStorage")))

    def _ints(self, numbers: tuple[int, ...]) -> bytes:
        known = self._tuples.get(numbers)
        if known is None:
            size = len(numbers)
            known = b"".join((tuple_start(size), *map(integer, numbers), tuple_end(size)))
            self._tuples[numbers] = known
        return known


_SIMPLE: dict[type, Callable[[_PickleWriter, Any], None]] = {
    type(None): _PickleWriter._none,
    bool: _PickleWriter._bool,
    int: _PickleWriter._int,
    float: _PickleWriter._float,
    str: _PickleWriter._text,
    bytes: _PickleWriter._bytes,
    bytearray: _PickleWriter._bytearray,
    complex: _PickleWriter._complex,
}

_CONTAINERS: dict[type, Callable[[_PickleWriter, Any, Path, int], None]] = {
    dict: _PickleWriter._dict,
    StateDict: _PickleWriter._ordered,
    OrderedDict: _PickleWriter._ordered,
    list: _PickleWriter._list,
    tuple: _PickleWriter._tuple,
    Counter: _PickleWriter._counter,
    set: _PickleWriter._set,
}
