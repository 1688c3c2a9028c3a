"""Which dictionary in a file is the state dict.

Training scripts put a model's state dict into a container with the optimizer, the epoch and the like,
each under a key of its own choice. The command line and ``load_checkpoint`` decide here which one is
meant, by one rule. Every dictionary from text to tensors may be it, wherever it lies: below any keys,
in lists and tuples (``(model.state_dict(), epoch)``), at any depth, in a whole file that is nothing
else. These are not:

- the state dicts of optimizers;
- what lies under a name of extra state, which belongs to the state dict around it;
- a container that is met once more: ``{"model": sd, "best": sd}`` has one state dict, not two.

If several are left, what a model's names tell decides, where there is a model. Otherwise, those that
hold single numbers only are put aside: a trainer's counts, the scores of its callbacks. No key is
guessed, and none counts more than another: of a model and its moving average both fit, and which one
somebody wants is not in the file. It has to be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bridge._entries import TENSORS, brief_text, is_optimizer, is_plain
from bridge._state_dict_type import EXTRA_STATE
from bridge.checkpoint._chunks import Chunked


#: The keys on the way to a value.
Path = tuple[Any, ...]

_SHOWN = 8
_ARRAYS = (*TENSORS, Chunked)


def meant(
    value: Any, meets: Callable[[dict[str, Any]], bool] | None = None
) -> dict[Path, dict[str, Any]]:
    """Return the state dicts in a value that may be the one that is meant, by the way to them.

    It is one where that is clear, and none where there is none.

    Args:
        value: What a file holds.
        meets: Whether a state dict has names of the model that it is for.
    """
    found = state_dicts(value)
    if meets is not None and (fitting := {path: sd for path, sd in found.items() if meets(sd)}):
        return _outermost(fitting)
    return {path: sd for path, sd in found.items() if not _is_counts(sd)} or found


def state_dicts(value: Any) -> dict[Path, dict[str, Any]]:
    """Return all state dicts in a value, by the way to them, each before those inside of it."""
    return dict(_found(value, (), {id(value)}))


def _found(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, dict[str, Any]]]:
    if is_optimizer(value):
        return
    if isinstance(value, dict) and any(
        isinstance(item, _ARRAYS) and type(key) is str for key, item in value.items()
    ):
        yield path, value
    for key, item in _items(value):
        extra = type(key) is str and key.rpartition(".")[2] == EXTRA_STATE
        if id(item) not in seen and not extra:
            seen.add(id(item))
            yield from _found(item, (*path, key), seen)


def _outermost(found: dict[Path, dict[str, Any]]) -> dict[Path, dict[str, Any]]:
    """Leave out what lies inside of another: a part of a state dict has names of the model, too."""
    result: dict[Path, dict[str, Any]] = {}
    around: Path | None = None
    for path, sd in found.items():
        if around is None or path[: len(around)] != around:
            around, result[path] = path, sd
    return result


def _is_counts(sd: dict[str, Any]) -> bool:
    """Whether all the tensors in a dictionary are single numbers."""
    return all(getattr(item, "shape", None) == () for item in sd.values() if isinstance(item, _ARRAYS))


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return [pair for pair in value.items() if isinstance(pair[1], dict | list | tuple)]
    if isinstance(value, list | tuple) and not is_plain(value):
        return [pair for pair in enumerate(value) if isinstance(pair[1], dict | list | tuple)]
    return []


def dotted(path: Path) -> str:
    """Return the way to a value as the command line writes it."""
    return ".".join(key if type(key) is str else brief_text(key) for key in path)


def listed(paths: Iterable[Path]) -> str:
    """Return ways to state dicts, the first few, as an error lists them."""
    names = [repr(dotted(path)) if path else "the file itself" for path in paths]
    return ", ".join(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)


def find(value: Any, key: str) -> Path | None:
    """Return the way that a dotted key names, or None; keys may have dots themselves."""
    return _find(value, key, set())


def _find(value: Any, key: str, failed: set[tuple[int, int]]) -> Path | None:
    if not key:
        return ()
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = list(enumerate(value))
    else:
        return None
    # Keys of one text can lead to one container, over and over: it is asked once for each rest.
    if (id(value), len(key)) in failed:
        return None
    for step, item in pairs:
        text = dotted((step,))
        if key == text:
            return (step,)
        if key.startswith(f"{text}."):
            rest = _find(item, key[len(text) + 1 :], failed)
            if rest is not None:
                return (step, *rest)
    failed.add((id(value), len(key)))
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
