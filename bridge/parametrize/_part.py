"""Running a part of a model on its own: a parametrization, or the list of them for one name.

While a model is being changed its modules are open and cannot run. A :class:`Part` is the value that
one of them would be, so its ``forward`` and ``right_inverse`` run as in any other call, write their
buffers, and where arrays have no values yet, run for shapes only.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import jax
import numpy as np

from purestate._abstract import is_undrawn
from purestate._call import call
from purestate._definition import Definition, Node, intern
from purestate._freeze import snapshot
from purestate._lives import flatten, unflatten
from purestate._session import session


class Part:
    """A definition and its leaves, some of which may have no values; equal where these are equal.

    Attributes:
        definition: The structure.
        leaves: The arrays; drawn ones are compared by identity.
    """

    __slots__ = ("definition", "leaves")

    def __init__(self, definition: Definition, leaves: tuple[Any, ...]):
        self.definition = definition
        self.leaves = leaves

    @classmethod
    def of(cls, module: Any) -> "Part":
        """Of an open module, as it is now."""
        return cls(*snapshot(module))

    def evaluating(self) -> "Part":
        """The same in evaluation mode."""
        nodes = self.definition.nodes
        if not any(node.training for node in nodes):
            return self
        return Part(intern(tuple(map(_evaluating, nodes)), self.definition.leaves), self.leaves)

    def ask(self, method: str, *args: Any, rng: Any = None) -> tuple[Any, tuple[Any, ...]]:
        """What ``"forward"`` or another method returns, and the arrays after it."""
        run = _forward if method == "forward" else _right_inverse
        with session(None):
            model = unflatten(self.definition, self.leaves)
            output, after = call(MethodType(run, model), *args, rng=rng)
            return output, flatten(after)[0]

    def attempt(
        self, method: str, args: tuple[Any, ...], rng: Any, settle: Callable[[Any], Any]
    ) -> tuple[Any, dict[int, Any]]:
        """``(settle(output), {leaf: what was written})``; shapes where an argument is undrawn."""

        def run(args: tuple[Any, ...]) -> tuple[Any, dict[int, Any]]:
            output, after = self.ask(method, *args, rng=rng)
            pairs = enumerate(zip(self.leaves, after, strict=True))
            return settle(output), {leaf: new for leaf, (old, new) in pairs if new is not old}

        return jax.eval_shape(run, args) if any(map(is_undrawn, jax.tree.leaves(args))) else run(args)

    def probe(self, method: str, args: tuple[Any, ...], rng: Any, settle: Callable[[Any], Any]) -> Any:
        """``settle(output)``, of which shape and dtype count; nothing needs to have a value."""

        def run(args: tuple[Any, ...], leaves: tuple[Any, ...]) -> Any:
            return settle(Part(self.definition, leaves).ask(method, *args, rng=rng)[0])

        given = args, self.leaves
        return (
            jax.eval_shape(run, *given) if any(map(is_undrawn, jax.tree.leaves(given))) else run(*given)
        )

    @property
    def _key(self) -> Any:
        held = (
            (leaf.shape, str(leaf.dtype), getattr(leaf, "init", None)) if is_undrawn(leaf) else id(leaf)
            for leaf in self.leaves
        )
        return self.definition, tuple(held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> Any:
        return Part, (self.definition, self.leaves)


def _forward(view: Any, *args: Any) -> Any:
    return view(*args)


def _right_inverse(view: Any, *args: Any) -> Any:
    return view.right_inverse(*args)


def _evaluating(node: Node) -> Node:
    build: Any
    build, fields = node.__reduce__()
    *before, training, hooks, registered = fields
    del training
    return build(*before, False, hooks, registered)


def is_tensor(value: Any) -> bool:
    """Whether a value is what torch calls a Tensor, with or without numbers in it."""
    return isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct)
