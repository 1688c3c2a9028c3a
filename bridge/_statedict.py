"""StateDict: a dict of arrays that keeps PyTorch's order and remembers versions.

Torch hangs ``_metadata`` on an ``OrderedDict`` as an attribute, which every copy and comprehension
loses. Here it is part of the type: ``metadata`` goes along with ``copy``, ``|``, pickling and, where
JAX is loaded, ``jax.tree.map``.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any


class StateDict(dict[str, Any]):
    """``{dotted name: array}`` in PyTorch's order.

    Attributes:
        metadata: ``{module path: {"version": n}}`` (torch's ``_metadata``).
    """

    def __init__(
        self,
        items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        metadata: Mapping[str, dict[str, Any]] | None = None,
    ):
        super().__init__(items)
        inherited = getattr(items, "metadata", {}) if metadata is None else metadata
        self.metadata: dict[str, dict[str, Any]] = copy.deepcopy(dict(inherited))

    def copy(self) -> "StateDict":
        """The same entries with a copy of the metadata."""
        return StateDict(self)

    __copy__ = copy

    def __or__(self, other: Any) -> "StateDict":
        merged = StateDict(self)
        merged.update(other)
        merged.metadata |= getattr(other, "metadata", {})
        return merged

    def __reduce__(self):
        return (StateDict, (dict(self), self.metadata))
