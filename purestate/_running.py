"""Running: a call in progress, and the views of it that ``self`` is inside ``forward``.

A :class:`Call` holds one cell per leaf. A view reads a cell when it reads ``self.weight`` and writes
one when it assigns ``self.running_mean``; what stands in the cells at the end is the new model. Ties
and shared modules need no rule of their own: two names, one cell.

A write must happen under the JAX trace in which the call runs. Inside ``jax.checkpoint``, ``scan``
or ``vmap`` it would put an inner tracer into an outer cell, so it is refused there, with the remedy.

Users' code writes buffers. The layers whose torch counterparts write a parameter in their ``forward``
have :func:`renew`.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from purestate._abstract import UNDRAWN, UninitializedArray, is_undrawn
from purestate._attributes import resolve
from purestate._base import Base
from purestate._building import is_array, typename
from purestate._definition import Definition, Member, Node
from purestate._errors import (
    REMEDIES,
    leaked_output,
    leaked_write,
    missing_rng,
    refuse_method,
    refuse_running_write,
    refuse_write,
    uninitialized,
)
from purestate._freeze import narrow
from purestate._hooks import run
from purestate._keys import fold_words, name_words
from purestate._parameter import Box
from purestate._session import REGISTRIES


class Call:
    """One call of a model.

    Attributes:
        definition: The model's definition.
        cells: The arrays, one per leaf; written as the call runs.
        written: The leaves that got a new value.
        chosen: The nodes whose outputs are recorded.
        records: ``(node, output)`` of the chosen nodes, in the order they finished.
        draws: How many keys each node drew.
        patches: For a node, what makes of its output the one that is used.
        watched: Whether any node is recorded or patched or has hooks.
    """

    __slots__ = (
        "_trace",
        "_views",
        "cells",
        "chosen",
        "definition",
        "done",
        "draws",
        "patches",
        "records",
        "rng",
        "watched",
        "written",
    )

    def __init__(
        self,
        definition: Definition,
        leaves: tuple[Any, ...],
        rng: jax.Array | None = None,
        chosen: Collection[int] = (),
        patches: Mapping[int, Callable[[Any], Any]] = MappingProxyType({}),
    ):
        self.definition = definition
        self.cells = list(leaves)
        self.written: set[int] = set()
        self.done = False
        self.rng = rng
        self.chosen = chosen
        self.patches = patches
        # Only then a module's call goes through ``invoke``.
        self.watched = bool(chosen) or bool(patches) or definition.is_hooked
        self.records: list[tuple[int, Any]] = []
        self.draws: dict[int, int] = {}
        self._views: dict[int, Any] = {}
        self._trace = get_opaque_trace_state(convention="flax")

    def view(self, index: int) -> Any:
        """The running view of a node: one object per node and call."""
        view = self._views.get(index)
        if view is None:
            node = self.definition.nodes[index]
            view = self._views[index] = object.__new__(node.cls)
            held, cells = view.__dict__, self.cells
            held.update(node.plain)
            held["_life"] = Running(self, index, node)
            # Where Python finds them fastest: a call writes parameters only by way of ``fill``.
            for name, leaf in node.direct:
                if not isinstance(cells[leaf], UNDRAWN):
                    held[name] = cells[leaf]
        return view

    def read(self, leaf: int) -> Any:
        """The current value of a leaf.

        Raises:
            UninitializedError: When it was never drawn or loaded.
        """
        value = self.cells[leaf]
        if is_undrawn(value):
            cells = dict(zip(self.definition.names, self.cells, strict=True))
            raise uninitialized(
                [name for name, cell in cells.items() if is_undrawn(cell)],
                [name for name, cell in cells.items() if isinstance(cell, UninitializedArray)],
            )
        return value

    def is_outer(self) -> bool:
        """Whether the code that runs now runs in the call, and under the trace of the call itself."""
        return not self.done and self._trace == get_opaque_trace_state(convention="flax")

    def end(self) -> None:
        """The call is over: nothing may be written, and its views go without a garbage collection."""
        self.done = True
        self._views.clear()

    def write(self, leaf: int, value: Any) -> None:
        """Put a new value in a cell, which is state that the call returns."""
        self.fill(leaf, value)
        self.written.add(leaf)

    def fill(self, leaf: int, value: Any) -> None:
        """Put a value in a cell, and before the eyes of the views that hold it."""
        self.cells[leaf] = value
        if leaf in self.definition.direct:
            for view in self._views.values():
                for name, place in view._life.node.direct:
                    if place == leaf:
                        view.__dict__[name] = value

    def draw(self, index: int) -> jax.Array:
        """The next random key of a node."""
        path = self.path_of(index)
        if self.rng is None:
            node = self.definition.nodes[index]
            raise missing_rng(node.cls, path, node.training)
        key = jax.random.fold_in(fold_words(self.rng, self.words_of(index)), self.drawn(index))
        self.draws[index] = self.draws.get(index, 0) + 1
        return key

    def words_of(self, index: int) -> Any:
        """The hash of a node's name, which is folded into its keys."""
        return name_words(self.path_of(index))

    def drawn(self, index: int) -> Any:
        """How many keys a node has drawn so far."""
        return self.draws.get(index, 0)

    def path_of(self, index: int) -> str:
        """Where a node is in the model."""
        return self.definition.path_of[index]

    def record(self, index: int, output: Any) -> None:
        """Keep the output of a chosen node.

        Raises:
            LeakedWriteError: Under another JAX trace than the call's.
        """
        if not self.is_outer():
            raise leaked_output(self.path_of(index))
        self.records.append((index, output))


