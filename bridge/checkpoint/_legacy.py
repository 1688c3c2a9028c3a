"""PyTorch's checkpoint format from 0.1.10 to 1.5: pickles in a row, then raw numbers.

The stream is: a magic number, a protocol number, facts about the machine that wrote it, the object,
and the sorted keys of its storages, each a pickle of its own; then, for each key, a count of
elements (8 bytes) and the numbers, without padding. The numbers come after the tensors that view
them, so blocks of memory are set aside first and filled at the end.
"""

from __future__ import annotations

import sys
from typing import Any

from bridge.checkpoint._globals import TorchVocabulary
from bridge.checkpoint._pickle_machine import PickleMachine
from bridge.checkpoint._publish import publish
from bridge.checkpoint._source import ByteReader, FileBytes
from bridge.checkpoint._tensors import Storage, Storages
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsupported, brief


#: The first pickle, whole: protocol 2, the ten-byte integer 0x1950a86a20f9469cfc6c, stop.
MAGIC = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
_PROTOCOL = 1001


def load_legacy(file: FileBytes) -> Any:
    """Return the object in a legacy checkpoint."""
    reader = ByteReader(file, len(MAGIC), file.size)
    protocol = _plain(reader, "protocol")
    if type(protocol) is not int or protocol != _PROTOCOL:
        raise Unsupported(f"legacy protocol {brief(protocol)}; {_PROTOCOL} is read")
    info = _plain(reader, "sys_info")
    little = info.get("little_endian") if isinstance(info, dict) else None
    if type(little) is not bool:
        raise BadFormat("the facts about the writing machine lack its byte order")
    storages = Storages(file.size, swapped=little != (sys.byteorder == "little"))
    storages.skim = file.skim
    try:
        result = PickleMachine(reader, TorchVocabulary(storages)).run()
    except CheckpointError as error:
        raise error.locate(record="object") from error.__cause__
    keys = _plain(reader, "storage keys")
    if type(keys) is not list:
        raise BadFormat(f"the list of storage keys is {brief(keys)}")
    _fill(file, reader.position, keys, storages, "little" if little else "big")
    storages.finish()
    return publish(result)


def _plain(reader: ByteReader, record: str) -> Any:
    """Return a pickle that has no business mentioning tensors."""
    try:
        return PickleMachine(reader, TorchVocabulary(Storages(0))).run()
    except CheckpointError as error:
        raise error.locate(record=record) from error.__cause__


def _fill(file: FileBytes, at: int, keys: list[Any], storages: Storages, byteorder: Any) -> None:
    waiting = dict(storages.by_key)
    for raw_key in keys:
        key = str(raw_key) if type(raw_key) in (str, int) else ""
        storage = waiting.pop(key, None)
        if storage is None:
            raise BadFormat(f"storage {brief(raw_key)} is listed twice or never used", offset=at)
        at = _fill_one(file, at, storage, byteorder)
    if waiting:
        raise BadFormat(f"storage {next(iter(waiting))!r} is used, but the file does not hold it")


def _fill_one(file: FileBytes, at: int, storage: Storage, byteorder: Any) -> int:
    count = int.from_bytes(file.read(at, 8), byteorder, signed=True)
    if count != storage.numel:
        raise BadFormat(
            f"storage {storage.key!r} must have {storage.numel} elements, not {count}", offset=at
        )
    try:
        file.read_into(at + 8, storage.data)
    except Truncated as error:
        raise error.locate(record=f"storage {storage.key}") from None
    return at + 8 + storage.data.nbytes
