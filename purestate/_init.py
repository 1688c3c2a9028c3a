"""Drawing the arrays that a model does not have yet, each from a key of its own name."""

from typing import Any

import jax

from purestate._abstract import AbstractArray, is_undrawn
from purestate._definition import Definition
from purestate._errors import UninitializedError
from purestate._keys import as_key, fold_name
from purestate._lazy import is_lazy, materialize
from purestate._lives import flatten, unflatten
from purestate._parameter import as_array


def init(model: Any, rng: Any, *example_inputs: Any, **example_kwargs: Any) -> Any:
    """Give a value to every parameter and buffer that has none; the others stay.

    The key of each array is folded from ``rng`` and the array's dotted name, so adding or removing a
    layer changes no other weight. May be jitted (with ``out_shardings`` for a sharded start).

    A lazy layer (``nn.LazyLinear``) takes its sizes from the input it gets when the model is called
    with the example inputs, and becomes its eager class. That call runs under ``jax.eval_shape``:
    nothing is computed and no state changes. Without a lazy layer the example inputs are not used.

    Args:
        model: A model; arrays that were loaded or drawn before are kept.
        rng: A JAX key, or an int as its seed.
        *example_inputs: Arguments to call the model with; of arrays the shapes and dtypes count, and
            a ``jax.ShapeDtypeStruct`` is enough.
        **example_kwargs: Keyword arguments, likewise.

    Returns:
        The model with all its values.

    Raises:
        UninitializedError: For an array without an initializer (``purestate.empty(shape)``), or without
            a shape: one of a lazy layer that the call does not reach.
    """
    key = as_key(rng)
    if key is None:
        raise TypeError("init needs a key.\n    write: purestate.init(model, jax.random.key(0))")
    if example_inputs or example_kwargs:
        model = materialize(model, key, example_inputs, example_kwargs)
    leaves, definition = flatten(model)
    return unflatten(
        definition,
        tuple(
            _draw(as_array(leaf), key, name, _drawn_as(definition, leaves, leaf, name))
            if is_undrawn(leaf)
            else leaf
            for leaf, name in zip(leaves, definition.names, strict=True)
        ),
    )


def _drawn_as(definition: Definition, leaves: Any, leaf: Any, name: str) -> str:
    """The name whose key draws a leaf: what takes the place of another array is drawn as that one."""
    rename = getattr(getattr(leaf, "init", None), "drawn_as", None)
    if rename is None:
        return name
    source = rename(name)
    at = definition.leaf_at.get(source)
    if at is None or definition.names[at] == name:
        return source
    # What follows from an array that is drawn itself takes the key of that one.
    return _drawn_as(definition, leaves, leaves[at], definition.names[at])


def _draw(leaf: AbstractArray, key: jax.Array, name: str, drawn_as: str) -> jax.Array:
    if is_lazy(leaf):
        path = name.rpartition(".")[0]
        raise UninitializedError(
            f"'{name}' has no shape: it follows from the input of the lazy layer '{path}', and no call "
            "with example inputs has reached that layer.\n"
            "    write: purestate.init(model, rng, *example_inputs)"
        )
    if leaf.init is None:
        raise UninitializedError(
            f"'{name}' of shape {leaf.shape} has no initializer.\n"
            f"    write: nn.init.normal_(self.{name.rpartition('.')[2]}) in the constructor, or "
            "bridge.load_state_dict(model, state_dict)"
        )
    array = leaf.init(fold_name(key, drawn_as), leaf.shape, leaf.dtype)
    return array if leaf.sharding is None else jax.device_put(array, leaf.sharding)
