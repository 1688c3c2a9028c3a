"""PyTorch's first checkpoint format, before 0.1.10: a tar archive of four files.

``storages`` holds runs of numbers, each behind a small pickle that names it; ``tensors`` holds, for
each tensor, its storage, size, stride and offset as binary numbers behind a small pickle; ``pickle``
holds the object, which names tensors and storages by number. Nothing is extracted to disk.

Headers are read here and not by Python's ``tarfile``, which on malformed ones takes quadratic time and
more (CVE-2024-6232, CVE-2025-8194), and which takes longer to import than most files take to read.
"""

from __future__ import annotations

import struct
import sys
from typing import Any

from bridge.checkpoint._content import Content
from bridge.checkpoint._globals import StorageClass
from bridge.checkpoint._legacy import read_counted
from bridge.checkpoint._pickle_extent import read_pickle
from bridge.checkpoint._pickle_machine import PickleMachine
from bridge.checkpoint._publish import publish
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import Storage, Storages, naturals
from bridge.checkpoint._vocabulary import TorchVocabulary
from bridge.checkpoint.errors import (
    BadFormat,
    CheckpointError,
    NotACheckpoint,
    Truncated,
    Unsupported,
    brief,
)


_MEMBERS = ("storages", "tensors", "pickle")
_MAX_DIMS = 64
_BLOCK = 512


class TarVocabulary(TorchVocabulary):
    """The names of a tar checkpoint: persistent ids are the numbers of tensors and storages."""

    def __init__(self, storages: Storages, size: int) -> None:
        super().__init__(storages, size)
        self.objects: dict[int, Any] = {}

    def persistent(self, identity: object) -> object:
        """Return a tensor or storage by its number, or the class of a module with its source."""
        if type(identity) is tuple and len(identity) == 3:
            return identity[0]
        if type(identity) is str and identity.isascii() and identity.isdigit():
            identity = int(identity[:20])
        if type(identity) is not int or identity not in self.objects:
            raise BadFormat(f"the object {brief(identity)} is used, but the file does not hold it")
        return self.objects[identity]


class _Member:
    """One file of the archive, and how far it has been read."""

    def __init__(self, file: FileBytes, name: str, start: int, size: int) -> None:
        self.file, self.name, self.at, self.size = file, name, start, start + size

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes of the archive, none beyond this member."""
        if offset + count > self.size:
            raise BadFormat(f"the archive's {self.name!r} ends in the middle of a value")
        return self.file.read(offset, count)

    def pickle(self, vocabulary: TorchVocabulary) -> Any:
        """Return the object of the pickle that comes next."""
        data = read_pickle(self, self.at)
        result = PickleMachine(data, vocabulary, origin=self.at).run()
        self.at += len(data)
        return result

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Return the binary numbers that come next."""
        data = self.read(self.at, struct.calcsize(layout))
        self.at += len(data)
        return struct.unpack(layout, data)


def load_tar(file: FileBytes) -> Content:
    """Return the object in a tar checkpoint."""
    members = _members(file)
    storages = Storages(file.size, swap=sys.byteorder == "big", skim=file.skim)
    vocabulary = TarVocabulary(storages, file.size)
    name = ""
    try:
        for name, read in (("storages", _read_storages), ("tensors", _read_tensors)):
            read(file, members[name], vocabulary, storages)
        name = "pickle"
        member, start = members[name], members[name].at
        value, placeholders = publish(member.pickle(vocabulary), member.size - start)
    except CheckpointError as error:
        raise error.locate(record=name) from error.__cause__
    return Content("torch tar", value, placeholders=placeholders)


def _members(file: FileBytes) -> dict[str, _Member]:
    found: dict[str, _Member] = {}
    at = 0
    while at + _BLOCK <= file.size:
        header = file.read(at, _BLOCK)
        if not any(header):
            break
        name, kind, size = _header(header, at)
        at += _BLOCK
        if size > file.size - at:
            raise Truncated(
                f"the tar archive's {name!r} has {size} bytes, but {file.size - at} are left",
                advice="The download or copy is probably incomplete: fetch the file again",
                offset=at,
            )
        # Other kinds are folders, links, and further facts about the next file, of which a file with
        # a short name and a moderate size needs none.
        if kind in (b"0", b"\0"):
            found[name.removeprefix("./")] = _Member(file, name, at, size)
        at += size + -size % _BLOCK
    for name in _MEMBERS:
        if name not in found:
            kind = BadFormat if found.keys() & {*_MEMBERS} else NotACheckpoint
            raise kind(f"this tar archive is no PyTorch checkpoint: it has no {name!r}")
    return found


