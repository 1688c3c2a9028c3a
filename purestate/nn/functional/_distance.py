"""Distances and similarities of vectors, and vectors brought to length one."""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import scalar_type, spread, widen
from purestate.nn.functional._operands import check_subtraction
from purestate.nn.functional._options import axis, ints
from purestate.nn.functional._shapes import broadcast
from purestate.nn.functional._vector_norm import vector_norm


__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


@functools.partial(jax.jit, static_argnames=("dim", "eps"))
def cosine_similarity(x1: jax.Array, x2: jax.Array, dim: int = 1, eps: float = 1e-8) -> jax.Array:
    """The cosine of the angle between vectors (``torch.nn.functional.cosine_similarity``).

    Args:
        x1: ``(*, D, *)``; floating point, unless ``x2`` is.
        x2: A shape that broadcasts with it.
        dim: The axis of the vectors, of the shape that both broadcast to.
        eps: The least norm to divide by; not negative.

    Returns:
        That shape without ``dim``, in the common dtype.

    Raises:
        RuntimeError: The shapes do not broadcast, the common dtype is not floating point, or
            ``eps`` is negative.
        IndexError: When ``dim`` is not an axis.
    """
    dtype = jnp.result_type(x1, x2)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {scalar_type(dtype)}"
        )
    if not eps >= 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps:g}")
    shape = broadcast(x1.shape, x2.shape)
    x1, x2 = (jnp.broadcast_to(spread(x, shape), shape) for x in (x1, x2))
    if not shape:
        axis(dim, 0)
        return cosine_similarity(x1[None], x2[None], 0, eps)
    dim = axis(dim, len(shape))
    return (_unit(x1, dtype, dim, eps) * _unit(x2, dtype, dim, eps)).sum(dim)


def _unit(x: jax.Array, dtype: jnp.dtype, dim: int, eps: float) -> jax.Array:
    """``x / max(|x|, eps)``; torch's derivative does not see the bound, only the norm."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(dtype)
    norm = vector_norm(x, 2, (dim,), keepdims=True)
    least = jnp.asarray(eps, norm.dtype)
    bounded = jnp.where(norm < least, least + (norm - lax.stop_gradient(norm)), norm)
    return x / spread(bounded, x.shape)


def normalize(
    input: jax.Array,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float = 1e-12,
) -> jax.Array:
    """Divide by the ``p``-norm along an axis (``torch.nn.functional.normalize``).

    Args:
        input: ``(*, D, *)``, floating point or complex.
        p: The norm's exponent.
        dim: The axis of the vectors, or several.
        eps: The least norm to divide by.

    Returns:
        The input's shape and dtype.

    Raises:
        RuntimeError: The input is of integers, or an axis is named twice.
        IndexError: When ``dim`` is not an axis.
    """
    return _normalize(input, p, ints(dim), eps)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _normalize(input: jax.Array, p: float, dims: tuple[int, ...], eps: float) -> jax.Array:
    axes = tuple(axis(dim, input.ndim) for dim in dims) or tuple(range(input.ndim))
    for dim in axes:
        if axes.count(dim) > 1:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
    norm = vector_norm(input, p, axes, keepdims=True)
    least = jnp.asarray(eps, norm.dtype)
    return input / spread(jnp.where(norm < least, least, norm), input.shape)


@functools.partial(jax.jit, static_argnames=("p", "eps", "keepdim"))
def pairwise_distance(
    x1: jax.Array, x2: jax.Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> jax.Array:
    """The norm of ``x1 - x2 + eps`` (``torch.nn.functional.pairwise_distance``).

    Args:
        x1: ``(*, D)``.
        x2: A shape that broadcasts with it.
        p: The norm's exponent.
        eps: Added to every difference.
        keepdim: Keep the last axis, of size one.

    Returns:
        ``(*)``, or ``(*, 1)``; integers become floats.

    Raises:
        RuntimeError: The shapes do not broadcast, or an input is of booleans.
    """
    check_subtraction(x1, x2)
    shape = broadcast(x1.shape, x2.shape)
    x1, x2 = spread(x1, shape), spread(x2, shape)
    return vector_norm(x1 - x2 + float(eps), p, (max(len(shape), 1) - 1,), keepdim)


@functools.partial(jax.jit, static_argnames="p")
def pdist(input: jax.Array, p: float = 2.0) -> jax.Array:
    """The distances between all pairs of rows (``torch.nn.functional.pdist``).

    Args:
        input: ``(N, D)``, floating point.
        p: The norm's exponent; not negative.

    Returns:
        ``(N * (N - 1) / 2,)``: rows 0 and 1, 0 and 2, ..., 1 and 2, ....

    Raises:
        RuntimeError: For another number of axes, integers, or a negative ``p``.
    """
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise RuntimeError("pdist only supports floating-point dtypes")
    if not p >= 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = _pairs(input.shape[0])
    difference = input[first] - input[second]
    if input.shape[1] == 0:
        return jnp.zeros(len(first), input.dtype)
    if p == 1:
        return _size(difference).sum(1).astype(input.dtype)
    return _greatest(difference) if p == math.inf else vector_norm(difference, p, (1,))


def _pairs(count: int) -> tuple[jax.Array, jax.Array]:
    """What is ``np.triu_indices(count, 1)``, computed where it runs: it would be a large constant."""
    rows = jnp.arange(max(count - 1, 0), dtype=jnp.int32)  # the last one is the first of no pair
    sizes = count - 1 - rows
    total = count * (count - 1) // 2
    first = jnp.repeat(rows, sizes, total_repeat_length=total)
    before = jnp.cumsum(sizes) - sizes
    return first, jnp.arange(total, dtype=jnp.int32) - before[first] + first + 1


def _size(x: jax.Array) -> jax.Array:
    """``|x|`` with the derivatives that torch has for this function alone: 0 at 0, NaN at NaN."""
    return widen(x) * jnp.sign(widen(x))


def _greatest(x: jax.Array) -> jax.Array:
    """The greatest absolute value of each row; of several, torch gives each the whole derivative."""
    size = _size(x)
    greatest = lax.stop_gradient(size.max(1))
    is_greatest = (size == greatest[:, None]) & jnp.isfinite(size)
    # Zero, with the derivative of the entries.
    change = jnp.where(is_greatest, size - lax.stop_gradient(size), 0)
    return (greatest + change.sum(1)).astype(x.dtype)
