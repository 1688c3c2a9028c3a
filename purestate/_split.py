"""Taking a model apart and putting it together: definition, trainable arrays, other arrays."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from purestate._abstract import AbstractArray, UninitializedArray, is_undrawn
from purestate._definition import Definition
from purestate._freeze import narrow
from purestate._lives import flatten, unflatten
from purestate._named import NamedArrays, intern_names, unflatten as named


def split(model: Any) -> tuple[Definition, NamedArrays, NamedArrays]:
    """``(definition, params, buffers)`` of a model.

    Returns:
        The definition; the trainable parameters by dotted name; every other array by dotted name
        (buffers and frozen parameters, so that no gradient and no weight decay can reach them). A
        tied parameter appears once, under its first name.
    """
    leaves, definition = flatten(model)
    return (
        definition,
        _take(definition, definition.trainable, leaves),
        _take(definition, definition.held, leaves),
    )


def merge(definition: Definition, params: Mapping[str, Any], buffers: Mapping[str, Any]) -> Any:
    """The model with these parts.

    Raises:
        KeyError: When names are missing or unknown.
    """
    return unflatten(definition, assemble(definition, params, buffers))


def assemble(
    definition: Definition, params: Mapping[str, Any], buffers: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The flat leaves of a model from its two mappings."""
    leaves: list[Any] = [None] * len(definition.leaves)
    _place(definition, definition.trainable, params, "params", leaves)
    _place(definition, definition.held, buffers, "buffers", leaves)
    return tuple(leaves)


def take_buffers(definition: Definition, cells: list[Any], like: Mapping[str, Any]) -> Any:
    """The non-trainable leaves as a mapping of the same type as ``like``."""
    arrays = _take(definition, definition.held, cells)
    if isinstance(like, NamedArrays):
        return arrays
    pairs = {name: arrays[name] for name in like}
    return pairs if type(like) is dict else type(like)(pairs)  # pyright: ignore[reportCallIssue]


def _names(definition: Definition, chosen: tuple[int, ...]) -> Any:
    return intern_names(tuple(definition.names[leaf] for leaf in chosen))


def _take(definition: Definition, chosen: tuple[int, ...], leaves: Any) -> NamedArrays:
    return named(_names(definition, chosen), tuple(leaves[leaf] for leaf in chosen))


def _place(
    definition: Definition,
    chosen: tuple[int, ...],
    arrays: Mapping[str, Any],
    label: str,
    leaves: list[Any],
) -> None:
    names = _names(definition, chosen)
    if isinstance(arrays, NamedArrays) and arrays._names is names:
        values: Any = arrays._values
    else:
        if arrays.keys() != names.index.keys():
            missing = sorted(names.index.keys() - arrays.keys())
            unknown = sorted(arrays.keys() - names.index.keys())
            raise KeyError(
                f"{label} of {definition.cls.__name__}: missing {missing}, unknown {unknown}.\n"
                "    write: definition, params, buffers = purestate.split(model)   (a tied parameter "
                "goes by its first name)"
            )
        values = [settled(arrays[name], name, None) for name in names.names]
    for leaf, value in zip(chosen, values, strict=True):
        leaves[leaf] = value


def replace(model: Any, arrays: Mapping[str, Any]) -> Any:
    """The model with some arrays replaced.

    Args:
        model: A model.
        arrays: ``{dotted name: array}``; either name of a tie reaches the one array.

    Raises:
        KeyError: For a name the model does not have.
        ValueError: For an array of another shape; ``bridge.register_parameter`` and
            ``register_buffer`` change shapes.
    """
    leaves, definition = flatten(model)
    changed = list(leaves)
    for name, value in arrays.items():
        if name not in definition.leaf_at:
            raise KeyError(
                f"{definition.cls.__name__} has no parameter or buffer '{name}'; it has "
                f"{', '.join(definition.leaf_at)}"
            )
        leaf = definition.leaf_at[name]
        got = _shape(value)
        lazy = isinstance(leaves[leaf], UninitializedArray)  # It takes any shape.
        if not lazy and (expected := _shape(leaves[leaf])) != got:
            raise ValueError(
                f"'{name}' has shape {expected}, the replacement has {got}.\n"
                "    write: model = bridge.register_parameter(model, name, value, at=path)   "
                "(or register_buffer) to change a shape"
            )
        changed[leaf] = settled(value, name, leaves[leaf])
    return unflatten(definition, tuple(changed))


def settled(value: Any, name: str, like: Any) -> Any:
    """What a model may hold: numpy arrays are copied, numbers become arrays of the old dtype."""
    if isinstance(value, np.ndarray | np.generic):
        return narrow(value, name)
    if isinstance(value, int | float | complex) and like is not None:
        return jnp.asarray(value, like.dtype)
    if type(value).__module__.partition(".")[0] == "torch":
        raise TypeError(
            f"'{name}' is a torch tensor; a model holds JAX arrays.\n"
            "    write: value.detach().cpu().numpy()"
        )
    return value


def _shape(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else ()


def abstract(model: Any) -> Any:
    """The model with shapes instead of arrays: for ``jax.eval_shape``, Orbax, or to load into.

    An array that is not drawn yet keeps its initializer.
    """
    leaves, definition = flatten(model)
    return unflatten(
        definition,
        tuple(leaf if is_undrawn(leaf) else AbstractArray(leaf.shape, leaf.dtype) for leaf in leaves),
    )
