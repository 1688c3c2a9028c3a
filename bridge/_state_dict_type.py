"""The dictionary of a model's arrays: PyTorch's ``state_dict`` as a value.

PyTorch's ``state_dict()`` is an ``OrderedDict`` from dotted names to tensors that carries a hidden
attribute ``_metadata``: for every module path, the version of that module's saved layout. Files
store it, and it decides, for example, whether a BatchNorm without ``num_batches_tracked`` is old
or damaged. :class:`StateDict` keeps both the order and that table (as ``metadata``) through every
way of copying a dictionary. This file imports nothing but the standard library, so that programs
that only look at files start fast.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any


Metadata = dict[str, dict[str, Any]]

EXTRA_STATE = "_extra_state"
"""The last part of the name of what a class's ``get_extra_state`` returns."""


class StateDict(dict[str, Any]):
    """A ``dict`` from names to arrays, in order, with the versions of the modules that wrote it.

    Attributes:
        metadata: Module path (``""`` is the root) to ``{"version": n}``; PyTorch's ``_metadata``.
    """

    metadata: Metadata

    def __new__(cls, *args: Any, **kwargs: Any) -> StateDict:
        del args, kwargs
        self = super().__new__(cls)
        # Unpickling and ``fromkeys`` of subclasses may skip ``__init__``.
        self.metadata = {}
        return self

    def __init__(
        self,
        items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        /,
        *,
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(items)
        if metadata is None:
            metadata = items.metadata if isinstance(items, StateDict) else {}
        self.metadata = copy_metadata(metadata)

    def copy(self) -> StateDict:
        """Return a shallow copy: the same arrays, its own ``metadata``."""
        return StateDict(self)

    def __copy__(self) -> StateDict:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> StateDict:
        result = StateDict()
        memo[id(self)] = result
        for key, value in self.items():
            result[key] = copy.deepcopy(value, memo)
        result.metadata = copy.deepcopy(self.metadata, memo)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return StateDict, (), {"metadata": self.metadata}, None, iter(self.items())

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        result = self.copy()
        result |= other
        return result

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, dict):
            return NotImplemented
        result = StateDict(other)
        result |= self
        return result

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        if isinstance(other, StateDict):
            self.metadata.update(copy_metadata(other.metadata))
        return self


def copy_metadata(metadata: Mapping[str, Mapping[str, Any]]) -> Metadata:
    """Return a copy of a metadata table that shares no dictionary with it."""
    return {path: dict(entry) for path, entry in metadata.items()}
