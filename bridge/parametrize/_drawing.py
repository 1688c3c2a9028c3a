"""How the originals of an undrawn weight are drawn: as the weight itself, and then inverted.

A parametrization changes no number that ``purestate.init`` draws. The initialisers here draw the
weight from the key of *its* name (``drawn_as``), with the initialiser it had, and derive from it what
stands in its place: all of them from one and the same draw.
"""

import re
from dataclasses import dataclass
from typing import Any

import jax

from bridge._renamed import name_of_draw
from bridge.parametrize._part import Part
from purestate._abstract import AbstractArray, Initializer, is_undrawn
from purestate._errors import UninitializedError
from purestate._parameter import as_array


_PLACE = re.compile(r"((?:.*\.)?)parametrizations\.([^.]+)\.(?:original\d*|\d+\..+)")


def weight_name(name: str) -> str:
    """``"fc.weight"`` for ``"fc.parametrizations.weight.original0"``; another name as it is."""
    place = _PLACE.fullmatch(name)
    return name if place is None else place[1] + place[2]


def original_name(name: str) -> str:
    """``"fc.parametrizations.weight.original"`` for the name of anything in that list."""
    place = _PLACE.fullmatch(name)
    return name if place is None else f"{place[1]}parametrizations.{place[2]}.original"


@dataclass(frozen=True)
class Inverted:
    """Draws a weight, applies ``right_inverse``, and gives one of the results.

    Attributes:
        init: How the weight is drawn.
        shape: Of the weight.
        dtype: Of the weight where the result has another; None where the result's is the weight's.
        parts: The parametrizations in the order of their inverses.
        stage: After which of them the result is taken.
        pick: Which output, or which leaf of the parametrization that ``right_inverse`` writes.
        written: Whether it is a leaf.
        beside: Whether the weight is drawn where ``original`` is, for a leaf.
    """

    init: Initializer
    shape: tuple[int, ...]
    dtype: Any
    parts: tuple[Part, ...]
    stage: int
    pick: int
    written: bool
    beside: bool

    def drawn_as(self, name: str) -> str:
        """The weight's name."""
        if self.written and self.beside:
            return original_name(name)
        return name_of_draw(self.init, weight_name(name))

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Draw and invert."""
        del shape
        value: Any = self.init(key, self.shape, dtype if self.dtype is None else self.dtype)
        after: tuple[Any, ...] = ()
        for number, part in enumerate(self.parts[: self.stage + 1]):
            value, after = part.ask("right_inverse", value, rng=jax.random.fold_in(key, number))
        if self.written:
            value = after[self.pick]
        elif isinstance(value, list | tuple):
            value = value[self.pick]
        return value.astype(dtype)


@dataclass(frozen=True)
class Evaluated:
    """Draws the originals of a parametrized weight and gives the weight that they make.

    Attributes:
        part: The list of its parametrizations.
    """

    part: Part

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Draw and evaluate."""
        del shape
        leaves = tuple(
            as_array(leaf).init(key, leaf.shape, leaf.dtype) if is_undrawn(leaf) else leaf
            for leaf in self.part.leaves
        )
        return Part(self.part.definition, leaves).evaluating().ask("forward")[0].astype(dtype)


def undrawn_value(part: Part, shape: Any) -> AbstractArray:
    """The value of a list of parametrizations as an array that is not drawn yet.

    Args:
        part: The list.
        shape: What has its shape and dtype.

    Raises:
        UninitializedError: When an array in the list is drawn from a key of its own, so that the
            weight is no function of one key.
    """
    for name, leaf in zip(part.definition.names, part.leaves, strict=True):
        if is_undrawn(leaf) and not (name == "original" or hasattr(as_array(leaf).init, "drawn_as")):
            raise UninitializedError(
                f"the parametrized weight cannot be computed: '{name}' has no value yet.\n"
                "    write: model = purestate.init(model, rng) before this"
            )
    return AbstractArray(shape.shape, shape.dtype, Evaluated(part))
