"""One mapping of arrays in several files, and the index that says which file has which.

The names, the index and the way of splitting are Hugging Face's: in order, a file is full when the
next array would make it larger than the limit; an array that is larger than the limit has a file of
its own; arrays that share memory stay together, where the first of them is.

A set of files cannot be replaced in one step, but its index can. So the index is what counts, and no
file that the index on disk names is written over:

1. The new files are written, each atomically. When their names are those of the set that is there
   (a model saved again), they get names with ``-next`` in them.
2. The index is replaced. Until here the old set is whole, from here on the new one.
3. Files named ``-next`` get their proper names as second names, the index is replaced once more, and
   the first names go. Where there are no hard links they stay, which every reader of an index takes.
4. The files of the earlier set go: those that are named like a file of a set of this stem and
   suffix, and the one file of an unsplit save. Nothing else in the folder is touched.

Two saves at a time to one folder wait for one another, where the file system has locks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bridge._state_dict_type import StateDict
from bridge.checkpoint._arrays import as_array
from bridge.checkpoint._atomic import (
    folder_lock,
    link_atomically,
    remove_leftovers,
    sync_folder,
    write_atomically,
)
from bridge.checkpoint._packed import stored_size
from bridge.checkpoint._pickle_writer import dump
from bridge.checkpoint._storages import dense, storage_groups
from bridge.checkpoint._write_safetensors import arrays_of, plan, tied, write_safetensors
from bridge.checkpoint._write_zip import write_torch_zip
from bridge.checkpoint.errors import Unwritable, brief


_SAFETENSORS = ".safetensors"
_SUFFIXES = (_SAFETENSORS, ".bin", ".pt", ".pth", ".ckpt")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_MARKS = ("-next", "-next2")

_Write = Callable[[BinaryIO], None]


def size_in_bytes(size: int | str) -> int:
    """Return a size such as ``500`` or ``"5GB"`` in bytes.

    Raises:
        ValueError: If it is no positive size.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is None:
            raise ValueError(f"a shard size is a number or text such as '5GB', not {size!r}")
        number, prefix, binary = match.groups()
        unit = (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " ")
        size = int(float(number) * unit)
    elif type(size) is not int:
        raise ValueError(f"a shard size is a number or text such as '5GB', not {size!r}")
    if size <= 0:
        raise ValueError("a shard size must be positive")
    return size


