"""Selectors: one way to say which modules, everywhere a function takes ``at=`` or ``where=``.

A selector is a dotted path or glob (``"layer1.*.bn?"``; ``*`` stands for one name, ``**`` for any
number of them), a class, a predicate ``(path, module) -> bool``, or a sequence of selectors. The
root is ``""``.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from purestate._base import Base
from purestate._definition import Definition
from purestate._errors import SelectorError
from purestate._lives import unflatten


Selector = str | type | Callable[[str, Any], bool] | Sequence[Any]


def select(definition: Definition, selector: Selector, leaves: Any = None) -> dict[int, str]:
    """The matching nodes with the path that matched, in tree order.

    Args:
        definition: The tree to select from.
        selector: See above.
        leaves: The arrays, for predicates that look at them; without them a predicate sees modules
            whose arrays are None.

    Raises:
        SelectorError: When a selector, or one of a sequence, matches nothing.
    """
    if not isinstance(selector, str | type) and isinstance(selector, Sequence):
        found = {}
        for part in selector:
            found |= select(definition, part, leaves)
        if not found:
            raise SelectorError("an empty sequence selects no module")
        return {node: found[node] for node in sorted(found)}
    test = _test(definition, selector, leaves)
    matched: dict[int, str] = {}
    for path, node in definition.paths:
        if node not in matched and test(path, node):
            matched[node] = path
    if not matched:
        shown = selector.__name__ if isinstance(selector, type) else repr(selector)
        raise SelectorError(
            f"no module of {definition.cls.__name__} matches {shown}; its modules are "
            f"{', '.join(repr(path) for path, _ in definition.paths[:12])}"
            f"{', ...' if len(definition.paths) > 12 else ''}"
        )
    return matched


def _test(definition: Definition, selector: Any, leaves: Any) -> Callable[[str, int], bool]:
    if isinstance(selector, str):
        if selector in definition.node_at:  # A whole path, whatever characters its names have.
            return lambda path, node: path == selector
        pattern = _glob(selector)
        return lambda path, node: pattern.fullmatch(path) is not None
    if isinstance(selector, type):
        return lambda path, node: issubclass(definition.nodes[node].cls, selector)
    if callable(selector) and not isinstance(selector, Base):
        model = unflatten(definition, leaves or (None,) * len(definition.leaves))
        return lambda path, node: bool(selector(path, model.get_submodule(path)))
    raise SelectorError(
        f"a selector is a path or glob, a class, a predicate (path, module) -> bool, or a sequence "
        f"of them; got {type(selector).__name__}"
    )


def _glob(text: str) -> re.Pattern[str]:
    """A pattern over whole dotted paths; ``*`` and ``?`` stay within one name."""
    *above, last = text.split(".")
    pattern = "".join(r"(?:[^.]+\.)*" if name == "**" else _name(name) + r"\." for name in above)
    return re.compile(pattern + (r"[^.]+(?:\.[^.]+)*" if last == "**" else _name(last)))


def _name(text: str) -> str:
    """The pattern of one name of a glob."""
    stands_for = {"*": "[^.]*", "?": "[^.]"}
    parts: list[str] = re.findall(r"\[[^\]]+\]|.", text)
    pattern = (part if len(part) > 1 else stands_for.get(part) or re.escape(part) for part in parts)
    return "(?=[^.])" * bool(parts) + "".join(pattern)  # No name is empty: "*" is not the root.