class Running:
    """The life of a view: which call it belongs to and which node it shows."""

    __slots__ = ("call", "index", "node")

    def __init__(self, call: Call, index: int, node: Node):
        self.call = call
        self.index = index
        self.node = node

    def invoke(self, view: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``self.layer(x)`` inside a call that something watches."""
        hooks = self.node.hooks
        output = run(view, hooks, args, kwargs) if hooks else view.forward(*args, **kwargs)
        if self.index in self.call.patches:
            output = self.call.patches[self.index](output)
        if self.index in self.call.chosen:
            self.call.record(self.index, output)
        return output

    def watched(self) -> tuple[Collection[int], Mapping[int, Callable[[Any], Any]]]:
        """What is recorded and patched below, for a call of this module by itself."""
        nodes, call = self.call.definition.submodule(self.index).nodes, self.call
        chosen = {inner for inner, node in enumerate(nodes) if node in call.chosen}
        patches = call.patches
        return chosen, {i: patches[node] for i, node in enumerate(nodes) if node in patches}

    def take(self, records: list[tuple[int, Any]]) -> None:
        """Keep what such a call recorded.

        Raises:
            LeakedWriteError: Under another JAX trace than the call's.
        """
        nodes = self.call.definition.submodule(self.index).nodes
        for node, output in records:
            self.call.record(nodes[node], output)

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
        if kind == "computed":
            value = target.value.compute(view)
            if self.call.is_outer():
                view.__dict__[name] = value  # Once a call, whoever reads it.
            return value
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
        if name == "_modules":
            children, view_of = self.node.modules, self.call.view
            return MappingProxyType({key: None if at is None else view_of(at) for key, at in children})
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
        if member is not None and kind == "computed":
            if not self.call.is_outer():
                raise leaked_write(path, name)
            member.target.value.write(view, value, path)
            view.__dict__.pop(name, None)  # Who reads it next computes it anew.
            return
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
        if isinstance(value, np.ndarray | np.generic):
            value = narrow(value, f"{path}.{name}" if path else name)  # The model keeps no alias.
        self.put(member, name, value)

    def put(self, member: Member, name: str, value: Any) -> None:
        """The new value of a parameter or buffer of this node."""
        if not self.call.is_outer():
            raise leaked_write(self.call.definition.path_of[self.index], name, member.kind)
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


def renew(view: Base, name: str, value: Any) -> None:
    """Write a parameter in ``forward``, as the layers do whose torch counterparts do so.

    Torch writes under ``no_grad``: gradients with respect to the parameter are those with respect
    to the new value. So ``value`` must have the parameter's derivatives (``functional._graft``). A
    ``name`` that is not registered, as of a weight that is computed from others, is left alone:
    torch writes into the computed array there, and the next call computes another.

    Args:
        view: The layer, in a call.
        name: The parameter.
        value: Its new value, which the call returns in the model.

    Raises:
        LeakedWriteError: Under another JAX trace than the call's.
        FrozenModelError: Outside of a call.
    """
    life = view._life
    if type(life) is not Running:
        raise refuse_write(type(view), name, "parameter")
    member = life.node.lookup.get(name)
    if member is not None and member.kind in ("parameter", "buffer"):
        life.put(member, name, value)
