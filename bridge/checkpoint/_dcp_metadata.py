"""The table of contents of a distributed checkpoint, read from its pickle.

The pickle holds dataclasses of ``torch.distributed.checkpoint``. Here each is a :class:`Record`, a
name and its fields; the dictionary's keys, records in the file, become pairs of a name and an offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.checkpoint._dtypes import TORCH_DTYPES
from bridge.checkpoint._index import check_plain_name
from bridge.checkpoint._pickle_machine import MAX_DEPTH, PickleMachine
from bridge.checkpoint._refusals import refuse
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import natural, naturals
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsafe, Unsupported, brief


Offsets = tuple[int, ...]

MAX_DIMS = 64


@dataclass(frozen=True)
class Item:
    """Where one archive lies: in a file, from a byte, for a length."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor: its dtype, its shape, and the offsets and sizes of its blocks."""

    dtype: np.dtype
    shape: tuple[int, ...]
    chunks: tuple[tuple[Offsets, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Metadata:
    """What ``.metadata`` says.

    Attributes:
        entries: For every name a tensor, or None for another object.
        items: Where each block lies, by name and offsets (None for another object).
        paths: Where each name belongs in the nested dictionary; None for a flat one.
    """

    entries: dict[str, TensorEntry | None]
    items: dict[tuple[str, Offsets | None], Item]
    paths: dict[str, tuple[str | int, ...]] | None


def parse_metadata(file: FileBytes) -> Metadata:
    """Return what a ``.metadata`` file says.

    Raises:
        CheckpointError: If it is damaged, unsafe or not supported.
    """
    root = _MetadataMachine(file.read(0, file.size), _Vocabulary()).run()
    fields = _fields(root, "Metadata")
    entries = {}
    # Names may share one record, which is then read once.
    known: dict[int, TensorEntry | None] = {}
    for name, entry in _dictionary(fields.get("state_dict_metadata"), "state_dict_metadata").items():
        try:
            if id(entry) not in known:
                known[id(entry)] = _entry(entry)
            entries[_text(name, "a name")] = known[id(entry)]
        except CheckpointError as error:
            raise error.locate(entry=str(name)[:200]) from None
    items = {}
    for key, info in _dictionary(fields.get("storage_data"), "storage_data").items():
        if type(key) is not tuple or len(key) != 2:
            raise BadFormat(f"storage_data has the key {brief(key)}")
        items[key] = _item(info)
    paths = fields.get("planner_data")
    return Metadata(entries, items, None if paths is None else _paths(paths))


def _entry(value: Any) -> TensorEntry | None:
    if isinstance(value, Record) and value.kind == "BytesStorageMetadata":
        return None
    fields = _fields(value, "TensorStorageMetadata")
    properties = fields.get("properties")
    state = properties.state if isinstance(properties, Record) else None
    # The dtype, and four deprecated properties that torch takes all the same.
    if not (isinstance(state, tuple) and len(state) == 5 and isinstance(state[0], np.dtype)):
        raise BadFormat("a tensor's properties are not its dtype and four more")
    dtype = state[0]
    shape = naturals(fields.get("size"), "a tensor's size")
    if len(shape) > MAX_DIMS:
        raise Unsupported(f"a tensor has {len(shape)} dimensions; NumPy has {MAX_DIMS} at most")
    chunks = []
    for chunk in fields["chunks"] if isinstance(fields.get("chunks"), list) else []:
        block = _fields(chunk, "ChunkStorageMetadata")
        offsets = naturals(block.get("offsets"), "a block's offsets")
        sizes = naturals(block.get("sizes"), "a block's sizes")
        if not len(offsets) == len(sizes) == len(shape):
            raise BadFormat(f"a block of a tensor of shape {shape} has other dimensions")
        chunks.append((offsets, sizes))
    return TensorEntry(dtype, shape, tuple(chunks))


def _item(value: Any) -> Item:
    fields = _fields(value, "_StorageInfo")
    if fields.get("transform_descriptors"):
        raise Unsupported(
            f"items that are stored through {brief(fields['transform_descriptors'])}",
            advice="Save the checkpoint without extensions such as compression",
        )
    offset = natural(fields.get("offset"), "an item's offset")
    length = natural(fields.get("length"), "an item's length")
    return Item(check_plain_name(fields.get("relative_path")), offset, length)


def _paths(value: Any) -> dict[str, tuple[str | int, ...]]:
    result = {}
    for name, path in _dictionary(value, "planner_data").items():
        if type(path) is not tuple or not 0 < len(path) <= MAX_DEPTH:
            raise BadFormat(
                "a place in the saved object must be a tuple of keys", entry=str(name)[:200]
            )
        for key in path:
            if type(key) is not str:
                natural(key, "an index")
        result[_text(name, "a name")] = path
    return result


def _dictionary(value: Any, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadFormat(f"{what} must be a dictionary, not {type(value).__name__}")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise BadFormat(f"{what} must be text, not {brief(value)}")
    return value


class Record:
    """An object of one of the classes below: its name and its state.

    Attributes:
        kind: The class's name.
        state: What BUILD gave it: a dictionary of its fields, or a tuple.
    """

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: Any = {}


def _fields(value: Any, kind: str) -> dict[str, Any]:
    if not isinstance(value, Record) or value.kind != kind or not isinstance(value.state, dict):
        what = value.kind if isinstance(value, Record) else type(value).__name__
        raise BadFormat(f"a {kind} is expected, not a {what}")
    return value.state


class _MetadataMachine(PickleMachine):
    """The machine, with one more kind of key: the place of a block."""

    def _set(self, items: list[Any]) -> None:
        for at in range(0, len(items), 2):
            if isinstance(items[at], Record):
                items[at] = _key(items[at])
        super()._set(items)


def _key(record: Record) -> tuple[str, Offsets | None]:
    # The third field, the number of the block, is only a hint, and takes no part in comparing.
    fields = _fields(record, "MetadataIndex")
    offset = fields.get("offset")
    offsets = None if offset is None else naturals(offset, "a block's offsets")
    return _text(fields.get("fqn"), "a block's name"), offsets


@dataclass(frozen=True)
class _Name:
    """A name of the table: what a call of it gives."""

    path: str
    make: Callable[..., object]


class _Vocabulary:
    """The meaning of the names (see ``Vocabulary``)."""

    def find(self, module: str, name: str) -> object:
        """Return the table's entry."""
        if module == "torch" and name in TORCH_DTYPES:
            return TORCH_DTYPES[name]
        found = _TABLE.get((module, name))
        if found is None:
            refuse(module, name)
            raise Unsafe(f"a table of contents names {module}.{name}, which none has a use for")
        return found

    def call(self, function: object, args: tuple[Any, ...]) -> object:
        """Make a value."""
        if not isinstance(function, _Name):
            raise BadFormat(f"the pickle calls a {type(function).__name__}")
        try:
            return function.make(*args)
        except TypeError:
            raise BadFormat(f"{function.path} is called with {len(args)} arguments") from None

    def new(self, cls: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Make a record."""
        if kwargs:
            raise BadFormat("a record is made with named arguments")
        return self.call(cls, args)

    def build(self, instance: object, state: object) -> None:
        """Give a record its fields."""
        if not isinstance(instance, Record) or not isinstance(state, dict | tuple):
            raise BadFormat(f"a {type(instance).__name__} is given a {type(state).__name__} as state")
        instance.state = state

    def persistent(self, identity: object) -> object:
        """Refuse: this pickle has no storages."""
        raise BadFormat(f"a table of contents refers to storage ({brief(identity)})")


def _enumeration(value: object) -> object:
    return natural(value, "a memory format")


def _layout(name: object) -> object:
    if name != "torch.strided":
        raise Unsupported(f"a tensor with the layout {brief(name)}")
    return name


def _path(*parts: object) -> object:
    return "/".join(_text(part, "a part of a path") for part in parts)


def _size(items: object) -> object:
    return naturals(items, "a torch.Size")


_PACKAGE = "torch.distributed.checkpoint"
_RECORDS = {
    f"{_PACKAGE}.metadata": (
        "Metadata",
        "TensorStorageMetadata",
        "TensorProperties",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "MetadataIndex",
        "StorageMeta",
    ),
    f"{_PACKAGE}.filesystem": ("_StorageInfo",),
}

_TABLE: dict[tuple[str, str], _Name] = {
    (module, name): _Name(f"{module}.{name}", lambda name=name: Record(name))
    for module, names in _RECORDS.items()
    for name in names
} | {
    (f"{_PACKAGE}.metadata", "_MEM_FORMAT_ENCODING"): _Name("a memory format", _enumeration),
    ("torch", "Size"): _Name("torch.Size", _size),
    ("torch.serialization", "_get_layout"): _Name("a layout", _layout),
    ("pathlib", "PosixPath"): _Name("pathlib.PosixPath", _path),
    ("pathlib", "WindowsPath"): _Name("pathlib.WindowsPath", _path),
    ("pathlib._local", "PosixPath"): _Name("pathlib.PosixPath", _path),
    ("pathlib._local", "WindowsPath"): _Name("pathlib.WindowsPath", _path),
}
