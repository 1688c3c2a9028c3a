"""Which state dict in a file is meant.

Training scripts put a model's state dict into a dictionary with the optimizer, the epoch and the
like, each under a key of its own choice. A format that holds one flat mapping needs one of them. No
key is guessed: if there is one state dict in a file it is that one, otherwise it has to be named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bridge._entries import TENSORS, brief_text, is_optimizer, is_plain


#: The keys on the way to a value.
Path = tuple[Any, ...]


def state_dicts(value: Any) -> dict[Path, dict[str, Any]]:
    """Return the dictionaries from text to tensors in a value, by the way to them.

    Those of optimizers are left out, and so are dictionaries whose own tensors are counts beside
    state dicts (``{"state_dict": {...}, "step": tensor(7)}``).
    """
    return dict(_found(value, (), {id(value): value}))


def _found(value: Any, path: Path, seen: dict[int, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    if is_optimizer(value):
        return
    below = []
    for key, item in _items(value):
        if id(item) not in seen:
            seen[id(item)] = item
            below += _found(item, (*path, key), seen)
    if isinstance(value, dict):
        own = [item for key, item in value.items() if type(key) is str and isinstance(item, TENSORS)]
        if own and not (below and all(isinstance(item, np.ndarray) and not item.ndim for item in own)):
            yield path, value
    yield from below


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return [pair for pair in value.items() if isinstance(pair[1], dict | list | tuple)]
    if isinstance(value, list | tuple) and not is_plain(value):
        return [pair for pair in enumerate(value) if isinstance(pair[1], dict | list | tuple)]
    return []


def dotted(path: Path) -> str:
    """Return the way to a value as the command line writes it."""
    return ".".join(key if type(key) is str else brief_text(key) for key in path)


def find(value: Any, key: str) -> Path | None:
    """Return the way that a dotted key names, or None; keys may have dots themselves."""
    if not key:
        return ()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = list(enumerate(value))
    else:
        return None
    for step, item in pairs:
        text = dotted((step,))
        if key == text:
            return (step,)
        if key.startswith(f"{text}."):
            rest = find(item, key[len(text) + 1 :])
            if rest is not None:
                return (step, *rest)
    return None


def at(value: Any, path: Path) -> Any:
    """Return the value at the end of a way."""
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: Path, new: Any) -> Any:
    """Return a value with another one at the end of a way; what is on the way is copied."""
    if not path:
        return new
    inner = replaced(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        copy = value.copy()
        copy[path[0]] = inner
        return copy
    items = list(value)
    items[path[0]] = inner
    return type(value)(items)
