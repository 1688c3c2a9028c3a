"""What the studies share: tables, errors as values, copies between libraries, and one way to compare.

The numbers a study prints or draws come from the study's own run through these functions.
"""

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch


class Table:
    """Rows under a header: aligned text in a terminal, a table in a notebook."""

    def __init__(self, header: Sequence[str], rows: Iterable[Sequence[Any]]):
        self.header = tuple(header)
        self.rows = [tuple(_text(cell) for cell in row) for row in rows]
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError(f"every row has {len(self.header)} cells: {self.header}")

    def __repr__(self) -> str:
        rows = [[cell.replace("\n", " ") for cell in row] for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])

    def _repr_markdown_(self) -> str:
        rows = [[_escape(cell) for cell in row] for row in (self.header, *self.rows)]
        rows.insert(1, ["---"] * len(self.header))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _text(cell: Any) -> str:
    if isinstance(cell, bool | np.bool_):
        return "yes" if cell else "-"
    return str(cell)


def _escape(cell: str) -> str:
    for character in "\\|*_<>[]`":
        cell = cell.replace(character, "\\" + character)
    return cell.replace("\n", "<br>")


def versions() -> Table:
    """The versions that the numbers below were made with."""
    rows = [(name, version(name)) for name in ("torch", "jax", "numpy", "optax")]
    return Table(["software", "version"], [("python", platform.python_version()), *rows])


class Outcome(NamedTuple):
    """How a call ended: the type and text of its error, or None and the ``repr`` of its result."""

    error: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.error}: {self.text}" if self.error else f"no error: {self.text}"


def outcome(call: Callable[[], Any]) -> Outcome:
    """Run a call that may raise."""
    try:
        return Outcome(None, repr(call()))
    except Exception as error:
        return Outcome(type(error).__name__, str(error))


def side_by_side(torch: Callable[[], Any], purestate: Callable[[], Any]) -> tuple[Outcome, Outcome]:
    """The outcomes of the same attempt in both libraries, printed one below the other."""
    outcomes = outcome(torch), outcome(purestate)
    for library, result in zip(("torch", "purestate"), outcomes, strict=True):
        print(f"--- {library}\n{result}\n")
    return outcomes


def to_numpy(value: Any) -> np.ndarray:
    """A copy of a tensor or array: later writes on either side do not show on the other."""
    return value.detach().numpy().copy() if isinstance(value, torch.Tensor) else np.array(value)


def arrays(named: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """Copies of named tensors or arrays, in their order."""
    return {name: to_numpy(value) for name, value in dict(named).items()}


def gap(theirs: Any, ours: Any) -> float:
    """The largest absolute difference of two arrays, or of two mappings with the same names."""
    if isinstance(theirs, Mapping):
        if list(theirs) != list(ours):
            raise ValueError(f"names differ: {list(theirs)} and {list(ours)}")
        return float(np.max([gap(theirs[name], ours[name]) for name in theirs], initial=0.0))
    left, right = to_numpy(theirs), to_numpy(ours)
    if left.shape != right.shape:
        raise ValueError(f"shapes differ: {left.shape} and {right.shape}")
    return float(np.max(np.abs(left.astype(np.float64) - right.astype(np.float64)), initial=0.0))


def changed(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float = 0.0) -> list[str]:
    """The names whose arrays differ by more than the tolerance."""
    return [name for name in before if not gap(before[name], after[name]) <= tolerance]
