"""The state dict for a model in what a file holds, and names that almost meet.

Which dictionary it is, is decided in `_state_dicts.py`; here the model's names help, and an error says
the line to write.

Wrappers add prefixes to names (``module.`` of data parallelism, ``_orig_mod.`` of ``torch.compile``,
``model.`` of Lightning). A prefix that makes the names meet is proposed in the error, with the line
to write. It is never taken off in silence: a name decides which layer gets which numbers.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from bridge._entries import brief_text
from bridge._state_dicts import Path, at, dotted, find, listed, meant, state_dicts
from bridge.checkpoint import BadFormat, Unsupported


Keys = tuple[str, ...]

_SHOWN = 8
_PREFIXES = 4
# What wrappers insert anywhere in a name.
_WRAPPERS = r"_orig_mod\.|_fsdp_wrapped_module\.|_checkpoint_wrapped_module\."


def find_state(
    value: Any,
    path: str,
    expected: Collection[str],
    renamed: Callable[[str], str],
    key: str | None = None,
) -> tuple[Mapping[str, Any], Keys]:
    """Return the state dict in what a file holds, and the keys that lead to it.

    Args:
        value: What the file holds.
        path: The file, for messages.
        expected: The model's names.
        renamed: What a name of the file is called in the model.
        key: Where the state dict is, as ``"ema.model"``; None to find it.

    Raises:
        BadFormat: If there is none.
        Unsupported: If there are several.
    """
    if key is not None:
        return _named(value, path, key)

    def meets(state: Mapping[str, Any]) -> bool:
        return any(type(name) is str and renamed(name) in expected for name in state)

    found = meant(value, meets)
    if 1 < len(found) <= _SHOWN:
        # Where a prefix is all that keeps the names of one from meeting, the load is to say that.
        almost = {where: state for where, state in found.items() if proposal(path, state, expected)}
        found = almost if len(almost) == 1 else found
    if len(found) > 1:
        raise Unsupported(
            f"the file holds {len(found)} state dicts: {listed(found)}",
            advice=f"Write: {' or '.join(_line(path, value, where) for where in list(found)[:2])}",
            file=path,
        )
    if found:
        ((where, state),) = found.items()
        return state, _keys(where)
    if isinstance(value, dict) and (not value or meets(value)):
        return value, ()
    raise _nothing(value, path)


def _named(value: Any, path: str, key: str) -> tuple[Mapping[str, Any], Keys]:
    where = find(value, key)
    state = None if where is None else at(value, where)
    if where is None or not isinstance(state, dict):
        known = state_dicts(value)
        raise BadFormat(
            f"the file holds no dictionary under {key!r}",
            advice=f"It has state dicts under {listed(known)}" if known else "",
            file=path,
        )
    return state, _keys(where)


def _nothing(value: Any, path: str) -> BadFormat:
    """The error for a file without a state dict."""
    if isinstance(value, dict):
        keys = ", ".join(brief_text(key) for key in list(value)[:_SHOWN])
        return BadFormat(f"the file holds no dictionary of arrays; its keys are {keys}", file=path)
    advice = ""
    if isinstance(value, np.ndarray):
        named = f"{{'...': bridge.load({path!r})}}"
        advice = f"Give the array its name: bridge.load_state_dict(model, {named}, strict=False)"
    kind = type(value).__name__
    return BadFormat(f"the file holds a {kind}, not a dictionary of arrays", advice=advice, file=path)


def _keys(path: Path) -> Keys:
    return tuple(dotted((step,)) for step in path)


def _line(path: str, value: Any, where: Path) -> str:
    if find(value, dotted(where)) == where:
        return f"model, report = bridge.load_checkpoint(model, {path!r}, key={dotted(where)!r})"
    # Another place has this dotted name, as 1 and '1' do.
    steps = "".join(f"[{step!r}]" for step in where)
    return f"model, keys = bridge.load_state_dict(model, bridge.load({path!r}){steps})"


def proposal(path: str, names: Iterable[str], expected: Iterable[str]) -> str:
    """Return what to write when a prefix keeps the names from meeting, else "".

    Args:
        path: The file.
        names: The file's names.
        expected: The model's names.
    """
    names, known = list(names), set(expected)
    fronts, behind = _prefixes(names, known), _prefix(known, set(names))
    options: list[tuple[str, list[str], Callable[[str], str]]] = []
    if fronts:
        front = fronts[0]
        text = f"Names in the file start with {front!r}, the model's do not."
        if len(fronts) > 1:
            listed = " and ".join(map(repr, fronts))
            text = f"Names in the file start with {listed}, which fit the model equally well."
        rules = [f"{{{front!r}: ''}}" for front in fronts]
        options.append((text, rules, lambda name: name.removeprefix(front)))
    pattern = re.compile(_WRAPPERS)
    plain = [pattern.sub("", name) for name in names]
    if plain != names:
        found = sorted({match for name in names for match in pattern.findall(name)})
        inner = _prefix(plain, known)
        parts = ([f"^{re.escape(inner)}"] if inner else []) + [re.escape(sign) for sign in found]
        rule = f're.compile(r"{"|".join(parts)}")'
        text = f"Names in the file have {' and '.join(map(repr, found))} in them, as wrappers add."
        if inner:
            text = f"{text[:-1]}, and start with {inner!r}."
        whole = re.compile("|".join(parts))
        options.append((text, [f"[({rule}, '')]"], lambda name: whole.sub("", name)))
    if behind:
        text = f"The model's names start with {behind!r}, those in the file do not."
        options.append((text, [f"lambda name: {behind!r} + name"], lambda name: behind + name))
    best, most = None, len(known.intersection(names))
    for option in options:
        hits = len(known.intersection(map(option[2], names)))
        if hits > most:
            best, most = option, hits
    if best is None:
        return ""
    text, rules, _ = best
    several = len(rules) > 1
    # What is under the other prefixes is not the model's.
    rest = ", strict=False" if several else ""
    lines = "".join(
        f"\n    model, report = bridge.load_checkpoint(model, {path!r}, rename={rule}{rest})"
        for rule in rules
    )
    which = "Write the line of the one that is meant:" if several else "If they mean the same, write:"
    return f"\n{text} {which}{lines}"


def _prefix(names: Iterable[str], known: Collection[str]) -> str:
    """The prefix without which most names are known; "" if there is none."""
    return next(iter(_prefixes(names, known)), "")


def _prefixes(names: Iterable[str], known: Collection[str]) -> list[str]:
    """The prefix without which most names are known, and some that do as well (a moving average)."""
    counts: Counter[str] = Counter()
    for name in names:
        at = name.find(".")
        while at >= 0:
            if name[at + 1 :] in known:
                counts[name[: at + 1]] += 1
            at = name.find(".", at + 1)
    most = max(counts.values(), default=0)
    result: list[str] = []
    for prefix in sorted((p for p in counts if counts[p] == most), key=len):
        # Inside of another, it is the less likely one.
        if not prefix.startswith(tuple(result)):
            result.append(prefix)
        if len(result) == _PREFIXES:
            break
    return result
