"""The weights of an exported program (``torch.export.save``, ``.pt2``).

The archive lists its weights as JSON: for each name, a record of raw bytes and the tensor's dtype,
sizes, strides and offset over it. Several names may share a record, which is how ties are kept. The
program itself is not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._dtypes import TORCH_DTYPES
from bridge.checkpoint._json import parse_json
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import Storage
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


def load_program(file: FileBytes, records: dict[str, Record]) -> StateDict:
    """Return the weights of an exported program: its parameters and persistent buffers."""
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
    storages: dict[tuple[str, np.dtype], Storage] = {}
    for name, entry in config.items():
        try:
            result[name] = _weight(file, records, entry, storages)
        except CheckpointError as error:
            raise error.locate(record=record.name, entry=name) from error.__cause__
    return result


def _weight(
    file: FileBytes,
    records: dict[str, Record],
    entry: Any,
    storages: dict[tuple[str, np.dtype], Storage],
) -> np.ndarray:
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
    dtype = TORCH_DTYPES[_DTYPES[code]]
    record = records.get(_WEIGHTS + path)
    if record is None or record.deflated:
        raise BadFormat(f"the archive has no uncompressed record {_WEIGHTS + path!r}")
    key = path, dtype
    if key not in storages:
        storage = Storage(path, None, record.size, skim=file.skim)
        storage.attach(file.block(record.start, record.size))
        storages[key] = storage
    shape, steps = ([_number(item) for item in items] for items in (sizes, strides))
    return storages[key].tensor(offset, shape, steps, dtype).array()


def _number(item: Any) -> Any:
    """Return a size that is written as ``{"as_int": n}``; others depend on the program's input."""
    match item:
        case {"as_int": int() as number}:
            return number
        case _:
            raise BadFormat("a weight's sizes must be numbers")
