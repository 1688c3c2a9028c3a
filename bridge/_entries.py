"""What a checkpoint holds, flattened: dotted names to tensors and other values.

Looking at a file and comparing two files begin alike: nested containers are walked in order, and
each value gets the dotted name of its place. A few bytes of file can share one container
exponentially often, or put it into itself, so each container is walked once; where it appears again
stands a reference to its first place. Two places can have one dotted name (``{"a.b": 1, "a": {"b":
2}}``); then all but one get a number, in an order that is the places' own, not the file's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from bridge._state_dict_type import Metadata, StateDict
from bridge.checkpoint._dtypes import COMPLEX32
from bridge.checkpoint._records import RECORDS, Placeholder


#: What a tensor may be: an array, or a record of arrays.
TENSORS = (np.ndarray, *RECORDS)

_PLAIN = (str, int, float, bool, type(None))
_TEXT_LIMIT = 60


class Again(NamedTuple):
    """Stands for a container that has been walked at another place."""

    first: str


class Entry(NamedTuple):
    """A value and its place.

    Attributes:
        name: Its dotted name; "" if it is all that the file holds.
        value: An array, a record, a plain value, or :class:`Again`.
        in_optimizer: Whether it lies in the state dict of an optimizer.
    """

    name: str
    value: Any
    in_optimizer: bool


class Entries(NamedTuple):
    """A flattened checkpoint.

    Attributes:
        leaves: Its values, in order.
        metadata: For each state dict with versions, by name, the versions of its modules.
    """

    leaves: list[Entry]
    metadata: dict[str, Metadata]


def entries_of(value: Any, *, inside: bool = False) -> Entries:
    """Flatten what a file holds.

    Args:
        value: What a reader returned.
        inside: Whether to look inside records and placeholders, too: each is an entry that says what
            it is, followed by its parts.
    """
    walk = _Walk(inside)
    walk.visit(value, _Place("", None, ""), False)
    return Entries(_numbered(walk.leaves, walk.places), walk.metadata)


class _Place(NamedTuple):
    """Where a value lies: its dotted name, the place around it, and the key that leads there."""

    name: str
    around: _Place | None
    key: Any

    def order(self) -> tuple[int, list[tuple[str, str]]]:
        """Return what tells places of one dotted name apart, however a file orders them."""
        steps: list[tuple[str, str]] = []
        place = self
        while place.around is not None:
            steps.append((type(place.key).__name__, _step(place.key)))
            place = place.around
        return len(steps), steps[::-1]


def _numbered(leaves: list[Entry], places: list[_Place]) -> list[Entry]:
    """Give each value that shares its dotted name with others a name of its own."""
    alike: dict[str, list[int]] = {}
    for index, entry in enumerate(leaves):
        alike.setdefault(entry.name, []).append(index)
    taken = set(alike)
    result = list(leaves)
    for name, indices in alike.items():
        if len(indices) == 1:
            continue
        count = 1
        for index in sorted(indices, key=lambda index: places[index].order())[1:]:
            count += 1
            while f"{name} ({count})" in taken:
                count += 1
            taken.add(f"{name} ({count})")
            result[index] = leaves[index]._replace(name=f"{name} ({count})")
    return result


class _Walk:
    def __init__(self, inside: bool) -> None:
        self.leaves: list[Entry] = []
        self.places: list[_Place] = []
        self.metadata: dict[str, Metadata] = {}
        self._inside = inside
        self._seen: dict[int, str] = {}
        self._plain: dict[int, bool] = {}

    def visit(self, value: Any, place: _Place, in_optimizer: bool) -> None:
        if isinstance(value, np.ndarray):
            self._leaf(place, value, in_optimizer)
        elif isinstance(value, dict | list | tuple):
            self._container(value, place, in_optimizer)
        elif self._inside and isinstance(value, (*RECORDS, Placeholder)):
            self._record(value, place, in_optimizer)
        else:
            self._leaf(place, value, in_optimizer)

    def _leaf(self, place: _Place, value: Any, in_optimizer: bool) -> None:
        self.leaves.append(Entry(place.name, value, in_optimizer))
        self.places.append(place)

    def _container(self, value: Any, place: _Place, in_optimizer: bool) -> None:
        # A long list can be met often, so it is looked through once.
        if id(value) not in self._plain:
            self._plain[id(value)] = not value or is_plain(value)
        if self._plain[id(value)]:
            self._leaf(place, value, in_optimizer)
        elif self._first(value, place, in_optimizer):
            if isinstance(value, StateDict) and value.metadata:
                self.metadata[place.name] = value.metadata
            in_optimizer = in_optimizer or is_optimizer(value)
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            self._pairs(pairs, place, in_optimizer)

    def _record(self, value: Any, place: _Place, in_optimizer: bool) -> None:
        if self._first(value, place, in_optimizer):
            what = value.path if isinstance(value, Placeholder) else type(value).__name__
            self._leaf(place, what, in_optimizer)
            parts = [
                (part.name, getattr(value, part.name)) for part in fields(value) if part.name != "path"
            ]
            self._pairs(parts, place, in_optimizer)

    def _first(self, value: Any, place: _Place, in_optimizer: bool) -> bool:
        # By the object alone: another place, or the one around it, may have the same dotted name.
        if id(value) in self._seen:
            self._leaf(place, Again(self._seen[id(value)]), in_optimizer)
            return False
        self._seen[id(value)] = place.name
        return True

    def _pairs(self, pairs: Iterable[tuple[Any, Any]], place: _Place, in_optimizer: bool) -> None:
        for key, item in pairs:
            step = _step(key)
            name = f"{place.name}.{step}" if place.name else step
            self.visit(item, _Place(name, place, key), in_optimizer)


def _step(key: Any) -> str:
    return key if type(key) is str else brief_text(key)


def is_plain(value: Any) -> bool:
    """Whether a container is a list that is short to print, or counts: nothing to look into."""
    if isinstance(value, Counter):
        return all(isinstance(count, _PLAIN) for count in value.values())
    return isinstance(value, list | tuple) and all(isinstance(item, _PLAIN) for item in value)


def is_optimizer(value: Any) -> bool:
    """Whether a container is the state dict of an optimizer."""
    return isinstance(value, dict) and {"state", "param_groups"} <= value.keys()


def dtype_name(dtype: np.dtype) -> str:
    """Return a dtype's name as PyTorch has it."""
    return "complex32" if dtype == COMPLEX32 else dtype.name


def brief_text(value: Any) -> str:
    """Return a short text for any value from a file."""
    if isinstance(value, Again):
        return f"the same as {value.first or 'the whole file'}"
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > _TEXT_LIMIT:
        return f"{type(value).__name__} of {len(value)} items"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes | bytearray):
        value = value[: _TEXT_LIMIT + 1]
    text = repr(value)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 3] + "..."
