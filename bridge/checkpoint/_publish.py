"""The last step of reading a pickle: hand out data only.

While a pickle runs, its values include storages, descriptions of tensors and names of functions.
This walk over the finished object replaces the first two by arrays and the last by placeholders, so
that what ``load`` returns consists of arrays, plain Python values and inert records. Dictionaries,
lists and placeholders are changed in place (they may be shared, or contain themselves); tuples and
records are rebuilt where an item changed. A placeholder that is an ``nn.Module`` becomes its state
dict.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from bridge.checkpoint._globals import Global, StorageClass, name_as_value
from bridge.checkpoint._module_walk import NameBudget, is_module, module_state_dict
from bridge.checkpoint._numpy_objects import NumpyArray, NumpyDtype
from bridge.checkpoint._pickle_machine import MAX_DEPTH
from bridge.checkpoint._rebuild import OldTensor
from bridge.checkpoint._records import RECORDS, Placeholder
from bridge.checkpoint._tensors import Storage, Tensor
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsafe


def publish(value: Any, size: int) -> tuple[Any, set[str]]:
    """Return ``value`` with nothing but data in it, and the paths of its placeholders.

    Args:
        value: What a pickle holds.
        size: How many bytes the pickle has.
    """
    publisher = _Publisher(size)
    return publisher.visit(value, 0), publisher.placeholders


class _Publisher:
    def __init__(self, size: int) -> None:
        self.placeholders: set[str] = set()
        self._names = NameBudget(size)
        self._done: dict[int, Any] = {}
        self._alive: list[Any] = []

    def visit(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is Tensor:
            return value.array()
        if kind in _PLAIN:
            return value
        if kind is OldTensor:
            return self.visit(_told(value), depth)
        if kind is NumpyArray:
            # One that is not read is a placeholder, in which there may be anything.
            return self.visit(_content(value), depth)
        if kind in _LEAVES:
            return _LEAVES[kind](value)
        if not isinstance(value, _CONTAINERS) or (kind in _BUILTIN and not value):
            return value
        if depth > MAX_DEPTH:
            raise Unsafe(f"values are nested more than {MAX_DEPTH} deep")
        if id(value) not in self._done:
            # The list keeps replaced tuples alive, so that no identity is used twice.
            self._alive.append(value)
            self._done[id(value)] = value
            self._done[id(value)] = self._contents(value, depth)
        return self._done[id(value)]

    def _contents(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            for key, item in value.items():
                try:
                    value[key] = self.visit(item, depth + 1)
                except CheckpointError as error:
                    raise error.locate(entry=key if type(key) is str else "") from error.__cause__
            return value
        if isinstance(value, Placeholder):
            return self._placeholder(value, depth)
        if isinstance(value, RECORDS):
            parts = {part.name: getattr(value, part.name) for part in fields(value)}
            return replace(value, **{name: self.visit(part, depth + 1) for name, part in parts.items()})
        items = [self.visit(item, depth + 1) for item in value]
        if isinstance(value, list):
            value[:] = items
            return value
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return tuple(items) if changed else value

    def _placeholder(self, value: Placeholder, depth: int) -> Any:
        for name in ("args", "kwargs", "state", "items", "entries"):
            setattr(value, name, self.visit(getattr(value, name), depth + 1))
        self.placeholders.add(value.path)
        if is_module(value):
            return module_state_dict(value, self._names)
        if isinstance(value.state, dict) and _is_layer(value.path):
            raise BadFormat(f"a {value.path} lacks its parameters, buffers or modules")
        return value


def _is_layer(path: str) -> bool:
    """Whether a class is a module of PyTorch's, by its name."""
    # The module of the base class has helpers too, which a module's hooks are wrapped in.
    helper = path.startswith("torch.nn.modules.module.") and path != "torch.nn.modules.module.Module"
    return path.startswith("torch.nn.modules.") and not helper


def _told(value: OldTensor) -> Any:
    if value.tensor is None:
        raise BadFormat("a tensor is never given its contents")
    return value.tensor


def _content(value: NumpyArray) -> Any:
    if value.content is None:
        raise BadFormat("a NumPy array is never given its contents")
    return value.content


_BUILTIN = frozenset([dict, list, tuple])

_CONTAINERS = (dict, list, tuple, Placeholder, *RECORDS)

_PLAIN = frozenset([str, int, float, bool, type(None), np.ndarray])

_LEAVES: dict[type, Any] = {
    Storage: Storage.whole,
    NumpyDtype: lambda value: value.dtype,
    Global: name_as_value,
    StorageClass: name_as_value,
}
