"""Drawing the arrays that a model does not have yet, each from a key of its own name."""

from typing import Any

import jax

from purestate._abstract import AbstractArray
from purestate._errors import UninitializedError
from purestate._keys import as_key, fold_name
from purestate._lives import flatten, unflatten
from purestate._parameter import as_array


def init(model: Any, rng: Any, *example_inputs: Any) -> Any:
    """Give a value to every parameter and buffer that has none; the others stay.

    The key of each array is folded from ``rng`` and the array's dotted name, so adding or removing a
    layer changes no other weight. May be jitted (with ``out_shardings`` for a sharded start).

    Args:
        model: A model; arrays that were loaded or drawn before are kept.
        rng: A JAX key, or an int as its seed.
        *example_inputs: Accepted for models whose shapes depend on their inputs.

    Returns:
        The model with all its values.

    Raises:
        UninitializedError: For an array without an initializer (``purestate.empty(shape)``).
    """
    del example_inputs
    leaves, definition = flatten(model)
    key = as_key(rng)
    if key is None:
        raise TypeError("init needs a key.\n    write: purestate.init(model, jax.random.key(0))")
    return unflatten(
        definition,
        tuple(
            _draw(as_array(leaf), key, name) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
            for leaf, name in zip(leaves, definition.names, strict=True)
        ),
    )


def _draw(leaf: AbstractArray, key: jax.Array, name: str) -> jax.Array:
    if leaf.init is None:
        raise UninitializedError(
            f"'{name}' of shape {leaf.shape} has no initializer.\n"
            f"    write: nn.init.normal_(self.{name.rpartition('.')[2]}) in the constructor, or "
            "bridge.load_state_dict(model, state_dict)"
        )
    array = leaf.init(fold_name(key, name), leaf.shape, leaf.dtype)
    return array if leaf.sharding is None else jax.device_put(array, leaf.sharding)
