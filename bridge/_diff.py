"""Two checkpoints compared: the ``purestate diff`` command.

Both are flattened to dotted names; what has a name on both sides is compared. Structure is names,
shapes, dtypes, order, ties, the versions of modules and everything that is not a tensor: the other
values of a PyTorch file, the text table of a safetensors file. Not every format has all of it: a
safetensors file has no ties, no versions and no order that means anything (its usual writers sort), a
program has no versions, and only safetensors files have a text table. What one side has no place for is
not compared, and that is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bridge._diff_numbers import EXACT, Apart, Tolerance, compare
from bridge._entries import brief_text, dtype_name, entries_of
from bridge._state_dicts import at, find
from bridge._tables import count, line, table
from bridge._text_table import texts_of
from bridge.checkpoint._content import Content
from bridge.checkpoint._files import read_content
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat


_STRUCTURE = frozenset(["order", "ties", "versions"])


@dataclass
class Side:
    """One of two flattened checkpoints.

    Attributes:
        tensors: Name to array, in order.
        others: Name to anything else.
        versions: Name of a state dict and path of a module to what is said of it.
        keeps: Which of "order", "ties" and "versions" mean something in its format.
    """

    tensors: dict[str, np.ndarray]
    others: dict[str, Any]
    versions: dict[str, dict[str, Any]]
    keeps: frozenset[str]

    def ties(self, among: Collection[str]) -> set[tuple[str, ...]]:
        """Return the groups of names, of some, that are one tensor."""
        groups: dict[int, list[str]] = {}
        for name, array in self.tensors.items():
            if name in among:
                groups.setdefault(id(array), []).append(name)
        return {tuple(sorted(group)) for group in groups.values() if len(group) > 1}


@dataclass
class Differences:
    """What differs between two checkpoints, A and B.

    Attributes:
        a: The path of A.
        b: The path of B.
        tolerance: What numbers may differ by; None if their bits are to be the same.
        ignored: Kinds of differences that do not count.
        not_compared: What a format has no place for.
        equal_tensors: How many tensors have equal numbers (within the tolerance, if there is one).
        only_a: Names, of tensors or others, that B lacks.
        only_b: Names that A lacks.
        shapes: Names to the two shapes.
        dtypes: Names to the two dtypes.
        order: Whether the common tensors are in another order.
        ties: Groups of names that are one tensor on one side ("a" or "b") only.
        versions: Places of modules to the two versions.
        others: Names to short texts of the two values.
        file_metadata: Keys of the text tables to short texts of the two texts.
        numbers: Names to how far the tensors are apart, the worst first.
    """

    a: str
    b: str
    tolerance: Tolerance | None
    ignored: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    equal_tensors: int = 0
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    dtypes: dict[str, tuple[str, str]] = field(default_factory=dict)
    order: bool = False
    ties: list[tuple[str, list[str]]] = field(default_factory=list)
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)
    others: dict[str, tuple[str, str]] = field(default_factory=dict)
    file_metadata: dict[str, tuple[str, str]] = field(default_factory=dict)
    numbers: dict[str, Apart] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether nothing differs that counts."""
        kinds = ("dtypes", "order", "ties", "versions", "others", "file_metadata")
        counted = [getattr(self, kind) for kind in kinds if kind not in self.ignored]
        numbers = map(self.counts, self.numbers)
        return not any([self.only_a, self.only_b, self.shapes, *counted, *numbers])

    def counts(self, name: str) -> bool:
        """Whether the numbers of a tensor differ by more than is tolerated."""
        apart = self.numbers[name]
        return bool(apart.differ if self.tolerance is None else apart.beyond)

    def to_json(self) -> dict[str, Any]:
        """Return the differences as JSON values; infinity is the text "inf"."""
        numbers = {name: _json_numbers(apart) for name, apart in self.numbers.items()}
        tolerance = None if self.tolerance is None else self.tolerance._asdict()
        return {"equal": self.equal} | vars(self) | {"tolerance": tolerance, "numbers": numbers}


