"""The way back: from a value of a weight to the arrays that its parametrizations compute it from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from bridge._renamed import Renamed
from bridge.parametrize._drawing import Inverted, weight_name
from bridge.parametrize._part import Part, is_tensor
from purestate._abstract import is_undrawn
from purestate._freeze import boxes_of
from purestate._parameter import Box, as_array


class Inverse(NamedTuple):
    """What the parametrizations give back for a value.

    Attributes:
        value: An array, or a sequence of them; abstract arrays for a value that is not drawn.
        writes: What the parametrizations wrote into buffers of their own, by box.
    """

    value: Any
    writes: list[tuple[Box, Any]]

    def write(self) -> None:
        """Put what was written in its boxes."""
        for box, array in self.writes:
            box.data = array


def invert(modules: Sequence[Any], value: Any, rng: Any, strict: bool) -> Inverse:
    """The value through each ``right_inverse``, the last parametrization's first.

    Args:
        modules: Open parametrizations.
        value: An array, or an abstract one.
        rng: For what draws.
        strict: Whether each must have one; else a missing one is the identity.

    Raises:
        RuntimeError: When one is missing that must be there.
    """
    undrawn = as_array(value) if is_undrawn(value) else None
    parts: list[Part] = []
    written: list[tuple[Box, int, int, Any]] = []
    for position, module in reversed(list(enumerate(modules))):
        if not hasattr(module, "right_inverse"):
            if strict:
                raise no_inverse(module)
            continue
        part = Part.of(module)
        key = None if rng is None else jax.random.fold_in(rng, position)
        try:
            value, changes = part.attempt("right_inverse", (value,), key, settled_inverse)
        except NotImplementedError:
            if strict:
                raise
            continue
        boxes = list(boxes_of(module))
        written += [(boxes[leaf], len(parts), leaf, new) for leaf, new in changes.items()]
        parts.append(part)
    if undrawn is None:
        return Inverse(value, [(box, new) for box, _, _, new in written])
    return _undrawn(undrawn, value, tuple(parts), written)


def no_inverse(module: Any) -> RuntimeError:
    """The error for a parametrization without a way back."""
    return RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")


def settled_inverse(value: Any) -> Any:
    """What a ``right_inverse`` may return."""
    if not is_tensor(value) and not isinstance(value, Sequence):
        raise ValueError(
            "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
            f"Got {type(value).__name__}"
        )
    for index, item in enumerate(() if is_tensor(value) else value):
        if not is_tensor(item):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got element {index} of the sequence with type {type(item).__name__}."
            )
    return value


def _undrawn(
    weight: Any, value: Any, parts: tuple[Part, ...], written: list[tuple[Box, int, int, Any]]
) -> Inverse:
    """Abstract arrays for the shapes, which draw the weight and invert it."""
    single = is_tensor(value)

    def abstract(shape: Any, stage: int, pick: int, leaf: bool) -> Any:
        if weight.init is None:
            return weight.update(shape=shape.shape, dtype=shape.dtype)
        dtype = None if shape.dtype == weight.dtype else weight.dtype
        init = Inverted(weight.init, weight.shape, dtype, parts, stage, pick, leaf, single)
        return weight.update(shape=shape.shape, dtype=shape.dtype, init=init, sharding=None)

    writes = [(box, abstract(new, stage, leaf, True)) for box, stage, leaf, new in written]
    if not parts:
        init = None if weight.init is None else Renamed(weight.init, weight_name)
        return Inverse(weight.update(init=init), writes)
    last = len(parts) - 1
    if single:
        original = abstract(value, last, 0, False).update(sharding=weight.sharding)
        return Inverse(original, writes)
    return Inverse([abstract(item, last, i, False) for i, item in enumerate(value)], writes)
