"""Running: a call in progress, and the views of it that ``self`` is inside ``forward``.

A :class:`Call` holds one cell per leaf. A view reads a cell when it reads ``self.weight`` and writes
one when it assigns ``self.running_mean``; what stands in the cells at the end is the new model. Ties
and shared modules need no rule of their own: two names, one cell.

A write must happen under the JAX trace in which the call runs. Inside ``jax.checkpoint``, ``scan``
or ``vmap`` it would put an inner tracer into an outer cell, so it is refused there, with the remedy.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from purestate._attributes import resolve
from purestate._base import Base
from purestate._building import is_array, typename
from purestate._definition import Definition, Node
from purestate._errors import (
    REMEDIES,
    leaked_write,
    missing_rng,
    refuse_method,
    refuse_running_write,
    uninitialized,
)
from purestate._freeze import narrow
from purestate._keys import fold_name
from purestate._parameter import Box
from purestate._session import REGISTRIES


class Call:
    """One call of a model.

    Attributes:
        definition: The model's definition.
        cells: The arrays, one per leaf; written as the call runs.
        written: The leaves that got a new value.
        record: Called as ``record(node, output)`` after each module, or None.
    """

    __slots__ = (
        "_draws",
        "_trace",
        "_views",
        "cells",
        "definition",
        "done",
        "record",
        "rng",
        "written",
    )

    def __init__(
        self,
        definition: Definition,
        leaves: tuple[Any, ...],
        rng: jax.Array | None = None,
        record: Callable[[int, Any], None] | None = None,
    ):
        self.definition = definition
        self.cells = list(leaves)
        self.written: set[int] = set()
        self.done = False
        self.rng = rng
        self.record = record
        self._views: dict[int, Any] = {}
        self._draws: dict[int, int] = {}
        self._trace = get_opaque_trace_state(convention="flax")

    def view(self, index: int) -> Any:
        """The running view of a node: one object per node and call."""
        view = self._views.get(index)
        if view is None:
            node = self.definition.nodes[index]
            view = object.__new__(node.cls)
            view.__dict__.update(node.plain)
            view.__dict__["_life"] = Running(self, index, node)
            self._views[index] = view
        return view

    def read(self, leaf: int) -> Any:
        """The current value of a leaf.

        Raises:
            UninitializedError: When it was never drawn or loaded.
        """
        value = self.cells[leaf]
        if isinstance(value, jax.ShapeDtypeStruct):
            names, cells = self.definition.names, enumerate(self.cells)
            raise uninitialized([names[i] for i, c in cells if isinstance(c, jax.ShapeDtypeStruct)])
        return value

    def is_outer(self) -> bool:
        """Whether the code that runs now runs in the call, and under the trace of the call itself."""
        return not self.done and self._trace == get_opaque_trace_state(convention="flax")

    def write(self, leaf: int, value: Any) -> None:
        """Put a new value in a cell."""
        self.cells[leaf] = value
        self.written.add(leaf)

    def draw(self, index: int) -> jax.Array:
        """The next random key of a node."""
        path = self.definition.path_of[index]
        if self.rng is None:
            raise missing_rng(self.definition.nodes[index].cls, path)
        count = self._draws.get(index, 0)
        self._draws[index] = count + 1
        return jax.random.fold_in(fold_name(self.rng, path), count)


class Running:
    """The life of a view: which call it belongs to and which node it shows."""

    __slots__ = ("call", "index", "node")

    def __init__(self, call: Call, index: int, node: Node):
        self.call = call
        self.index = index
        self.node = node

    def invoke(self, view: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``self.layer(x)`` inside a call."""
        output = view.forward(*args, **kwargs)
        if self.call.record is not None:
            self.call.record(self.index, output)
        return output

    def next_key(self) -> jax.Array:
        """A fresh key for this module."""
        return self.call.draw(self.index)

    def read(self, view: Base, name: str) -> Any:
        """``self.name`` for what is not a plain attribute."""
        member = self.node.lookup.get(name)
        if member is None:
            return self._read_special(view, name)
        kind, target = member
        if kind == "attribute":
            return resolve(target.value, self._node, self._leaf)
        if target is None:
            return None
        if kind == "module":
            child = view.__dict__[name] = self.call.view(target)
            return child
        return self.call.read(target)

    def _read_special(self, view: Any, name: str) -> Any:
        if name == "_parts":
            part = self.call.definition.submodule(self.index)
            return tuple(self.call.cells[leaf] for leaf in part.leaves), part.definition
        if name in REGISTRIES:
            kind = name.removeprefix("_")
            return MappingProxyType({key: self.read(view, key) for key, _ in self.node.members(kind)})
        if name in REMEDIES:
            raise refuse_method(name)
        raise AttributeError(f"'{type(view).__name__}' object has no attribute '{name}'")

    def _node(self, index: int | None) -> Any:
        if index is None:
            raise AttributeError(
                f"an attribute of {self.node.cls.__name__} refers to a part of the model that is "
                "not below the submodule that is called.\n    write: call the whole model"
            )
        return self.call.view(index)

    def _leaf(self, leaf: int | None) -> Any:
        return self._node(leaf) if leaf is None else self.call.read(leaf)

    def write(self, view: Base, name: str, value: Any) -> None:
        """``self.name = value`` in forward: a buffer, or a submodule that went through a transform."""
        member = self.node.lookup.get(name)
        kind = None if member is None else member.kind
        path = self.call.definition.path_of[self.index]
        if member is None or kind not in ("buffer", "module") or member.target is None:
            raise refuse_running_write(self.node.cls, path, name, kind)
        if kind == "module":
            self._write_module(path, name, member.target, value)
            return
        if isinstance(value, Box) or not is_array(value):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if not self.call.is_outer():
            raise leaked_write(path, name)
        if isinstance(value, np.ndarray | np.generic):
            value = narrow(value, f"{path}.{name}" if path else name)  # The model keeps no alias.
        self.call.write(member.target, value)

    def _write_module(self, path: str, name: str, index: int, value: Any) -> None:
        where = f"{path}.{name}" if path else name
        if value is self.call.view(index):
            return
        definition, taken, _ = self.call.definition.submodule(index)
        if not isinstance(value, Base) or value._definition is not definition:
            raise TypeError(
                f"cannot assign '{typename(value)}' to the submodule '{where}' in forward: a call "
                f"returns a model of the same structure, so it must be this "
                f"{definition.cls.__name__} with new arrays.\n"
                f"    write: h, block = ps.call(block, h) with block from self.{name}, then "
                f"self.{name} = block"
            )
        if not self.call.is_outer():
            raise leaked_write(path, name)
        for leaf, array in zip(taken, value._leaves, strict=True):
            if array is not self.call.cells[leaf]:
                self.call.write(leaf, array)
