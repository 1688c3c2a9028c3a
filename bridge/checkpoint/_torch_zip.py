"""PyTorch's checkpoint format since 1.6: a zip archive with one pickle and the storages.

All records lie in one top-level folder, whose name says nothing (files get renamed). ``data.pkl``
holds the objects, ``data/<key>`` the bytes of each storage, ``byteorder`` how numbers are laid out.
Storages must be exactly as long as the pickle says. PyTorch writes them uncompressed, but reads
others.

Two other kinds of archive look alike. One with ``constants.pkl`` is a TorchScript program, whose
``data.pkl`` is a module; one with ``archive_format`` is an exported program.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from bridge.checkpoint._content import Content
from bridge.checkpoint._pickle_machine import PickleMachine
from bridge.checkpoint._program import MODEL, load_program
from bridge.checkpoint._publish import publish
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import Storage, Storages
from bridge.checkpoint._torchscript import ScriptClasses, script_state_dict
from bridge.checkpoint._vocabulary import TorchVocabulary
from bridge.checkpoint._zip import MAX_INFLATED, Record, read_directory, read_record
from bridge.checkpoint.errors import BadFormat, CheckpointError, NotACheckpoint, Unsafe, Unsupported


_MAX_SMALL = 64
_SPARE_PICKLE = 1 << 20
_VERSIONS = range(1, 11)


def load_zip(file: FileBytes, spare: int = MAX_INFLATED) -> Content:
    """Return what a zip archive of PyTorch holds.

    Args:
        file: The archive.
        spare: How many bytes more than the archive has its compressed records may have together.
    """
    records = by_short_name(read_directory(file, spare))
    if "archive_format" in records or MODEL in records:
        swap = _byteorder(file, records) != sys.byteorder
        return Content("exported program", load_program(file, records, swap=swap))
    if "data.pkl" not in records:
        raise NotACheckpoint("this zip archive is no PyTorch checkpoint: it has no data.pkl")
    _check_version(file, records)
    value, placeholders = _run_pickle(file, records, spare)
    if "constants.pkl" in records:
        return Content(
            "TorchScript", script_state_dict(value, _classes(file, records), records["data.pkl"].size)
        )
    return Content("torch zip", value, placeholders=placeholders)


def by_short_name(records: list[Record]) -> dict[str, Record]:
    """Return the records by their names inside the one top-level folder."""
    folders = {record.name.partition("/")[0] for record in records}
    if len(folders) != 1 or any("/" not in record.name for record in records):
        raise NotACheckpoint(
            "this zip archive is no PyTorch checkpoint: one has a single folder at its top",
            advice="An .npz file is read with numpy.load",
        )
    return {record.name.partition("/")[2]: record for record in records}


def _run_pickle(file: FileBytes, records: dict[str, Record], spare: int) -> tuple[Any, set[str]]:
    swap = _byteorder(file, records) != sys.byteorder
    storages = Storages(file.size + spare, swap=swap, skim=file.skim)
    pickle = records["data.pkl"]
    if pickle.deflated and pickle.size > file.size + _SPARE_PICKLE:
        # An opcode is a byte, and what it makes is an object.
        raise Unsafe(f"a compressed pickle of {pickle.size} bytes", record=pickle.name)
    data = read_record(file, pickle)
    origin = 0 if pickle.deflated else pickle.start
    try:
        result = PickleMachine(data, TorchVocabulary(storages, len(data)), origin=origin).run()
        storages.attach(lambda storage: _storage_block(file, records, storage))
        return publish(result, len(data))
    except CheckpointError as error:
        raise error.locate(record=pickle.name) from error.__cause__


def _storage_block(file: FileBytes, records: dict[str, Record], storage: Storage) -> np.ndarray:
    record = records.get(f"data/{storage.key}")
    if record is None:
        raise BadFormat(f"storage {storage.key!r} has no record data/{storage.key} in the archive")
    if record.size != storage.nbytes:
        raise BadFormat(
            f"storage {storage.key!r} needs {storage.nbytes} bytes, but its record has {record.size}"
        )
    if file.skim:
        return np.empty(0, np.uint8)
    if record.deflated:
        return np.frombuffer(read_record(file, record), np.uint8)
    return file.block(record.start, record.size)


def _classes(file: FileBytes, records: dict[str, Record]) -> ScriptClasses:
    sources: dict[str, str] = {}
    for name, record in records.items():
        if name.startswith("code/") and name.endswith(".py"):
            module = name[len("code/") : -len(".py")].replace("/", ".")
            sources[module] = read_record(file, record).decode("utf-8", "replace")
    return ScriptClasses(sources)


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
