"""The weights of an exported program (``torch.export.save``, ``.pt2``).

The archive lists its weights as JSON: for each name, a record of raw bytes and the tensor's dtype,
sizes, strides and offset over it. Several names may share a record, which is how ties are kept. The
program itself is not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._dtypes import TORCH_DTYPES, swapped
from bridge.checkpoint._json import parse_json
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import Storage, truth_values
from bridge.checkpoint._zip import Record, read_record
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsupported, brief


MODEL = "models/model.json"
_WEIGHTS = "data/weights/"
_CONFIG = _WEIGHTS + "model_weights_config.json"

#: The numbers of ``torch._export.serde.schema.ScalarType``.
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}


def load_program(file: FileBytes, records: dict[str, Record], *, swap: bool = False) -> StateDict:
    """Return the weights of an exported program: its parameters and persistent buffers.

    Args:
        file: The archive.
        records: Its records.
        swap: Whether the archive's byte order is not this machine's.
    """
    if _CONFIG not in records:
        raise Unsupported(
            "an exported program (.pt2) of a layout that is not read",
            advice="Load it with torch.export.load and save its state_dict",
        )
    record = records[_CONFIG]
    try:
        table = parse_json(read_record(file, record))
    except CheckpointError as error:
        raise error.locate(record=record.name) from error.__cause__
    config = table.get("config") if isinstance(table, dict) else None
    if not isinstance(config, dict):
        raise BadFormat("the list of weights has no config", record=record.name)
    result = StateDict()
    weights = _Weights(file, records, swap=swap)
    for name, entry in config.items():
        try:
            result[name] = weights.array(entry)
        except CheckpointError as error:
            raise error.locate(record=record.name, entry=name) from error.__cause__
    return result


class _Weights:
    """The records of numbers, each read once.

    Args:
        file: The archive.
        records: Its records.
        swap: Whether the archive's byte order is not this machine's.
    """

    def __init__(self, file: FileBytes, records: dict[str, Record], *, swap: bool) -> None:
        self._file = file
        self._records = records
        self._swap = swap
        self._blocks: dict[str, np.ndarray] = {}
        self._storages: dict[tuple[str, np.dtype], Storage] = {}

    def array(self, entry: Any) -> np.ndarray:
        """Return the array that an entry of the list describes."""
        match entry:
            case {"path_name": str() as path, "use_pickle": False, "tensor_meta": dict() as meta}:
                pass
            case {"use_pickle": True}:
                raise Unsupported("a weight that is pickled, as those of tensor subclasses are")
            case _:
                raise BadFormat("a weight needs its path_name and tensor_meta")
        match meta:
            case {"dtype": int() as code, "sizes": list() as sizes, "strides": list() as strides}:
                offset = _number(meta.get("storage_offset"))
            case _:
                raise BadFormat("a weight's tensor_meta needs dtype, sizes and strides")
        if code not in _DTYPES:
            raise Unsupported(f"a weight of dtype {brief(code)}")
        shape, steps = ([_number(item) for item in items] for items in (sizes, strides))
        storage = self._storage(path, TORCH_DTYPES[_DTYPES[code]])
        return storage.tensor(offset, shape, steps).array()

    def _storage(self, path: str, dtype: np.dtype) -> Storage:
        record = self._records.get(_WEIGHTS + path)
        if record is None or record.deflated:
            raise BadFormat(f"the archive has no uncompressed record {_WEIGHTS + path!r}")
        if (path, dtype) not in self._storages:
            if path not in self._blocks:
                self._blocks[path] = self._file.block(record.start, record.size)
            block = self._blocks[path]
            if self._swap and not self._file.skim:
                block = swapped(block, dtype)
            if dtype.kind == "b" and not self._file.skim:
                block = truth_values(block)
            storage = Storage(path, dtype, record.size // dtype.itemsize, skim=self._file.skim)
            storage.attach(block)
            self._storages[path, dtype] = storage
        return self._storages[path, dtype]


def _number(item: Any) -> Any:
    """Return a size that is written as ``{"as_int": n}``; others depend on the program's input."""
    match item:
        case {"as_int": int() as number}:
            return number
        case _:
            raise BadFormat("a weight's sizes must be numbers")
