"""The safetensors format: a JSON table of contents, then the numbers.

Eight bytes give the length of the header; the header gives each tensor's dtype, shape and place;
the places must tile the rest of the file exactly. Everything is checked before memory is set aside.

The format has no ties. ``safetensors.torch.save_model`` (and ``bridge.save`` with
``ties="canonical"``) writes one name of a tied tensor, and ``{other name: that name}`` into the text
table; :func:`with_ties` gives the other names back. It is called when all files of a checkpoint have
been read, because a table may speak of another file's tensors.

Files are written by ``_write_safetensors.py``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._digests import TEXT
from bridge.checkpoint._dtypes import (
    SAFETENSORS_DTYPES,
    UNSUPPORTED_SAFETENSORS_DTYPES,
    swapped,
)
from bridge.checkpoint._json import parse_json
from bridge.checkpoint._packed import FLOAT4, unpack
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tensors import described, naturals, truth_values
from bridge.checkpoint.errors import BadFormat, CheckpointError, Truncated, Unsupported, brief


MAX_HEADER = 100_000_000
_MAX_DIMS = 64
#: What texts may be there that are no names of tensors, whatever they say: the framework, the digests.
OTHER_TEXTS = frozenset(["format", TEXT])
_METADATA = "__metadata__"
_ENTRY_KEYS = frozenset(["dtype", "shape", "data_offsets"])
_SPACE = b" \t\r\n"


def looks_like_safetensors(file: FileBytes) -> bool:
    """Whether the file starts like one: a plausible length, then an opening brace."""
    if file.size < 9:
        return False
    length = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= length <= MAX_HEADER:
        return False
    start = file.read(8, min(64, file.size - 8)).lstrip(_SPACE)
    return start.startswith(b"{")


def _read_header(file: FileBytes) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(0, 8), "little")
    if length > MAX_HEADER:
        raise BadFormat(f"a header of {length} bytes; {MAX_HEADER} is the limit", record="header")
    if length > file.size - 8:
        raise Truncated(
            f"the header has {length} bytes, but the file has {file.size} in all",
            advice="The download or copy is probably incomplete: fetch the file again",
            record="header",
            offset=8,
        )
    try:
        header = parse_json(file.read(8, length))
    except CheckpointError as error:
        raise error.locate(record="header", offset=8) from error.__cause__
    if not isinstance(header, dict):
        raise BadFormat(f"a JSON {type(header).__name__}, not an object", record="header")
    return header, 8 + length


class Entry(NamedTuple):
    """One tensor of a file: its name, dtype and shape, and where its bytes start in the file."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """How many bytes it takes up in the file."""
        return _nbytes(self.dtype, self.shape)


def load_safetensors(file: FileBytes) -> tuple[StateDict, dict[str, str]]:
    """Return the file's arrays in the order of its header, and its ``__metadata__``."""
    entries, metadata = read_entries(file)
    result = StateDict()
    for entry in entries:
        result[entry.name] = _read_array(file, entry)
    return result, metadata


def with_ties(tensors: StateDict, metadata: Mapping[str, str]) -> StateDict:
    """Return the tensors under the names that were left out, too: the same arrays, at the end.

    Args:
        tensors: What was written.
        metadata: The text table.
    """
    left_out = {
        name: written
        for name, written in metadata.items()
        if written in tensors and name not in tensors and name not in OTHER_TEXTS
    }
    if not left_out:
        return tensors
    result = StateDict(tensors, metadata=tensors.metadata)
    result.update((name, tensors[written]) for name, written in left_out.items())
    return result


def read_entries(file: FileBytes) -> tuple[list[Entry], dict[str, str]]:
    """Return what the file's header says of each tensor, checked, and its ``__metadata__``."""
    header, start = _read_header(file)
    metadata = _header_metadata(header)
    places: list[tuple[int, int]] = []
    entries: list[Entry] = []
    for name, entry in header.items():
        if name == _METADATA:
            continue
        try:
            dtype, shape, begin, end = _entry(entry)
            name.encode("utf-8")
        except (BadFormat, Unsupported) as error:
            raise error.locate(entry=name, record="header") from None
        except UnicodeEncodeError as error:
            raise BadFormat("a name is no valid text", record="header") from error
        places.append((begin, end))
        entries.append(Entry(name, dtype, shape, start + begin))
    _check_tiling(places, file.size - start)
    return entries, metadata


def _header_metadata(header: Mapping[str, Any]) -> dict[str, str]:
    metadata = header.get(_METADATA)
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or any(type(text) is not str for text in metadata.values()):
        raise BadFormat("__metadata__ must map text to text", record="header")
    return metadata


def _entry(entry: Any) -> tuple[np.dtype, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or not entry.keys() >= _ENTRY_KEYS:
        raise BadFormat("an entry must have dtype, shape and data_offsets")
    code = entry["dtype"]
    if type(code) is str and code in UNSUPPORTED_SAFETENSORS_DTYPES:
        raise Unsupported(f"numbers of type {code}, which are packed across bytes")
    if type(code) is not str or code not in SAFETENSORS_DTYPES:
        raise BadFormat(f"an unknown dtype, {brief(code)}")
    dtype = SAFETENSORS_DTYPES[code]
    shape = naturals(entry["shape"], "a shape")
    offsets = naturals(entry["data_offsets"], "data_offsets")
    if len(offsets) != 2:
        raise BadFormat(f"data_offsets must be two numbers, not {len(offsets)}")
    begin, end = offsets
    # First of all: the product of a million sizes takes hours.
    if len(shape) > _MAX_DIMS:
        raise Unsupported(f"{len(shape)} dimensions; NumPy has {_MAX_DIMS} at most")
    nbytes = _nbytes(dtype, shape)
    if end - begin != nbytes:
        raise BadFormat(f"shape {shape} of {code} needs {nbytes} bytes, but has {end - begin}")
    if math.prod(n for n in shape if n) * dtype.itemsize >= 1 << 63:
        raise BadFormat(f"shape {shape} is larger than any array")
    return dtype, shape, begin, end


def _check_tiling(places: list[tuple[int, int]], size: int) -> None:
    at = 0
    for begin, end in sorted(places):
        if begin != at:
            fault = "overlap" if begin < at else "leave a gap"
            raise BadFormat(f"the tensors' places {fault} at byte {min(at, begin)} of the data")
        at = end
    if at > size:
        raise Truncated(
            f"the tensors take {at} bytes, but {size} are left in the file",
            advice="The download or copy is probably incomplete: fetch the file again",
        )
    if at < size:
        raise BadFormat(f"{size - at} bytes at the end of the file belong to no tensor")


def _read_array(file: FileBytes, entry: Entry) -> np.ndarray:
    dtype, shape = entry.dtype, entry.shape
    if file.skim:
        return described(shape, dtype)
    block = file.block(entry.start, entry.nbytes)
    if sys.byteorder == "big":
        block = swapped(block, dtype)
    if dtype == np.bool_:
        block = truth_values(block)
    if dtype == FLOAT4:
        array = unpack(block.view(dtype)).reshape(shape)
    elif 0 in shape:
        array = np.empty(shape, dtype)
    else:
        array = np.ndarray(shape, dtype, cast("Any", block))
    array.flags.writeable = False
    return array


def _nbytes(dtype: np.dtype, shape: tuple[int, ...]) -> int:
    count = math.prod(shape)
    if dtype == FLOAT4:
        if count % 2:
            raise BadFormat(f"{count} numbers of half a byte")
        count //= 2
    return count * dtype.itemsize
