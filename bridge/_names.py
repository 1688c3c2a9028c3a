"""Names of a checkpoint brought to the names of a model, with an account of what was left over.

Nothing is renamed by guess. A rule that matched nothing and a name that no rule touched are both in
the report, and with a model given, so are the names that still do not meet.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bridge._state_dict_type import StateDict


Rule = tuple[str | re.Pattern[str], str]
Rules = Mapping[str, str] | Iterable[Rule] | Callable[[str], str]


class RenameReport(NamedTuple):
    """What a renaming did.

    Attributes:
        renamed: ``{old name: new name}`` of what changed.
        untouched: The names no rule matched.
        unused_rules: The rules that matched no name.
        missing: With a model: its names that the result lacks.
        unexpected: With a model: names of the result that it lacks.
    """

    renamed: dict[str, str]
    untouched: list[str]
    unused_rules: list[str]
    missing: list[str]
    unexpected: list[str]


def rename(sd: Mapping[str, Any], rules: Rules, *, model: Any = None) -> tuple[StateDict, RenameReport]:
    """A ``state_dict`` under other names, in the same order.

    Args:
        sd: The names to change; stays as it is.
        rules: ``{old: new}`` or pairs, tried in order, the first that matches applies. ``old`` is a
            whole name, a module's path (everything below it moves; ``{"module": ""}`` takes the path
            away), a prefix that ends in a dot, or a compiled regular expression (``re.sub`` on the
            name). Or a function of the name.
        model: Report what still does not meet this model's names.

    Returns:
        ``(StateDict, RenameReport)``. Versions in the metadata move with their modules.

    Raises:
        TypeError: For rules of another kind, and names that are no text.
        ValueError: When two names become one, or a new name has an empty part (``".weight"``).
    """
    check_names(sd)
    apply, used, count = _compiled(rules)
    renamed = {name: apply(name) for name in sd}
    for old, new in renamed.items():
        if new != old and "" in new.split(".") and "" not in old.split("."):
            raise ValueError(_empty_part(old, new))
    by_new: dict[str, str] = {}
    for old, new in renamed.items():
        if new in by_new:
            raise ValueError(f"'{by_new[new]}' and '{old}' would both become '{new}'")
        by_new[new] = old
    result = StateDict((new, sd[old]) for old, new in renamed.items())
    unused = [label for index, label in enumerate(count) if index not in used]
    metadata = getattr(sd, "metadata", {})
    result.metadata = {_path(apply, path): entry for path, entry in metadata.items()}
    expected = [] if model is None else _persistent_names(model)
    known = set(expected)
    report = RenameReport(
        {old: new for old, new in renamed.items() if old != new},
        [old for old, new in renamed.items() if old == new],
        unused,
        [name for name in expected if name not in result],
        [] if model is None else [name for name in result if name not in known],
    )
    return result, report


def strip_prefix(
    sd: Mapping[str, Any], prefix: str, *, model: Any = None
) -> tuple[StateDict, RenameReport]:
    """A ``state_dict`` without a prefix, in the same order.

    The pure form of ``torch.nn.modules.utils.consume_prefix_in_state_dict_if_present``.

    Args:
        sd: The names to change; stays as it is.
        prefix: With its dot, as ``"module."``; names without it stay.
        model: Report what still does not meet this model's names.
    """
    return rename(sd, [(re.compile("^" + re.escape(prefix)), "")], model=model)


def consume_prefix_in_state_dict_if_present(sd: Mapping[str, Any], prefix: str) -> StateDict:
    """A ``state_dict`` without a prefix, in torch's order: names that change go last.

    The function of this name in ``torch.nn.modules.utils`` changes its argument; this one does not.
    ``strip_prefix`` keeps the order and reports.

    Args:
        sd: The names to change; stays as it is.
        prefix: With its dot, as ``"module."``.
    """
    result = StateDict(sd)
    for name in [name for name in result if name.startswith(prefix)]:
        result[name[len(prefix) :]] = result.pop(name)
    metadata = result.metadata
    for path in list(metadata):
        # Torch takes the module with exactly this name for the root.
        if path == "":
            continue
        if path == prefix.removesuffix(".") or path.startswith(prefix):
            metadata[path[len(prefix) :]] = metadata.pop(path)
    return result


def check_names(sd: Iterable[Any]) -> None:
    """Refuse names that are no text: what they are in is no state dict."""
    for name in sd:
        if not isinstance(name, str):
            raise TypeError(
                f"a state_dict maps names to arrays, got the key {name!r}; an optimizer's or a "
                "whole training checkpoint holds the model's under a key of its own"
            )


def checked(rules: Rules) -> list[Rule] | Callable[[str], str]:
    """Return rules that can be gone through twice.

    Raises:
        TypeError: If they are of another kind.
    """
    if callable(rules):
        return rules
    if isinstance(rules, str | bytes) or not isinstance(rules, Iterable):
        raise TypeError(f"rename takes rules, not {rules!r}\n    write: {_WRITE}")
    pairs: list[Any] = list(rules.items() if isinstance(rules, Mapping) else rules)
    for pair in pairs:
        # A text of two letters would pass for a pair.
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not _is_rule(*pair):
            raise TypeError(
                f"a rule is a pair of an old and a new name, not {pair!r}\n    write: {_WRITE}"
            )
    return pairs


_WRITE = "{'old': 'new'}, or [(re.compile('old'), 'new')], or a function of the name"


def _is_rule(old: Any, new: Any) -> bool:
    if isinstance(old, re.Pattern):
        return isinstance(old.pattern, str) and (isinstance(new, str) or callable(new))
    return isinstance(old, str) and isinstance(new, str)


def _empty_part(old: str, new: str) -> str:
    path = old.partition(".")[0]
    return (
        f"'{old}' would become '{new}', which has an empty part\n"
        f"    write: {{{path!r}: ''}} to take {path!r} away with its dot; "
        "in an expression the dot is written, too: re.compile(r'^module\\.')"
    )


def _compiled(rules: Rules) -> tuple[Callable[[str], str], set[int], list[str]]:
    pairs = checked(rules)
    if callable(pairs):
        return _answering(pairs), set(), []
    used: set[int] = set()

    def apply(name: str) -> str:
        for index, (old, new) in enumerate(pairs):
            replaced = _replace(name, old, new)
            if replaced is not None:
                used.add(index)
                return replaced
        return name

    labels = [old.pattern if isinstance(old, re.Pattern) else old for old, _ in pairs]
    return apply, used, labels


def _answering(function: Callable[[str], str]) -> Callable[[str], str]:
    """A function of names that is known to give names."""

    def apply(name: str) -> str:
        new: Any = function(name)
        if not isinstance(new, str):
            raise TypeError(
                f"the function that renames is to return a name for {name!r}, not {new!r}\n"
                "    write: return name, for those that stay"
            )
        return new

    return apply


def _replace(name: str, old: str | re.Pattern[str], new: str) -> str | None:
    if isinstance(old, re.Pattern):
        replaced, hits = old.subn(new, name)
        return replaced if hits else None
    if name == old:
        return new
    if old.endswith("."):
        return new + name[len(old) :] if name.startswith(old) else None
    if not name.startswith(f"{old}."):
        return None
    # A path may be written with its dot or without, and the empty one is the root's.
    path = new.removesuffix(".")
    return f"{path}.{name[len(old) + 1 :]}" if path else name[len(old) + 1 :]


def _path(apply: Callable[[str], str], path: str) -> str:
    """The module path after renaming, by what happens to a name right below it."""
    moved = apply(f"{path}.x" if path else "x")
    return moved.rpartition(".")[0]


def _persistent_names(model: Any) -> list[str]:
    # Names alone need no model; the command line renames without waiting for JAX.
    from purestate._lives import flatten

    _, definition = flatten(model)
    return [entry.name for entry in definition.entries if entry.persistent]
