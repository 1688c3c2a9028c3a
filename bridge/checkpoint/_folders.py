"""Folders of checkpoint files: one state dict in several files.

A model that is large is saved in several files, each a checkpoint of its own with some of the
tensors. An index beside them (`_index.py`) says which tensor is in which file. Without one, the files
themselves do: those whose names count (``-00001-of-00005``), or one that is alone. A folder that holds
more than one checkpoint is not guessed at; the error says which paths to name.

The result is one :class:`~bridge.StateDict`, as if the tensors had been in one file. The names come
in the order of the index (Hugging Face's writers sort it), then those the index does not list, then,
without an index, in the order of the files' names and in each file's own order. A tensor that two
files hold is refused, whatever the index says: two readers could disagree about its value.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._digests import are_digests
from bridge.checkpoint._index import MAX_INDEX, Index, file_in, parse_index
from bridge.checkpoint._source import ByteSource
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsupported, brief


_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_INDEX = re.compile(r".+\.index(\.[\w-]+)?\.json")
_COUNTED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,})-of-(?P<count>\d{5,})(?P<suffix>\.\w+)")
_WHOLE = ("pytorch_model.bin", "model.pt", "model.pth")
_MAX_LISTED = 8


class Part(Protocol):
    """What reading one file gives (``Content``)."""

    @property
    def format(self) -> str:
        """Which format it has."""
        ...

    @property
    def value(self) -> Any:
        """What it holds."""
        ...

    @property
    def file_metadata(self) -> dict[str, str]:
        """The text table of a safetensors file."""
        ...


Read = Callable[[str], Part | None]
"""Reads one file; None for one that is an index, which no index may list."""


@dataclass(frozen=True)
class Shards:
    """What the files of a folder hold together.

    Attributes:
        format: The format of the files, then "folder".
        value: The tensors of all files.
        file_metadata: The text tables of safetensors files, merged; the first file's text wins.
        files: The paths of the files, in the order they were read.
        notes: Sentences about what is odd and does no harm.
    """

    format: str
    value: StateDict
    file_metadata: dict[str, str]
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Plan:
    """Which files to read, and what the index says of them."""

    files: list[str]
    index: Index | None = None
    notes: list[str] = field(default_factory=list)


def read_folder(folder: str, read: Read) -> Shards:
    """Return what the checkpoint files of a folder hold together.

    Args:
        folder: The folder; not one of a distributed checkpoint (`_dcp.py`).
        read: Reads one file.

    Raises:
        FileNotFoundError: If the folder holds no checkpoint.
        Unsupported: If it holds several.
        CheckpointError: If the index or a file is damaged or unsafe.
    """
    return _read_plan(folder, _plan(folder), read)


def read_index(path: str, read: Read) -> Shards:
    """Return what the files that an index lists hold together.

    Args:
        path: The index.
        read: Reads one file.
    """
    return _read_plan(os.path.dirname(path) or ".", _indexed(path), read)


def indices_in(folder: str) -> list[str]:
    """Return the names of the indices in a folder; there may be one for each format."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    return [name for name in names if _is_index(name) and stat.S_ISREG(_mode(folder, name))]


def incomplete(names: list[str], indices: list[str]) -> list[Truncated]:
    """Return what is missing from the sets of files whose names count and that no index speaks of.

    Args:
        names: The names of a folder's files.
        indices: Its indices (:func:`indices_in`).
    """
    flavours = {_flavour(name) for name in indices}
    found: list[Truncated] = []
    for files in _counted(names).values():
        if _suffix_flavour(files[0]) in flavours:
            continue
        try:
            _check_complete(files)
        except Truncated as error:
            found.append(error)
    return found


def looks_like_index(file: ByteSource) -> bool:
    """Whether a file starts like an index: as text, with a brace."""
    start = file.read(0, min(64, file.size))
    # A safetensors file whose header has 123 bytes starts with a brace, too, and then with zeros.
    return start.lstrip().startswith(b"{") and b"\0" not in start


def _indexed(path: str) -> _Plan:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_INDEX:
            raise BadFormat(f"an index of {status.st_size} bytes; {MAX_INDEX} is the limit")
        data = file.read(MAX_INDEX + 1)
    index = parse_index(data)
    if not index.weight_map:
        raise BadFormat(
            "the index names no tensor", advice="It was probably cut or made by hand: fetch it again"
        )
    return _Plan(list(dict.fromkeys(index.weight_map.values())), index)


def _plan(folder: str) -> _Plan:
    """Decide which files of a folder are the checkpoint."""
    names = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    names = [name for name in names if stat.S_ISREG(_mode(folder, name))]
    indices = [name for name in names if _is_index(name)]
    groups = {name: [name] for name in indices}
    flavours = {_flavour(name) for name in indices}
    for name, files in _groups([name for name in names if not _INDEX.fullmatch(name)]).items():
        # With an index, files of its flavour are its own.
        if _suffix_flavour(files[0]) not in flavours:
            groups[name] = files
    for name in indices:
        # A later save of the whole beside the shards of an earlier one, or the other way about.
        whole = name.partition(".index")[0]
        if whole in names and whole not in _indexed(file_in(folder, name)).files:
            groups[whole] = [whole]
    if not groups:
        groups = _lone(names)
    if not groups:
        raise FileNotFoundError(
            errno.ENOENT, "There are no checkpoint files in this folder; name a file", folder
        )
    if len(groups) > 1:
        listed = ", ".join(repr(os.path.join(folder, name)) for name in list(groups)[:_MAX_LISTED])
        raise Unsupported(
            f"the folder holds {len(groups)} checkpoints, and which one is meant is not said",
            advice=f"Name one of {listed}",
        )
    (name, files) = next(iter(groups.items()))
    if name in indices:
        path = file_in(folder, name)
        try:
            return _indexed(path)
        except CheckpointError as error:
            raise error.locate(file=path) from error.__cause__
    return _Plan(files)


