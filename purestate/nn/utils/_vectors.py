"""All parameters as one vector, and back."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._base import Base
from purestate._building import typename
from purestate._split import replace


__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Any) -> jax.Array:
    """The parameters end to end, each flattened.

    Torch's name: ``torch.nn.utils.parameters_to_vector``.

    Args:
        parameters: A model (its parameters count, frozen ones too, and no buffer), or any pytree or
            iterable of arrays: ``params`` of ``purestate.split``, ``model.parameters()``.

    Returns:
        One axis, in the dtype that all promote to. The order is torch's for a model and for
        NamedArrays; a plain dict goes by its sorted names, as everywhere in JAX.

    Raises:
        ValueError: For no parameters.
    """
    arrays, _ = _taken_apart(parameters)
    if not arrays:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    return jnp.concatenate([jnp.ravel(array) for array in arrays])


def vector_to_parameters(vec: jax.Array, parameters: Any) -> Any:
    """The parameters with the values of a vector, which must be at least as long as they are.

    Torch's name: ``torch.nn.utils.vector_to_parameters``. Pure: ``parameters`` stays as it is.

    Args:
        vec: The values, as :func:`parameters_to_vector` puts them.
        parameters: A model, or any pytree or iterable of arrays.

    Returns:
        The same model or tree, in the dtype of ``vec``.

    Raises:
        TypeError: When ``vec`` is not an array.
        RuntimeError: When it is too short.
    """
    if not isinstance(vec, jax.Array | np.ndarray):
        raise TypeError(f"expected torch.Tensor, but got: {typename(vec)}")
    arrays, put_together = _taken_apart(parameters)
    pieces, start = [], 0
    for array in arrays:
        piece = jnp.asarray(vec[start : start + math.prod(array.shape)])
        if piece.size != math.prod(array.shape):
            shape = list(array.shape)
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {piece.size}")
        pieces.append(piece.reshape(array.shape))
        start += piece.size
    return put_together(pieces)


def _taken_apart(parameters: Any) -> tuple[list[Any], Any]:
    """The arrays, and the function that puts others in their places."""
    if isinstance(parameters, Base):
        model: Any = parameters
        named = dict(model.named_parameters())
        return list(named.values()), lambda arrays: replace(
            model, dict(zip(named, arrays, strict=True))
        )
    if not isinstance(parameters, Iterator):
        arrays, treedef = jax.tree.flatten(parameters)
        return arrays, treedef.unflatten
    return list(parameters), list
