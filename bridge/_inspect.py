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
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridge._state_dict_type import StateDict
from bridge.checkpoint._files import read_content


_BUFFERS = ("running_mean", "running_var")
_COUNTERS = ("num_batches_tracked",)
_PLAIN_LIMIT = 60


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a listing.

    Attributes:
        name: Its dotted name.
        shape: Its shape.
        dtype: Its dtype's name.
        bytes: The size of its numbers.
        role: "parameter", "buffer", "counter" or "optimizer".
        tied_to: The first name of the same tensor, or None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    role: str
    tied_to: str | None


@dataclass
class Listing:
    """What a file holds.

    Attributes:
        file: Its path.
        format: Its format.
        file_bytes: Its size.
        tensors: Its tensors, in order.
        others: Name and short text of everything else.
        metadata: For each state dict, by name, the versions of its modules.
        file_metadata: The text table of a safetensors file.
    """

    file: str
    format: str
    file_bytes: int
    tensors: list[TensorRow] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    file_metadata: dict[str, str] = field(default_factory=dict)

    def totals(self) -> dict[str, dict[str, int]]:
        """Return, for each role, how many tensors, numbers and bytes; ties count once."""
        result: dict[str, dict[str, int]] = {}
        for row in self.tensors:
            if row.tied_to is None:
                total = result.setdefault(row.role, {"tensors": 0, "numbers": 0, "bytes": 0})
                total["tensors"] += 1
                total["numbers"] += math.prod(row.shape)
                total["bytes"] += row.bytes
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the listing as JSON values."""
        return asdict(self) | {"totals": self.totals()}


def inspect_file(path: str | os.PathLike[str]) -> Listing:
    """Return the listing of a checkpoint file."""
    content = read_content(path, skim=True)
    listing = Listing(os.fspath(path), content.format, os.stat(path).st_size)
    listing.file_metadata = content.file_metadata
    _Lister(listing).visit(content.value, "", in_optimizer=False)
    return listing


class _Lister:
    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._arrays: dict[int, str] = {}
        self._containers: dict[int, str] = {}

    def visit(self, value: Any, name: str, *, in_optimizer: bool) -> None:
        if isinstance(value, np.ndarray):
            self._tensor(value, name, in_optimizer=in_optimizer)
        elif isinstance(value, dict | list | tuple) and not isinstance(value, Counter):
            self._container(value, name, in_optimizer=in_optimizer)
        else:
            self._listing.others[name] = _brief(value)

    def _tensor(self, array: np.ndarray, name: str, *, in_optimizer: bool) -> None:
        first = self._arrays.setdefault(id(array), name)
        role = "optimizer" if in_optimizer else _role(name, array)
        tied_to = None if first == name else first
        self._listing.tensors.append(
            TensorRow(name, array.shape, array.dtype.name, array.nbytes, role, tied_to)
        )

    def _container(self, value: Any, name: str, *, in_optimizer: bool) -> None:
        # A few bytes of file can share one container exponentially often; list each one once.
        first = self._containers.setdefault(id(value), name)
        if first != name:
            self._listing.others[name] = f"the same as {first or 'the whole file'}"
            return
        if isinstance(value, StateDict) and value.metadata:
            self._listing.metadata[name] = value.metadata
        pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        if not pairs or _is_plain(value):
            self._listing.others[name] = _brief(value)
            return
        optimizer = isinstance(value, dict) and {"state", "param_groups"} <= value.keys()
        for key, item in pairs:
            inner = f"{name}.{key}" if name else str(key)
            self.visit(item, inner, in_optimizer=in_optimizer or optimizer)


def _is_plain(value: Any) -> bool:
    """Whether a list is short to print, such as an optimizer's betas or parameter numbers."""
    return isinstance(value, list | tuple) and all(
        isinstance(item, str | int | float | bool | None) for item in value
    )


def _role(name: str, array: np.ndarray) -> str:
    last = name.rpartition(".")[2]
    if last in _COUNTERS:
        return "counter"
    if last in _BUFFERS or array.dtype.kind in "biu":
        return "buffer"
    return "parameter"


def _brief(value: Any) -> str:
    if isinstance(value, dict | list | tuple | set) and len(value) > _PLAIN_LIMIT:
        return f"{type(value).__name__} of {len(value)} items"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes | bytearray):
        value = value[: _PLAIN_LIMIT + 1]
    text = repr(value)
    return text if len(text) <= _PLAIN_LIMIT else text[: _PLAIN_LIMIT - 3] + "..."


def print_listing(listing: Listing, console: Console) -> None:
    """Print a listing for people."""
    console.print(
        _plain(f"{listing.file}: {listing.format}, {_size(listing.file_bytes)}"), soft_wrap=True
    )
    if listing.tensors:
        console.print(_tensor_table(listing.tensors))
    if listing.others:
        console.print(_two_columns("entry", "value", list(listing.others.items())))
    if listing.file_metadata:
        console.print(_two_columns("file metadata", "text", list(listing.file_metadata.items())))
    for name, metadata in listing.metadata.items():
        console.print(_plain(f"versions{f' of {name}' if name else ''}: {_versions(metadata)}"))
    for role, total in listing.totals().items():
        console.print(
            _plain(
                f"{role}: {total['tensors']} tensors, {total['numbers']:,} numbers, "
                f"{_size(total['bytes'])}"
            )
        )


def _tensor_table(rows: list[TensorRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "shape", "dtype"):
        table.add_column(heading, overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("role")
    ties = any(row.tied_to for row in rows)
    if ties:
        table.add_column("tied to", overflow="fold")
    for row in rows:
        cells = [row.name, str(row.shape), row.dtype, f"{row.bytes:,}", row.role]
        cells += [row.tied_to or ""] if ties else []
        table.add_row(*(_plain(cell) for cell in cells))
    return table


def _two_columns(left: str, right: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(left, overflow="fold")
    table.add_column(right, overflow="fold")
    for name, text in rows:
        table.add_row(_plain(name), _plain(text))
    return table


def _plain(text: str) -> Text:
    """Make text from a file harmless: no markup, no control characters for the terminal."""
    return Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


def _versions(metadata: dict[str, dict[str, Any]]) -> str:
    """Return "2 (3 modules), 1 (10 modules)"."""
    counts = Counter(_brief(entry.get("version")) for entry in metadata.values())
    return ", ".join(
        f"{version} ({count} module{'s' if count > 1 else ''})" for version, count in counts.items()
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"
