"""audit: where each thing a model holds belongs. Does it train, is it saved, does it move?

The three questions every introduction to ``nn.Module`` asks, answered for every parameter, buffer
and plain attribute, with what is unusual about it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from purestate._abstract import UninitializedArray
from purestate._base import Base
from purestate._definition import Definition
from purestate._frozen import FrozenDict, FrozenList
from purestate._lives import flatten


class Row(NamedTuple):
    """One name of a model.

    Attributes:
        name: The dotted name.
        kind: ``"parameter"``, ``"buffer"`` or ``"constant"``.
        trains: Whether gradients reach it.
        saved: Whether it is in the ``state_dict``.
        moves: Whether ``bridge.to`` takes it along.
        shape: The shape, or None for what has none: not an array, or one of a lazy layer.
        dtype: The dtype as text, or the type of what is not an array.
        note: What is unusual, and what it costs.
    """

    name: str
    kind: str
    trains: bool
    saved: bool
    moves: bool
    shape: tuple[int, ...] | None
    dtype: str
    note: str


class Audit(tuple[Row, ...]):
    """The rows of an audit; printed as a table."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            found = [row for row in self if row.name == key]
            if not found:
                raise KeyError(key)
            return found[0]
        return super().__getitem__(key)

    def table(self, title: str = "") -> Table:
        """The audit as a rich table."""
        table = Table(title=title or None)
        for column in ("name", "kind", "trains", "saved", "moves", "shape", "dtype", "note"):
            table.add_column(column, overflow="fold")
        for row in self:
            answers = ["yes" if answer else "-" for answer in (row.trains, row.saved, row.moves)]
            shape = "" if row.shape is None else str(list(row.shape))
            table.add_row(row.name, row.kind, *answers, shape, row.dtype, row.note)
        return table

    def __repr__(self) -> str:
        console = Console(width=120, color_system=None, force_jupyter=False)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get()


def audit(model: Any) -> Audit:
    """Every parameter, buffer and array- or module-valued plain attribute of a model.

    Returns:
        The rows in ``state_dict`` order, constants after them; ``audit(model)["fc.weight"]`` is one.
    """
    leaves, definition = flatten(model)
    return Audit([*_registered(definition, leaves), *_constants(definition, model)])


def _registered(definition: Definition, leaves: tuple[Any, ...]) -> Iterator[Row]:
    for entry in definition.entries:
        leaf, array = definition.leaves[entry.leaf], leaves[entry.leaf]
        first = definition.names[entry.leaf]
        notes = []
        if entry.name != first:
            notes.append(f"tied to {first}")
        if entry.kind == "parameter" and not leaf.trainable:
            notes.append("frozen")
        if leaf.stored_dtype is not None:
            notes.append(f"{leaf.stored_dtype} in files")
        lazy = isinstance(array, UninitializedArray)
        if lazy:
            notes.append("lazy: its shape follows from the first input")
        if not hasattr(array, "dtype"):
            raise TypeError(f"'{entry.name}' holds {type(array).__name__}, not an array")
        yield Row(
            entry.name,
            entry.kind,
            leaf.trainable,
            entry.persistent,
            True,
            None if lazy else tuple(array.shape),
            str(array.dtype),
            ", ".join(notes),
        )


def _constants(definition: Definition, model: Any) -> Iterator[Row]:
    for node, path in definition.path_of.items():
        prefix = f"{path}." if path else ""
        for attribute in definition.nodes[node].attributes:
            for suffix, value in _held(attribute.value):
                yield _constant(prefix + attribute.name + suffix, value)


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """The arrays and modules in a plain attribute, with how to reach each."""
    if isinstance(value, jax.Array | np.ndarray | Base):
        yield "", value
    elif isinstance(value, FrozenList | tuple):
        for index, item in enumerate(value):
            yield from ((f"[{index}]{suffix}", held) for suffix, held in _held(item))
    elif isinstance(value, FrozenDict):
        for key, item in value.items():
            yield from ((f"[{key!r}]{suffix}", held) for suffix, held in _held(item))


def _constant(name: str, value: Any) -> Row:
    if isinstance(value, Base):
        note = "a module outside of the tree: register it, or hold modules in nn.ModuleList"
        return Row(name, "constant", False, False, False, None, type(value).__name__, note)
    note = f"{value.nbytes} bytes in every compiled program; register_buffer makes it an argument"
    return Row(name, "constant", False, False, False, tuple(value.shape), str(value.dtype), note)
