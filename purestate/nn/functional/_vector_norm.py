"""The ``p``-norm along axes, with torch's derivatives where the mathematics has none.

The derivative of a norm at zero is zero, and so is that by an entry that is zero when ``p`` is not
above 1; a greatest entry that is there several times shares its derivative evenly. What would be
infinite on the way is computed on ones instead, so that no NaN reaches a derivative of any order.
"""

import math

import jax
import jax.numpy as jnp

from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._elementwise import absolute


def vector_norm(input: jax.Array, p: float, axes: tuple[int, ...], keepdims: bool = False) -> jax.Array:
    """``sum(|x| ** p) ** (1 / p)``; the count of non-zeros for 0, the greatest or least for infinity.

    Args:
        input: Any shape, floating-point or complex.
        p: Any number.
        axes: What to reduce, counted from the start; ``(0,)`` does for a scalar.
        keepdims: Keep the reduced axes, of size one.

    Returns:
        The norm in the input's dtype, real for a complex one; halves are summed in float32.

    Raises:
        RuntimeError: The input is of integers, or what is reduced is empty and has no norm.
    """
    if not jnp.issubdtype(input.dtype, jnp.inexact):
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {scalar_type(input.dtype)}"
        )
    if p < 0 or p == math.inf:
        _check_identity(input, p, axes)
    if input.ndim == 0:
        return vector_norm(input[None], p, (0,))
    return _norm(widen(input), p, axes, keepdims).astype(input.real.dtype)


def _norm(x: jax.Array, p: float, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    if p == 0:
        return (x != 0).sum(axes, keepdims=keepdims)
    if abs(p) == math.inf:
        size = absolute(x)
        return size.max(axes, keepdims=keepdims) if p > 0 else size.min(axes, keepdims=keepdims)
    if p == 1:
        return absolute(x).sum(axes, keepdims=keepdims)
    if p == 2:
        squares = jnp.square(x) if jnp.isrealobj(x) else jnp.square(x.real) + jnp.square(x.imag)
        total = squares.sum(axes, keepdims=keepdims)
        is_zero = total == 0
        return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, total)))
    is_zero = x == 0
    powers = jnp.where(is_zero, 0.0 if p > 0 else math.inf, jnp.abs(jnp.where(is_zero, 1, x)) ** p)
    total = powers.sum(axes, keepdims=keepdims)
    is_zero = total == 0
    return jnp.where(is_zero, 0, jnp.where(is_zero, 1, total) ** (1 / p))


def _check_identity(input: jax.Array, p: float, axes: tuple[int, ...]) -> None:
    empty = [axis for axis in axes if input.ndim and input.shape[axis] == 0]
    if empty:
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p:g} norm on the dimension {empty[0]}because "
            "this dimension is empty and the operation does not have an identity"
        )