def _json_numbers(apart: Apart) -> dict[str, Any]:
    return {key: value if value != np.inf else "inf" for key, value in vars(apart).items()}


def diff(
    a: str,
    b: str,
    tolerance: Tolerance | None = None,
    *,
    key: str | None = None,
    ignored: Iterable[str] = (),
) -> Differences:
    """Compare two checkpoint files or folders.

    Args:
        a: The path of A.
        b: The path of B.
        tolerance: What numbers may differ by; None if their bits are to be the same.
        key: The part of the files to compare, of each that has it.
        ignored: Kinds of differences that do not count: "dtypes", "order", "ties", "versions",
            "others" (with text tables).

    Raises:
        CheckpointError: If one of them cannot be read.
    """
    contents = [read_content(path, copy=False) for path in (a, b)]
    values = [content.value for content in contents]
    if key is not None:
        paths = [find(value, key) for value in values]
        if paths == [None, None]:
            raise BadFormat(f"neither file has a {key!r}", advice="purestate inspect lists the names")
        values = [
            value if path is None else at(value, path)
            for value, path in zip(values, paths, strict=True)
        ]
    left, right = (
        _side(value, content.format, ignored) for value, content in zip(values, contents, strict=True)
    )
    result = Differences(a, b, tolerance, list(ignored))
    _compare_structure(left, right, result)
    if key is None and "others" not in ignored:
        _compare_texts(contents[0], contents[1], result)
    _compare_numbers(left, right, result)
    return result


def _side(value: Any, kind: str, ignored: Iterable[str]) -> Side:
    leaves, metadata = entries_of(value, inside=True)
    # A file of an empty dictionary has no entries; the dictionary would be one without a name.
    leaves = [e for e in leaves if not (e.value is value and isinstance(value, dict))]
    arrays = (np.ndarray, np.generic)
    others = {e.name: e.value for e in leaves if not isinstance(e.value, arrays)}
    return Side(
        {e.name: _native(e.value) for e in leaves if isinstance(e.value, arrays)},
        {} if "others" in ignored else others,
        {
            f"{name}.{path}".strip(".") or "(root)": entry
            for name, table_ in metadata.items()
            for path, entry in table_.items()
        },
        _keeps(kind),
    )


def _keeps(kind: str) -> frozenset[str]:
    """Return what of the structure a format has a place for."""
    if kind in ("TorchScript", "exported program"):
        return _STRUCTURE - {"versions"}
    flat = any(word in kind for word in ("safetensors", "distributed", "DCP"))
    return frozenset() if flat else _STRUCTURE


