"""What a checkpoint holds, as a listing: the ``purestate inspect`` command.

Nested containers are flattened to dotted names. Each tensor gets a role where its name tells one:
BatchNorm's running statistics are buffers, its batch counter is a counter, whatever lies under an
optimizer's ``state`` belongs to the optimizer, integers are never trained. The totals do not count
buffers as parameters, nor a tied tensor twice. The numbers themselves are not read from the file.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bridge._entries import TENSORS, Entry, brief_text, dtype_name, entries_of
from bridge._tables import count, line, size, table
from bridge.checkpoint._files import read_content
from bridge.checkpoint._records import (
    LocalTensor,
    MetaTensor,
    NestedTensor,
    QuantizedTensor,
    SparseTensor,
)


_BUFFERS = ("running_mean", "running_var")
_COUNTERS = ("num_batches_tracked",)


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a listing.

    Attributes:
        name: Its dotted name.
        shape: Its shape; of a nested tensor, the shape of its buffer.
        dtype: Its dtype's name.
        numbers: How many numbers the file has for it.
        bytes: The size of these.
        kind: "dense", "quantized", "sparse", "nested", "meta" (without numbers) or "distributed" (one
            process's part).
        role: "parameter", "buffer", "counter" or "optimizer".
        tied_to: The first name of the same tensor, or None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    numbers: int
    bytes: int
    kind: str
    role: str
    tied_to: str | None


@dataclass
class Listing:
    """What a file holds.

    Attributes:
        file: Its path.
        format: Its format.
        file_bytes: Its size; of a folder, the size of the files in it.
        tensors: Its tensors, in order.
        others: Name and short text of everything else.
        metadata: For each state dict, by name, the versions of its modules.
        file_metadata: The text table of a safetensors file.
        not_read: The classes and functions that the file mentions; none was imported.
    """

    file: str
    format: str
    file_bytes: int
    tensors: list[TensorRow] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    file_metadata: dict[str, str] = field(default_factory=dict)
    not_read: list[str] = field(default_factory=list)

    def totals(self) -> dict[str, dict[str, int]]:
        """Return, for each role, how many tensors, numbers and bytes; ties count once."""
        result: dict[str, dict[str, int]] = {}
        for row in self.tensors:
            if row.tied_to is None:
                total = result.setdefault(row.role, {"tensors": 0, "numbers": 0, "bytes": 0})
                total["tensors"] += 1
                total["numbers"] += row.numbers
                total["bytes"] += row.bytes
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the listing as JSON values."""
        metadata = {
            name: {str(path): _versions_json(entry) for path, entry in table.items()}
            for name, table in self.metadata.items()
        }
        fields = vars(self) | {"tensors": [vars(row) for row in self.tensors], "metadata": metadata}
        return fields | {"totals": self.totals()}


def inspect_file(path: str | os.PathLike[str]) -> Listing:
    """Return the listing of a checkpoint file, or of a folder of them."""
    content = read_content(path, skim=True)
    listing = Listing(os.fspath(path), content.format, _bytes_at(path))
    listing.file_metadata = content.file_metadata
    listing.not_read = sorted(content.placeholders)
    leaves, listing.metadata = entries_of(content.value)
    first: dict[int, str] = {}
    for entry in leaves:
        if isinstance(entry.value, TENSORS):
            listing.tensors.append(_row(entry, first.setdefault(id(entry.value), entry.name)))
        else:
            listing.others[entry.name] = brief_text(entry.value)
    return listing


def _bytes_at(path: str | os.PathLike[str]) -> int:
    if not os.path.isdir(path):
        return os.stat(path).st_size
    with os.scandir(path) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())


def _row(entry: Entry, first: str) -> TensorRow:
    value: Any = entry.value
    kind, shape, dtype, parts = "dense", (), "", [value]
    match value:
        case np.ndarray():
            shape, dtype = value.shape, dtype_name(value.dtype)
        case QuantizedTensor():
            kind, shape, dtype, parts = "quantized", value.integers.shape, value.dtype, [value.integers]
        case SparseTensor():
            kind, shape, dtype = "sparse", value.shape, dtype_name(value.values.dtype)
            parts = [value.values, *value.indices]
        case NestedTensor():
            kind, shape, dtype = "nested", value.buffer.shape, dtype_name(value.buffer.dtype)
            parts = [value.buffer]
        case MetaTensor():
            kind, shape, dtype, parts = "meta", value.shape, dtype_name(value.dtype), []
        case LocalTensor():
            kind, parts = "distributed", [value.local]
            shape, dtype = value.shape or value.local.shape, dtype_name(value.local.dtype)
    role = "optimizer" if entry.in_optimizer else _role(entry.name, parts[0] if parts else None)
    return TensorRow(
        entry.name,
        tuple(shape),
        dtype,
        math.prod(parts[0].shape) if parts else 0,
        sum(part.nbytes for part in parts),
        kind,
        role,
        None if first == entry.name else first,
    )


def _role(name: str, array: np.ndarray | None) -> str:
    last = name.rpartition(".")[2]
    if last in _COUNTERS:
        return "counter"
    if last in _BUFFERS or (array is not None and array.dtype.kind in "biu"):
        return "buffer"
    return "parameter"


def print_listing(listing: Listing) -> None:
    """Print a listing for people."""
    line(f"{listing.file}: {listing.format}, {size(listing.file_bytes)}")
    if listing.tensors:
        _print_tensors(listing.tensors)
    if listing.others:
        table(("entry", "value"), list(listing.others.items()))
    if listing.file_metadata:
        table(("file metadata", "text"), list(listing.file_metadata.items()))
    for name, metadata in listing.metadata.items():
        line(f"versions{f' of {name}' if name else ''}: {_versions(metadata)}")
    if listing.not_read:
        line(f"classes that were not read: {', '.join(listing.not_read)}")
    for role, total in listing.totals().items():
        tensors, numbers = count(total["tensors"], "tensor"), count(total["numbers"], "number")
        line(f"{role}: {tensors}, {numbers}, {size(total['bytes'])}")


def _print_tensors(rows: list[TensorRow]) -> None:
    columns = {
        "name": [row.name for row in rows],
        "shape": [str(row.shape) for row in rows],
        "dtype": [row.dtype for row in rows],
        "bytes": [f"{row.bytes:,}" for row in rows],
        "role": [row.role for row in rows],
    }
    if any(row.kind != "dense" for row in rows):
        columns["kind"] = ["" if row.kind == "dense" else row.kind for row in rows]
    if any(row.tied_to is not None for row in rows):
        columns["tied to"] = [row.tied_to or "" for row in rows]
    table(list(columns), list(zip(*columns.values(), strict=True)), right=["bytes"])


def _versions(metadata: dict[str, dict[str, Any]]) -> str:
    """Return "2 (3 modules), 1 (10 modules)"."""
    counts = Counter(brief_text(entry.get("version")) for entry in metadata.values())
    return ", ".join(f"{version} ({count(found, 'module')})" for version, found in counts.items())


def _versions_json(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        str(key): value if type(value) is int and abs(value) < 1 << 63 else brief_text(value)
        for key, value in entry.items()
    }
