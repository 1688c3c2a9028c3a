"""Distributed checkpoints: the folders of ``torch.distributed.checkpoint``.

Each process of a training job writes the blocks of tensors that it has into files of its own
(``__0_0.distcp``: complete ``torch.save`` archives, one after another), and one of them writes
``.metadata``: a pickle that says, for every name, the tensor's dtype and shape and which blocks it
has, and for every block, the file, the byte and the length. The names lead back into the nested
dictionary that was saved (``planner_data``).

The pickle's vocabulary is thirteen names, each a record or a plain value here. File names in it obey
the rule of `_index.py`. The archives must lie apart, and each must be as long as its block at least,
so that the result cannot be larger than the files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._chunks import Chunk, Chunked
from bridge.checkpoint._dcp_metadata import Item, Metadata, TensorEntry, parse_metadata
from bridge.checkpoint._index import file_in
from bridge.checkpoint._safetensors import looks_like_safetensors
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import described
from bridge.checkpoint._torch_zip import load_zip
from bridge.checkpoint._zip import LOCAL
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsupported


METADATA = ".metadata"

_MAX_METADATA = 256 << 20
_MAX_BYTES = (1 << 63) - 1


@dataclass(frozen=True)
class Distributed:
    """What a distributed checkpoint holds.

    Attributes:
        format: "distributed".
        value: The nested dictionary; tensors are ``Chunked`` where they were not put together.
        files: The paths of the files.
    """

    format: str
    value: Any
    files: tuple[str, ...]


def is_dcp(folder: str) -> bool:
    """Whether a folder holds a distributed checkpoint."""
    return os.path.isfile(os.path.join(folder, METADATA))


def read_dcp(
    folder: str, *, together: bool = True, copy: bool = False, skim: bool = False
) -> Distributed:
    """Return what a distributed checkpoint holds.

    Args:
        folder: The folder.
        together: Put each tensor together; otherwise it is a :class:`Chunked`, whose files stay
            open as long as it is there.
        copy: Whether arrays have memory of their own rather than being views of a map.
        skim: Leave the numbers unread; shapes and dtypes are right, values arbitrary.

    Raises:
        CheckpointError: If a file is damaged, unsafe or not supported.
    """
    path, metadata = _read_metadata(folder)
    files = _Files(folder, metadata, copy=copy)
    values = {}
    for name, entry in metadata.entries.items():
        try:
            values[name] = _value(name, entry, metadata, files, together=together, skim=skim)
        except CheckpointError as error:
            raise error.locate(file=path, entry=name) from error.__cause__
    return Distributed("distributed", _nested(values, metadata.paths), (path, *files.paths.values()))


def archives(folder: str) -> Iterator[tuple[str, FileBytes]]:
    """Yield each archive in the files of a distributed checkpoint, and where it lies."""
    _, metadata = _read_metadata(folder)
    files = _Files(folder, metadata, copy=True)
    for item in dict.fromkeys(metadata.items.values()):
        yield f"{item.file} at byte {item.offset}", files.archive(item)


def _read_metadata(folder: str) -> tuple[str, Metadata]:
    path = file_in(folder, METADATA)
    with open(path, "rb", buffering=0) as raw:
        file = FileBytes(raw.fileno())
        if file.size > _MAX_METADATA:
            raise BadFormat(f"{file.size} bytes; {_MAX_METADATA} is the limit", file=path)
        try:
            metadata = parse_metadata(file)
        except CheckpointError as error:
            raise error.locate(file=path) from error.__cause__
    return path, metadata


def _value(
    name: str,
    entry: TensorEntry | None,
    metadata: Metadata,
    files: _Files,
    *,
    together: bool,
    skim: bool,
) -> Any:
    if entry is None:
        return files.load(_item(metadata, name, None))
    if math.prod(n for n in entry.shape if n) * entry.dtype.itemsize > _MAX_BYTES:
        raise BadFormat(f"a tensor of shape {entry.shape} is larger than any array")
    chunks = []
    for offsets, sizes in entry.chunks:
        item = _item(metadata, name, offsets)
        nbytes = math.prod(sizes) * entry.dtype.itemsize
        if nbytes > item.length:
            raise BadFormat(f"a block of {nbytes} bytes is said to lie in {item.length}")
        chunks.append(Chunk(offsets, sizes, _opens(name, files, item, sizes, entry.dtype)))
    chunked = Chunked(entry.shape, entry.dtype, chunks)
    if skim:
        return described(entry.shape, entry.dtype)
    if not together:
        return chunked
    array = chunked.whole()
    array = np.asarray(chunked) if array is None else array
    array.flags.writeable = False
    return array


def _item(metadata: Metadata, name: str, offsets: tuple[int, ...] | None) -> Item:
    item = metadata.items.get((name, offsets))
    if item is None:
        where = "" if offsets is None else f" of its block at {offsets}"
        raise BadFormat(f"the place{where} is not said")
    return item


def _opens(
    name: str, files: _Files, item: Item, sizes: tuple[int, ...], dtype: np.dtype
) -> Callable[[], np.ndarray]:
    def opens() -> np.ndarray:
        array = files.load(item)
        if not isinstance(array, np.ndarray) or array.shape != sizes or array.dtype != dtype:
            kind = type(array).__name__
            what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else kind
            raise BadFormat(
                f"the block in {item.file!r} at byte {item.offset} is {what}, not {dtype} {sizes}",
                entry=name,
            )
        return array

    return opens


class _Files:
    """The files of a checkpoint, opened when they are first wanted.

    Args:
        folder: Where they are.
        metadata: What they are said to hold; checked against their sizes here.
        copy: Whether arrays have memory of their own.

    Attributes:
        paths: The path of each, by name.
    """

    def __init__(self, folder: str, metadata: Metadata, *, copy: bool) -> None:
        places: dict[str, list[tuple[int, int]]] = {}
        for item in metadata.items.values():
            places.setdefault(item.file, []).append((item.offset, item.length))
        self.paths = {name: file_in(folder, name) for name in sorted(places)}
        self._copy = copy
        self._open: dict[str, tuple[FileIO, FileBytes]] = {}
        for name, path in self.paths.items():
            _check_apart(sorted(places[name]), os.stat(path).st_size, path)

    def archive(self, item: Item) -> FileBytes:
        """The bytes of one archive, which start like one."""
        path = self.paths[item.file]
        if item.file not in self._open:
            raw = FileIO(path)
            self._open[item.file] = raw, FileBytes(raw.fileno(), path, copy=self._copy)
        window = self._open[item.file][1].window(item.offset, item.length)
        if window.read(0, min(len(LOCAL), window.size)) == LOCAL:
            return window
        if looks_like_safetensors(window):
            raise Unsupported("an item in safetensors format", file=path, offset=item.offset)
        raise BadFormat("an item that is no archive of torch.save", file=path, offset=item.offset)

    def load(self, item: Item) -> Any:
        """The object of one archive."""
        try:
            archive = self.archive(item)
        except CheckpointError as error:
            raise error.locate(file=self.paths[item.file]) from error.__cause__
        try:
            # Nothing to spare: there may be a million archives, and torch compresses none.
            return load_zip(archive, 0).value
        except CheckpointError as error:
            # The bytes that the archive's reader counts start where the archive does.
            error.offset = None if error.offset is None else error.offset + item.offset
            raise error.locate(file=self.paths[item.file]) from error.__cause__

    def __del__(self) -> None:
        for raw, _ in self.__dict__.get("_open", {}).values():
            raw.close()


def _check_apart(items: list[tuple[int, int]], size: int, path: str) -> None:
    at = 0
    for offset, length in items:
        if offset < at:
            raise BadFormat(f"two items are said to lie at byte {offset}", file=path)
        at = offset + length
    if at > size:
        raise Truncated(
            f"{at} bytes are needed, but the file has {size}",
            advice="The download or copy is probably incomplete: fetch the file again",
            file=path,
        )


def _nested(values: Mapping[str, Any], paths: Mapping[str, tuple[str | int, ...]] | None) -> Any:
    """The nested dictionary that was saved."""
    if paths is None:
        return StateDict(values)
    root: dict[Any, Any] = {}
    # The order of the names is that of the places, which is the saved dictionary's; the entries
    # come sorted by how they are sharded.
    order = [name for name in paths if name in values] + [name for name in values if name not in paths]
    for name in order:
        path, value = paths.get(name, (name,)), values[name]
        place: Any = root
        for key in path[:-1]:
            place = place.setdefault(key, _Branch())
            if not isinstance(place, _Branch):
                raise BadFormat("a value lies at a place inside another value", entry=name)
        if path[-1] in place:
            raise BadFormat("two values lie at one place", entry=name)
        place[path[-1]] = value
    return _finished(root, len(values))


class _Branch(dict[Any, Any]):
    """A dictionary or list of the result that is not finished."""


def _finished(branch: dict[Any, Any], count: int) -> Any:
    items = {
        key: _finished(value, count) if isinstance(value, _Branch) else value
        for key, value in branch.items()
    }
    if items and all(type(key) is int for key in items):
        if max(items) >= count:
            raise BadFormat(f"a list of {max(items) + 1} items, where {count} values are saved")
        return [items.get(index) for index in range(max(items) + 1)]
    if any(type(key) is int for key in items):
        raise BadFormat("a place is a list and a dictionary at once")
    arrays = all(isinstance(value, np.ndarray | Chunked) for value in items.values())
    return StateDict(items) if arrays else items