def _native(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _compare_structure(left: Side, right: Side, result: Differences) -> None:
    names_left, names_right = ({*side.tensors, *side.others} for side in (left, right))
    result.only_a = [name for name in [*left.tensors, *left.others] if name not in names_right]
    result.only_b = [name for name in [*right.tensors, *right.others] if name not in names_left]
    for name in [*left.others, *left.tensors]:
        if name not in names_right:
            continue
        one, other = (side.tensors.get(name, side.others.get(name)) for side in (left, right))
        if not (name in left.tensors and name in right.tensors) and not _same(one, other):
            result.others[name] = _text(one), _text(other)
    common = [name for name in left.tensors if name in right.tensors]
    kept = left.keeps & right.keeps
    result.not_compared = sorted(_STRUCTURE - kept)
    if "order" in kept:
        result.order = common != [name for name in right.tensors if name in left.tensors]
    if "ties" in kept:
        among = set(common)
        ties = left.ties(among), right.ties(among)
        result.ties = [("a", list(group)) for group in sorted(ties[0] - ties[1])]
        result.ties += [("b", list(group)) for group in sorted(ties[1] - ties[0])]
    if "versions" in kept:
        for path in {**left.versions, **right.versions}:
            one, other = left.versions.get(path), right.versions.get(path)
            if not _same(one, other):
                result.versions[path] = _version(one), _version(other)


def _compare_texts(a: Content, b: Content, result: Differences) -> None:
    left, right = texts_of(a), texts_of(b)
    tables = ["safetensors" in content.format for content in (a, b)]
    if all(tables):
        for key in {**left, **right}:
            one, other = left.get(key), right.get(key)
            if one != other:
                result.file_metadata[key] = _text_or_none(one), _text_or_none(other)
    elif any(tables) and left != right:
        result.not_compared.append("file metadata")


def _text_or_none(text: str | None) -> str:
    return "none" if text is None else brief_text(text)


def _compare_numbers(left: Side, right: Side, result: Differences) -> None:
    found: dict[str, Apart] = {}
    for name, one in left.tensors.items():
        other = right.tensors.get(name)
        if other is None:
            continue
        if one.dtype != other.dtype:
            result.dtypes[name] = dtype_name(one.dtype), dtype_name(other.dtype)
        if one.shape != other.shape:
            result.shapes[name] = one.shape, other.shape
            continue
        apart = compare(one, other, result.tolerance or EXACT)
        if apart.differ:
            found[name] = apart
    worst = sorted(found.items(), key=lambda item: _badness(item[1]), reverse=True)
    result.numbers = dict(worst)
    common = sum(name in right.tensors and name not in result.shapes for name in left.tensors)
    result.equal_tensors = common - sum(map(result.counts, result.numbers))


def _badness(apart: Apart) -> tuple[bool, int | float, int]:
    return apart.nan_differ > 0, apart.max_delta, apart.differ


def _same(a: Any, b: Any) -> bool:
    """Whether two plain values are equal, with their types; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, set | frozenset):
        return a == b or sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, float | complex | Placeholder):
        return repr(a) == repr(b)
    return bool(a == b)


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a tensor of shape {value.shape}"
    return brief_text(value)


def _version(entry: Any) -> str:
    if isinstance(entry, dict) and entry.keys() == {"version"}:
        return brief_text(entry["version"])
    return "none" if entry is None else brief_text(entry)


def print_differences(found: Differences) -> None:
    """Print differences for people."""
    for title, names in ((f"only in {found.a}", found.only_a), (f"only in {found.b}", found.only_b)):
        if names:
            table((title,), [(name,) for name in names])
    pairs = {
        "shape": found.shapes,
        "dtype": found.dtypes,
        "version of": found.versions,
        "entry": found.others,
        "file metadata": found.file_metadata,
    }
    for title, rows in pairs.items():
        if rows:
            table((title, "A", "B"), [(name, str(a), str(b)) for name, (a, b) in rows.items()])
    if found.order:
        line("the tensors are in another order")
    for side, group in found.ties:
        line(f"tied in {side.upper()} only: {', '.join(group)}")
    if found.numbers:
        _print_numbers(found)
    if found.not_compared:
        line(f"not compared, since one of the formats has none: {', '.join(found.not_compared)}")
    if found.ignored:
        line(f"ignored: {', '.join(found.ignored)}")
    how = "bit by bit" if found.tolerance is None else "within the tolerance"
    differing = sum(map(found.counts, found.numbers))
    text = f"{count(found.equal_tensors, 'tensor')} equal {how}"
    line(f"{text}, {count(differing, 'tensor')} not" if differing else text)
    line("equal" if found.equal else "different")


def _print_numbers(found: Differences) -> None:
    headings = ["tensor", "max |delta|", "max relative", "differ", "of"]
    rows = [
        [name, f"{a.max_delta:.6g}", f"{a.max_relative:.3g}", f"{a.differ:,}", f"{a.numbers:,}"]
        for name, a in found.numbers.items()
    ]
    if any(apart.nan_differ for apart in found.numbers.values()):
        headings.append("NaN on one side")
        for row, apart in zip(rows, found.numbers.values(), strict=True):
            row.append(f"{apart.nan_differ:,}")
    if found.tolerance is not None:
        headings.append("beyond")
        for row, apart in zip(rows, found.numbers.values(), strict=True):
            row.append(f"{apart.beyond:,}")
    table(headings, rows, right=headings[1:])
