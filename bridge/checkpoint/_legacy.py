"""PyTorch's checkpoint format from 0.1.10 to 1.5: pickles in a row, then raw numbers.

The stream is: a magic number, a protocol number, facts about the machine that wrote it, the object,
and the sorted keys of its storages, each a pickle of its own; then, for each key, a count of
elements (8 bytes) and the numbers, without padding.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np

from bridge.checkpoint._content import Content
from bridge.checkpoint._pickle_extent import read_pickle
from bridge.checkpoint._pickle_machine import PickleMachine
from bridge.checkpoint._publish import publish
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import Storage, Storages
from bridge.checkpoint._vocabulary import TorchVocabulary
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsupported, brief


#: The first pickle, whole, in each pickle protocol.
MAGICS = tuple(pickle.dumps(0x1950A86A20F9469CFC6C, protocol) for protocol in (2, 3, 4, 5))
_PROTOCOL = 1001


def load_legacy(file: FileBytes) -> Content:
    """Return the object in a legacy checkpoint."""
    _, at = _pickle(file, 0, "magic number", Storages(0))
    protocol, at = _pickle(file, at, "protocol", Storages(0))
    if type(protocol) is not int or protocol != _PROTOCOL:
        raise Unsupported(f"legacy protocol {brief(protocol)}; {_PROTOCOL} is read")
    info, at = _pickle(file, at, "sys_info", Storages(0))
    little = info.get("little_endian") if isinstance(info, dict) else None
    if type(little) is not bool:
        raise BadFormat("the facts about the writing machine lack its byte order")
    storages = Storages(file.size, swap=little != (sys.byteorder == "little"), skim=file.skim)
    start = at
    result, at = _pickle(file, at, "object", storages)
    size = at - start
    keys, at = _pickle(file, at, "storage keys", Storages(0))
    if type(keys) is not list:
        raise BadFormat(f"the list of storage keys is {brief(keys)}")
    blocks = _find_blocks(file, at, keys, storages, "little" if little else "big")
    storages.attach(lambda storage: blocks[storage.key])
    value, placeholders = publish(result, size)
    return Content("torch legacy", value, placeholders=placeholders)


def _pickle(file: FileBytes, at: int, record: str, storages: Storages) -> tuple[Any, int]:
    """Return what the pickle at ``at`` holds, and where it ends."""
    try:
        data = read_pickle(file, at)
        return PickleMachine(
            data, TorchVocabulary(storages, len(data), id_parts=6), origin=at
        ).run(), at + len(data)
    except CheckpointError as error:
        raise error.locate(record=record) from error.__cause__


def _find_blocks(
    file: FileBytes, at: int, keys: list[Any], storages: Storages, byteorder: Any
) -> dict[str, np.ndarray]:
    waiting = dict(storages.by_key)
    blocks: dict[str, np.ndarray] = {}
    for raw_key in keys:
        key = str(raw_key) if type(raw_key) in (str, int) else ""
        storage = waiting.pop(key, None)
        if storage is None:
            raise BadFormat(f"storage {brief(raw_key)} is listed twice or never used", offset=at)
        blocks[key] = read_counted(file, at, storage, byteorder)
        at += 8 + storage.nbytes
    if waiting:
        raise BadFormat(f"storage {next(iter(waiting))!r} is used, but the file does not hold it")
    return blocks


def read_counted(file: FileBytes, at: int, storage: Storage, byteorder: Any = "little") -> np.ndarray:
    """Return the bytes of a storage that follow the count of its elements."""
    count = int.from_bytes(file.read(at, 8), byteorder, signed=True)
    if count != storage.numel:
        raise BadFormat(
            f"storage {storage.key!r} must have {storage.numel} elements, not {count}", offset=at
        )
    try:
        return file.block(at + 8, storage.nbytes)
    except Truncated as error:
        raise error.locate(record=f"storage {storage.key}") from None