def _mode(folder: str, name: str) -> int:
    try:
        return os.stat(os.path.join(folder, name)).st_mode
    except OSError:
        return 0  # A link to nothing.


def _is_index(name: str) -> bool:
    return bool(_INDEX.fullmatch(name) and _flavour(name))


def _flavour(index: str) -> str:
    """Of which files an index is, by its own name."""
    stem = index.partition(".index")[0]
    return _suffix_flavour(stem)


def _suffix_flavour(name: str) -> str:
    suffix = os.path.splitext(name)[1]
    return "safetensors" if suffix == ".safetensors" else "torch" if suffix in _TORCH else ""


def _groups(names: list[str]) -> dict[str, list[str]]:
    """The checkpoints among files without an index, by the name to call them by."""
    counted = _counted(names)
    parts = {name for files in counted.values() for name in files}
    for files in counted.values():
        _check_complete(files)
    loose = [n for n in names if n not in parts and (n.endswith(".safetensors") or n in _WHOLE)]
    return {files[0]: files for files in counted.values()} | {name: [name] for name in loose}


def _counted(names: list[str]) -> dict[tuple[str, str, str], list[str]]:
    """The sets of files whose names count, by what each has in common."""
    result: dict[tuple[str, str, str], list[str]] = {}
    for name in names:
        match = _COUNTED.fullmatch(name)
        if match and _suffix_flavour(name):
            result.setdefault((match["stem"], match["count"], match["suffix"]), []).append(name)
    return result


def _lone(names: list[str]) -> dict[str, list[str]]:
    """The one PyTorch file of a folder that has nothing else; several are several checkpoints."""
    return {name: [name] for name in names if name.endswith(_TORCH)}


def _check_complete(files: list[str]) -> None:
    match = _COUNTED.fullmatch(files[0])
    assert match is not None
    count = int(match["count"])
    if count > 1_000_000 or len(files) == count:
        return
    there = {int(m["number"]) for m in map(_COUNTED.fullmatch, files) if m}
    absent = next((number for number in range(1, count + 1) if number not in there), count)
    raise Truncated(
        f"{len(files)} of {count} files are there; number {absent} of {match['stem']!r} is missing",
        advice="The download or copy is probably incomplete: fetch the folder again",
    )


def _read_plan(folder: str, plan: _Plan, read: Read) -> Shards:
    home: dict[str, str] = {}
    found: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    texts: dict[str, str] = {}
    formats: dict[str, None] = {}
    paths: list[str] = []
    apart: dict[str, None] = {}
    for file in plan.files:
        path = file_in(folder, file)
        part = read(path)
        if part is None:
            raise BadFormat("the index lists this file, which is an index", file=path)
        formats.setdefault(part.format)
        try:
            _merge(part.value, file, home, found)
        except CheckpointError as error:
            raise error.locate(file=path) from error.__cause__
        metadata = {**getattr(part.value, "metadata", {}), **metadata}
        apart |= {key: None for key, text in part.file_metadata.items() if texts.get(key, text) != text}
        texts = {**part.file_metadata, **texts}
        paths.append(path)
    names, notes = _ordered(plan.index, home, found)
    # Each file has digests of its own tensors.
    if disputed := [key for key in apart if not are_digests(texts[key])]:
        notes.append(
            f"The files' text tables differ in {_some(disputed)}; the first file's text is taken."
        )
    value = StateDict(((name, found[name]) for name in names), metadata=metadata)
    return Shards(f"{' and '.join(formats)} folder", value, texts, tuple(paths), tuple(notes))


def _merge(value: Any, file: str, home: dict[str, str], found: dict[str, Any]) -> None:
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise BadFormat(f"a file of a folder must map names to tensors; it holds a {kind}")
    for name, item in value.items():
        if type(name) is not str:
            raise BadFormat(f"a file of a folder must map names to tensors; it has {brief(name)}")
        if name in home:
            raise BadFormat(
                f"{file!r} and {home[name]!r} both hold this tensor; one of them may",
                advice="Parts of a tensor in several files are joined by torch's "
                "consolidate_safetensors_files_on_every_rank; other copies must be removed",
                entry=name,
            )
        home[name] = file
        found[name] = item


def _ordered(
    index: Index | None, home: dict[str, str], found: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """The names in order, and what is odd about them, after checking them against the index."""
    if index is None:
        return list(found), []
    for name, file in index.weight_map.items():
        if home.get(name) != file:
            where = f"it is in {home[name]!r}" if name in home else "no file holds it"
            raise BadFormat(
                f"the index says that {file!r} holds this tensor, but {where}",
                advice="The index and the files are of different checkpoints: fetch the folder again",
                entry=name,
            )
    unlisted = [name for name in found if name not in index.weight_map]
    notes = []
    if unlisted:
        notes.append(
            f"The index does not list {len(unlisted)} of the tensors in the files: {_some(unlisted)}."
        )
    nbytes = sum(item.nbytes for item in found.values() if isinstance(item, np.ndarray))
    if index.total_size is not None and index.total_size != nbytes:
        notes.append(f"The index says {index.total_size} bytes, the tensors have {nbytes}.")
    return [*index.weight_map, *unlisted], notes


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_MAX_LISTED])) + ", ..." * (len(names) > _MAX_LISTED)