def split(sizes: Sequence[int], groups: Sequence[int], limit: int) -> list[list[int]]:
    """Spread items over shards in order.

    Args:
        sizes: The bytes of each item.
        groups: For each item, the position of one that it has to stay with, often its own.
        limit: How many bytes a shard may have.

    Returns:
        The positions of the items of each shard.
    """
    members: dict[int, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    shards: list[list[int]] = []
    current: list[int] = []
    filled = 0
    for together in members.values():
        size = sum(sizes[position] for position in together)
        if size > limit:
            shards.append(together)
            continue
        if current and filled + size > limit:
            shards.append(current)
            current, filled = [], 0
        current += together
        filled += size
    if current or not shards:
        shards.append(current)
    return [sorted(shard) for shard in shards]


class _Set(NamedTuple):
    """A set of files that could be written.

    Attributes:
        names: The names in order.
        holds: The names in each file.
        total: The bytes of all arrays.
        repeated: Names that are not written, and the name that has their array.
        write: What writes the file of an index that is called so.
    """

    names: list[str]
    holds: list[list[str]]
    total: int
    repeated: dict[str, str]
    write: Callable[[int, str], _Write]

    def index_text(self, files: Sequence[str]) -> bytes:
        """Return the index for files of these names."""
        where = {name: file for held, file in zip(self.holds, files, strict=True) for name in held}
        index = {
            "metadata": {**self.repeated, "total_size": self.total},
            "weight_map": {name: where[name] for name in self.names if name in where},
        }
        return json.dumps(index, indent=2).encode() + b"\n"


def write_shards(
    obj: Any,
    path: str,
    limit: int,
    *,
    metadata: Mapping[str, str] | None,
    digests: bool,
    ties: str,
) -> None:
    """Write a mapping of arrays as a set of files; see :func:`bridge.checkpoint.save`."""
    folder, stem, suffix = _place(path)
    if suffix == _SAFETENSORS:
        files = _safetensors_set(obj, limit, metadata, ties, digests)
    elif metadata is None:
        files = _torch_set(obj, limit, digests)
    else:
        raise Unwritable("metadata has a place in .safetensors files only")
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        whole = re.escape(stem + suffix)
        remove_leftovers(folder, rf"{_set_names(stem, suffix)}|{whole}|{whole}\.index\.json")
        if len(files.holds) == 1:
            name = stem + suffix
            write_atomically(folder / name, files.write(0, name))
            (folder / f"{name}.index.json").unlink(missing_ok=True)
            _remove(folder, _set_files(folder, stem, suffix))
        else:
            _write_set(folder, stem, suffix, files)


def forget_set(path: str) -> None:
    """Remove the set of files that an earlier save left under this path, if there is one."""
    if not os.path.isfile(f"{path}.index.json"):
        return
    folder, stem, suffix = _place(path)
    with folder_lock(folder):
        (folder / f"{stem}{suffix}.index.json").unlink(missing_ok=True)
        _remove(folder, _set_files(folder, stem, suffix))


def _safetensors_set(
    obj: Any, limit: int, metadata: Mapping[str, str] | None, ties: str, digests: bool
) -> _Set:
    arrays = arrays_of(obj)
    repeated = tied(arrays) if ties == "canonical" else {}
    sizes = [0 if name in repeated else stored_size(array) for name, array in arrays.items()]
    names = list(arrays)
    plans = [
        plan({names[at]: arrays[names[at]] for at in shard}, metadata, ties=ties, digests=digests)
        for shard in split(sizes, storage_groups(list(arrays.values())), limit)
    ]
    holds = [list(planned.arrays) for planned in plans]
    written = {name for held in holds for name in held}

    def write(index: int, name: str) -> _Write:
        del name
        return lambda file: write_safetensors(file, plans[index])

    return _Set(
        names,
        holds,
        sum(stored_size(arrays[name]) for name in written),
        {name: kept for name, kept in repeated.items() if name not in written},
        write,
    )


def _torch_set(obj: Any, limit: int, digests: bool) -> _Set:
    sizes, groups = _storages(obj)
    names = list(obj)
    holds = [[names[at] for at in shard] for shard in split(sizes, groups, limit)]

    def write(index: int, name: str) -> _Write:
        pickle, storages = dump(_part(obj, holds[index]))
        return lambda file: write_torch_zip(file, name, pickle, storages, digests=digests)

    return _Set(names, holds, sum(sizes), {}, write)


def _write_set(folder: Path, stem: str, suffix: str, files: _Set) -> None:
    count = len(files.holds)
    index = folder / f"{stem}{suffix}.index.json"
    earlier = _set_files(folder, stem, suffix)
    live = _named_by(index, earlier)

    def called(mark: str) -> list[str]:
        return [f"{stem}{mark}-{at:05d}-of-{count:05d}{suffix}" for at in range(1, count + 1)]

    def commit(names: Sequence[str]) -> None:
        def write_index(file: BinaryIO) -> None:
            file.write(files.index_text(names))

        write_atomically(index, write_index)

    proper = called("")
    first = next(names for names in map(called, ("", *_MARKS)) if live.isdisjoint(names))
    try:
        for at, name in enumerate(first):
            # The archive's folder in a PyTorch file is called by the file's proper name.
            write_atomically(folder / name, files.write(at, proper[at]))
    except BaseException:
        _remove(folder, first)
        raise
    commit(first)
    kept = first
    if first != proper:
        with suppress(OSError):  # No hard links here: then the first names stay.
            for source, target in zip(first, proper, strict=True):
                link_atomically(folder / source, folder / target)
            sync_folder(folder)
            kept = proper
        if kept is proper:
            commit(proper)
    _remove(folder, ({*earlier, *first} | {stem + suffix}) - set(kept))


def _place(path: str) -> tuple[Path, str, str]:
    """Return the folder, the stem and the suffix of the files of a set."""
    whole = Path(path)
    if whole.suffix in _SUFFIXES and not path.endswith(("/", os.sep)) and not whole.is_dir():
        return whole.parent, whole.stem, whole.suffix
    return whole, "model", _SAFETENSORS


def _storages(obj: Any) -> tuple[list[int], list[int]]:
    """Return what each value of a mapping adds to a PyTorch file, and what it shares storage with."""
    if not isinstance(obj, Mapping):
        raise Unwritable(
            f"a set of files holds a mapping of names to arrays, not a {type(obj).__name__}",
            advice="Save it without shard_size, or save one of its state dicts",
        )
    for name in obj:
        if type(name) is not str:
            raise Unwritable(f"{brief(name)} cannot name a tensor in a set of files")
    found = {at: as_array(value, name) for at, (name, value) in enumerate(obj.items())}
    positions = [at for at, array in found.items() if array is not None]
    arrays = [array for array in found.values() if array is not None]
    groups = list(range(len(found)))
    sizes = [0] * len(found)
    for at, array, group in zip(positions, arrays, storage_groups(arrays), strict=True):
        groups[at] = positions[group]
        sizes[at] = stored_size(dense(array)[0]) if groups[at] == at else 0
    return sizes, groups


def _part(obj: Mapping[str, Any], names: Iterable[str]) -> Any:
    part = {name: obj[name] for name in names}
    metadata = getattr(obj, "metadata", None) or getattr(obj, "_metadata", None)
    return StateDict(part, metadata=metadata) if metadata else part


def _set_files(folder: Path, stem: str, suffix: str) -> set[str]:
    """Return the files in the folder that are named as one of a set."""
    pattern = re.compile(_set_names(stem, suffix))
    return {entry.name for entry in os.scandir(folder) if pattern.fullmatch(entry.name)}


def _set_names(stem: str, suffix: str) -> str:
    """Return a regular expression of the names of a set's files."""
    marks = "|".join(_MARKS)
    return rf"{re.escape(stem)}(?:{marks})?-\d{{5}}-of-\d{{5}}{re.escape(suffix)}"


def _named_by(index: Path, files: set[str]) -> set[str]:
    """Return which of the files the index on disk names: all of them, if there is no telling."""
    try:
        named = json.loads(index.read_bytes())["weight_map"].values()
        return {name for name in files if name in set(named)}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return files


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(folder / name)
    sync_folder(folder)