def _header(block: bytes, at: int) -> tuple[str, bytes, int]:
    """Return the name, kind and size in a header, which starts at a byte ``at``."""
    try:
        # The sum is of all bytes, with spaces where it stands itself.
        expected = int(block[148:156].strip(b" \0"), 8)
        size = _size(block[124:136])
        name = block[:100].partition(b"\0")[0].decode("utf-8")
    except ValueError as error:
        raise BadFormat("the tar archive is damaged: a header has no numbers", offset=at) from error
    if expected != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise BadFormat("the tar archive is damaged: a header has another checksum", offset=at)
    return name, block[156:157], size


def _size(field: bytes) -> int:
    # Eleven octal digits, or, for more than 8 GiB, a bit and then a number.
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits.isdigit():
        raise ValueError("no size")
    return int(digits, 8)


def _read_storages(
    file: FileBytes, member: _Member, vocabulary: TarVocabulary, storages: Storages
) -> None:
    blocks: dict[str, Any] = {}
    for _ in range(_count(member, vocabulary)):
        match member.pickle(vocabulary):
            case (int() as key, str(), StorageClass(dtype=dtype)) if dtype is not None:
                (numel,) = struct.unpack("<q", member.read(member.at, 8))
                storage = storages.declare(str(key), dtype, numel)
                if storage.key in blocks:
                    raise BadFormat(f"storage {key} occurs twice")
                blocks[storage.key] = read_counted(file, member.at, storage)
                vocabulary.objects[key] = storage
                member.at += 8 + storage.nbytes
            case _:
                raise BadFormat("a storage must be described by key, location and class")
    storages.attach(lambda storage: blocks[storage.key])
    views = member.pickle(vocabulary)
    if not isinstance(views, list):
        raise BadFormat(f"the list of storage views is {brief(views)}")
    for view in views:
        parts = naturals(view, "a storage view")
        if len(parts) != 4:
            raise BadFormat(f"a storage view has {len(parts)} parts, not 4")
        target, root, offset, numel = parts
        if not isinstance(vocabulary.objects.get(root), Storage) or target in vocabulary.objects:
            raise BadFormat(f"storage view {brief(target)} is of an unknown storage, or occurs twice")
        window = vocabulary.objects[root].window(str(target), offset, numel)
        vocabulary.objects[target] = window
    # Windows exist only now; attaching again gives them their part of the bytes.
    for storage in storages.by_key.values():
        storage.attach(storage.data)


def _read_tensors(
    file: FileBytes, member: _Member, vocabulary: TarVocabulary, storages: Storages
) -> None:
    del file, storages
    for _ in range(_count(member, vocabulary)):
        match member.pickle(vocabulary):
            case (int() as key, int() as storage, _) if isinstance(
                vocabulary.objects.get(storage), Storage
            ):
                (ndim, _) = member.numbers("<ii")
                if not 0 <= ndim <= _MAX_DIMS:
                    raise Unsupported(f"a tensor has {ndim} dimensions")
                size, stride = (member.numbers(f"<{ndim}q") for _ in range(2))
                (offset,) = member.numbers("<q")
                found = vocabulary.objects[storage].tensor(offset, size, stride)
                if vocabulary.objects.setdefault(key, found) is not found:
                    raise BadFormat(f"tensor {key} occurs twice")
            case _:
                raise BadFormat("a tensor must be described by key, storage and class")


def _count(member: _Member, vocabulary: TarVocabulary) -> int:
    count = member.pickle(vocabulary)
    # Each of them takes some bytes, so more than that cannot follow.
    if type(count) is not int or not 0 <= count <= member.size:
        raise BadFormat(f"the archive's {member.name!r} has {brief(count)} entries")
    return count
