"""The state dict inside a training checkpoint, and names that almost meet.

Trainers save more than a model: ``{"state_dict": ..., "epoch": ..., "optimizer_states": ...}``. The
dictionaries with arrays in them are the candidates; optimizers, which have ``param_groups``, are
not. One candidate is taken; of several, the only one that has a name of the model.

Wrappers add prefixes to names (``module.`` of data parallelism, ``_orig_mod.`` of ``torch.compile``,
``model.`` of Lightning). A prefix that makes the names meet is proposed in the error, with the line
to write. It is never taken off in silence: a name decides which layer gets which numbers.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bridge._state_dict import EXTRA_STATE
from bridge._state_dicts import dotted, find, state_dicts
from bridge.checkpoint import BadFormat, Unsupported
from bridge.checkpoint._chunks import Chunked


Keys = tuple[str, ...]

_MAX_DEPTH = 3
_SHOWN = 8
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
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise BadFormat(
            f"the file holds a {kind}, not a dictionary of arrays",
            advice=_inside(value, path),
            file=path,
        )

    def meets(state: Mapping[str, Any]) -> bool:
        return any(type(name) is str and renamed(name) in expected for name in state)

    inner = list(_candidates(value, ()))
    if not inner or (_has_arrays(value) and meets(value)):
        if value and not _has_arrays(value) and not meets(value):
            keys = ", ".join(repr(key) for key in list(value)[:_SHOWN])
            raise BadFormat(f"the file holds no dictionary of arrays; its keys are {keys}", file=path)
        return value, ()
    fitting = [candidate for candidate in inner if meets(candidate[1])]
    if not fitting:
        # A trainer's own state dict lies above those of its callbacks.
        top = min((len(keys) for keys, _ in inner), default=0)
        inner = [found for found in inner if len(found[0]) == top]
    if len(fitting or inner) > 1:
        keys = [keys for keys, _ in (fitting or inner)[:_SHOWN]]
        raise Unsupported(
            f"the file holds {len(fitting or inner)} state dicts: {', '.join(map(_place, keys))}",
            advice=f"Write: {' or '.join(_line(path, where) for where in keys[:2])}",
            file=path,
        )
    keys, state = (fitting or inner)[0]
    return state, keys


def _named(value: Any, path: str, key: str) -> tuple[Mapping[str, Any], Keys]:
    keys = find(value, key)
    state = value
    for step in keys or ():
        state = state[step]
    if keys is None or not isinstance(state, dict):
        known = ", ".join(repr(dotted(keys)) for keys in list(state_dicts(value))[:_SHOWN])
        raise BadFormat(
            f"the file holds no dictionary under {key!r}",
            advice=f"It has state dicts under {known}" if known else "",
            file=path,
        )
    return state, tuple(str(step) for step in keys)


def _inside(value: Any, path: str) -> str:
    """What to write where a file holds something else than a dictionary."""
    if isinstance(value, np.ndarray):
        named = f"{{'...': bridge.load({path!r})}}"
        return f"Give the array its name: bridge.load_state_dict(model, {named}, strict=False)"
    if not isinstance(value, list | tuple):
        return ""
    for at, item in enumerate(value[:_SHOWN]):
        if isinstance(item, dict) and _has_arrays(item):
            return f"Write: {_line(path, (at,))}"
    return ""


def _place(keys: tuple[str | int, ...]) -> str:
    return "".join(f"[{key!r}]" for key in keys)


def _line(path: str, keys: tuple[str | int, ...]) -> str:
    return f"model, report = bridge.load_checkpoint(model, {path!r}, key={dotted(keys)!r})"


def _has_arrays(value: Mapping[Any, Any]) -> bool:
    return any(
        isinstance(item, np.ndarray | Chunked) and type(name) is str for name, item in value.items()
    )


def _candidates(value: Mapping[Any, Any], keys: Keys) -> Iterator[tuple[Keys, Mapping[str, Any]]]:
    for key, item in value.items():
        if type(key) is not str or not isinstance(item, dict) or "param_groups" in item:
            continue
        if key.rpartition(".")[2] == EXTRA_STATE:
            continue
        if _has_arrays(item):
            yield (*keys, key), item
        elif len(keys) + 1 < _MAX_DEPTH:
            yield from _candidates(item, (*keys, key))


def proposal(path: str, names: Iterable[str], expected: Iterable[str]) -> str:
    """Return what to write when a prefix keeps the names from meeting, else "".

    Args:
        path: The file.
        names: The file's names.
        expected: The model's names.
    """
    names, known = list(names), set(expected)
    front = _prefix(names, known)
    behind = _prefix(known, set(names))
    options: list[tuple[str, str, Callable[[str], str]]] = []
    if front:
        rule = f"{{{front!r}: ''}}"
        text = f"Names in the file start with {front!r}, the model's do not."
        options.append((text, rule, lambda name: name.removeprefix(front)))
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
        options.append((text, f"[({rule}, '')]", lambda name: whole.sub("", name)))
    if behind:
        text = f"The model's names start with {behind!r}, those in the file do not."
        options.append((text, f"lambda name: {behind!r} + name", lambda name: behind + name))
    best, most = None, len(known.intersection(names))
    for option in options:
        hits = len(known.intersection(map(option[2], names)))
        if hits > most:
            best, most = option, hits
    if best is None:
        return ""
    return (
        f"\n{best[0]} If they mean the same, write:\n"
        f"    model, report = bridge.load_checkpoint(model, {path!r}, rename={best[1]})"
    )


def _prefix(names: Iterable[str], known: Collection[str]) -> str:
    """The prefix without which most names are known; "" if there is none."""
    counts: Counter[str] = Counter()
    for name in names:
        at = name.find(".")
        while at >= 0:
            if name[at + 1 :] in known:
                counts[name[: at + 1]] += 1
            at = name.find(".", at + 1)
    return max(counts, key=lambda prefix: (counts[prefix], -len(prefix)), default="")
