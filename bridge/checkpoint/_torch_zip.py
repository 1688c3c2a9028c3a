"""PyTorch's checkpoint format since 1.6: a zip archive with one pickle and the storages.

All records lie in one top-level folder, whose name says nothing (files get renamed). ``data.pkl``
holds the objects, ``data/<key>`` the bytes of each storage, ``byteorder`` how numbers are laid out.
Storages must be stored uncompressed and must be exactly as long as the pickle says.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bridge.checkpoint._globals import TorchVocabulary
from bridge.checkpoint._pickle_machine import PickleMachine
from bridge.checkpoint._publish import publish
from bridge.checkpoint._source import ByteReader, FileBytes, MemoryBytes
from bridge.checkpoint._tensors import Storages
from bridge.checkpoint._zip import Record, read_directory, read_record
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsupported


_MAX_SMALL = 64
_VERSIONS = range(1, 11)


def load_zip(file: FileBytes) -> Any:
    """Return the object in a zip checkpoint."""
    records = _by_short_name(read_directory(file))
    _refuse_other_archives(records)
    _check_version(file, records)
    storages = Storages(
        file.size, _fill_from(file, records), swapped=_byteorder(file, records) != sys.byteorder
    )
    storages.skim = file.skim
    pickle = records["data.pkl"]
    if pickle.deflated:
        inflated = read_record(file, pickle)
        reader = ByteReader(MemoryBytes(inflated), 0, len(inflated))
    else:
        reader = ByteReader(file, pickle.start, pickle.start + pickle.size)
    try:
        result = PickleMachine(reader, TorchVocabulary(storages)).run()
        storages.finish()
        return publish(result)
    except CheckpointError as error:
        raise error.locate(record=pickle.name) from error.__cause__


def _by_short_name(records: list[Record]) -> dict[str, Record]:
    """Return the records by their names inside the one top-level folder."""
    folders = {record.name.partition("/")[0] for record in records}
    if len(folders) != 1 or any("/" not in record.name for record in records):
        raise BadFormat(
            "this zip archive is no PyTorch checkpoint: one has a single folder at its top",
            advice="An .npz file is read with numpy.load",
        )
    return {record.name.partition("/")[2]: record for record in records}


def _refuse_other_archives(records: dict[str, Record]) -> None:
    if "constants.pkl" in records:
        raise Unsupported(
            "the file is a TorchScript program, not a checkpoint",
            advice="Load it with torch.jit.load and save its state_dict()",
        )
    if "archive_format" in records or "models/model.json" in records:
        raise Unsupported(
            "the file is an exported program (.pt2), not a checkpoint",
            advice="Load it with torch.export.load and save its state_dict",
        )
    if "data.pkl" not in records:
        raise BadFormat("this zip archive is no PyTorch checkpoint: it has no data.pkl")


def _small(file: FileBytes, record: Record) -> bytes:
    if record.size > _MAX_SMALL:
        raise BadFormat(f"{record.size} bytes where a word is expected", record=record.name)
    return read_record(file, record)


def _check_version(file: FileBytes, records: dict[str, Record]) -> None:
    record = records.get("version")
    if record is None:
        return
    text = _small(file, record).strip()
    if not text.isdigit() or int(text) not in _VERSIONS:
        raise Unsupported(f"format version {text[:20]!r}; 1 to 10 are read", record=record.name)


def _byteorder(file: FileBytes, records: dict[str, Record]) -> str:
    record = records.get("byteorder")
    if record is None:
        return "little"
    text = _small(file, record)
    if text not in (b"little", b"big"):
        raise BadFormat(f"byte order {text[:20]!r}, not 'little' or 'big'", record=record.name)
    return text.decode()


def _fill_from(file: FileBytes, records: dict[str, Record]) -> Any:
    def fill(key: str, block: np.ndarray) -> None:
        record = records.get(f"data/{key}")
        if record is None:
            raise BadFormat(f"storage {key!r} has no record data/{key} in the archive")
        if record.deflated:
            raise Unsupported(
                f"the tensors are compressed (record {record.name!r})",
                advice="Load the file with torch.load and save it again with torch.save",
            )
        if record.size != block.nbytes:
            raise BadFormat(
                f"storage {key!r} needs {block.nbytes} bytes, but its record has {record.size}"
            )
        file.read_into(record.start, block)

    return fill
