"""The last step of reading a pickle: hand out data only.

While a pickle runs, its values include storages, half-built tensors and names of functions. This
walk over the finished object replaces the first two by arrays and refuses the last, so that what
``load`` returns consists of arrays and plain Python values. Dictionaries and lists are changed in
place (they may be shared, or contain themselves); tuples are rebuilt where an item changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.checkpoint._globals import Global, OldTensor, StorageClass
from bridge.checkpoint._pickle_machine import MAX_DEPTH
from bridge.checkpoint._tensors import Storage
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported


def publish(value: Any) -> Any:
    """Return ``value`` with nothing but arrays and plain values in it."""
    return _Publisher().visit(value, 0)


class _Publisher:
    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._alive: list[Any] = []

    def visit(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in (str, int, float, bool, np.ndarray):
            return value
        if isinstance(value, Storage):
            return value.whole()
        if isinstance(value, OldTensor):
            if value.array is None:
                raise BadFormat("a tensor is never given its contents")
            return value.array
        if isinstance(value, Global | StorageClass):
            raise Unsupported(f"the file holds {value.path} itself as a value")
        if not isinstance(value, dict | list | tuple):
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
                value[key] = self.visit(item, depth + 1)
            return value
        items = [self.visit(item, depth + 1) for item in value]
        if isinstance(value, list):
            value[:] = items
            return value
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return tuple(items) if changed else value
