"""Errors for ``"fc.weight"`` where a function takes ``"weight", at="fc"``.

A parameter's name in its module has no dots, and ``at`` says which module that is, as everywhere
(``purestate._select``). Who writes a name as a ``state_dict`` has it gets torch's error, and the line.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from purestate._definition import Definition


P = ParamSpec("P")
R = TypeVar("R")


def in_its_module(function: Callable[P, R]) -> Callable[P, R]:
    """A function ``(model, name, ..., at="")`` that says what to write for a name with dots."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, KeyError, ValueError) as error:
            given = signature.bind(*args, **kwargs).arguments
            remedy = _remedy(given["model"], given.get("name"), given.get("at", ""))
            if remedy is None:
                raise
            # A KeyError shows its text as a literal, in one line.
            between = "; " if isinstance(error, KeyError) else "\n    "
            raise type(error)(f"{error.args[0]}{between}write: {remedy}") from error

    return told


def _remedy(model: Any, name: Any, at: Any) -> str | None:
    path, dot, last = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not dot or at != "":
        return None
    if isinstance(model, Definition):
        cls = model.nodes[model.node_at[path]].cls if path in model.node_at else None
    else:
        parts = dict(model.named_modules(remove_duplicate=False))
        cls = type(parts[path]) if path in parts else None
    return None if cls is None else f'"{last}", at="{path}"   (the {cls.__name__} there)'
