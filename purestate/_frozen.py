"""Frozen containers: lists and dicts that are equal to those assigned and refuse to change.

They are what reading a plain attribute gives back. ``pack`` and ``unpack`` carry attribute values
through a pickle: a jitted function of a module goes by its name, since JAX would pickle the function
that it wraps.
"""

import importlib
import sys
from typing import Any, NamedTuple, NoReturn


def _refuse(self, *args, **kwargs) -> NoReturn:
    del args, kwargs
    raise TypeError(
        f"this {type(self).__mro__[1].__name__} is a constant of a finished model and cannot change.\n"
        "    write: copy it first, or hold what changes in a buffer"
    )


class FrozenList(list):
    """A list that is equal to the one assigned and refuses to change."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self):
        return (FrozenList, (list(self),))


class FrozenDict(dict):
    """A dict that is equal to the one assigned and refuses to change."""

    update = pop = popitem = clear = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self):
        return (FrozenDict, (dict(self),))


def like(original: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """A tuple of these items, of the original's type where that can be made from items."""
    if all(item is before for item, before in zip(items, original, strict=True)):
        return original
    return getattr(type(original), "_make", tuple)(items)


class ByName(NamedTuple):
    """Stands in a pickle for a jitted function of a module; JAX pickles it as what it wraps."""

    module: str
    name: str


def pack(value: Any) -> Any:
    """A value for pickling: jitted functions that can be imported go by name."""
    if isinstance(value, FrozenList):
        return FrozenList(pack(item) for item in value)
    if isinstance(value, FrozenDict):
        return FrozenDict((key, pack(item)) for key, item in value.items())
    if isinstance(value, tuple):
        return like(value, [pack(item) for item in value])
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if (
        hasattr(value, "__wrapped__")
        and getattr(sys.modules.get(module or ""), name or "", None) is value
    ):
        return ByName(str(module), str(name))
    return value


def unpack(value: Any) -> Any:
    """The value that was packed."""
    if isinstance(value, ByName):
        return getattr(importlib.import_module(value.module), value.name)
    if isinstance(value, FrozenList):
        return FrozenList(unpack(item) for item in value)
    if isinstance(value, FrozenDict):
        return FrozenDict((key, unpack(item)) for key, item in value.items())
    if isinstance(value, tuple):
        return like(value, [unpack(item) for item in value])
    return value
