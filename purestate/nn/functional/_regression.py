"""Losses of numbers: how far an input is from a target, element by element.

Input and target broadcast, with torch's warning when they do.
"""

import functools

import jax
import jax.numpy as jnp

from purestate._warning import warn
from purestate.nn.functional._dtypes import spread
from purestate.nn.functional._elementwise import absolute
from purestate.nn.functional._operands import check_cast, check_mean, check_subtraction
from purestate.nn.functional._reduction import check_floating, reduced, settled
from purestate.nn.functional._shapes import broadcast, shown


__all__ = ["huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"]


def mse_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: jax.Array | None = None,
) -> jax.Array:
    """``(input - target)**2`` (``torch.nn.functional.mse_loss``).

    Args:
        input: Any shape.
        target: The same shape; another one broadcasts, with a warning.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` (by weight, if there is one) or ``'sum'``.
        weight: Multiplies the losses; in the input's shape.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype.

    Raises:
        ValueError: An unknown reduction, or a weight in another shape.
        RuntimeError: Shapes that do not broadcast.
        NotImplementedError: Both arrays are of integers.
    """
    reduction = _checked(input, target, weight, reduction, size_average, reduce)
    check_floating("mse_cpu", input, target)
    return _mse(input, target, weight, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _mse(input: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: str) -> jax.Array:
    return _weighted(jnp.square(_difference(input, target)), weight, reduction)


def l1_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: jax.Array | None = None,
) -> jax.Array:
    """``|input - target|`` (``torch.nn.functional.l1_loss``); derivative 0 at 0 and NaN.

    Args and Returns: See :func:`mse_loss`.

    Raises:
        ValueError: An unknown reduction, or a weight in another shape.
        RuntimeError: Shapes that do not broadcast, booleans, or the mean of integers.
    """
    reduction = _checked(input, target, weight, reduction, size_average, reduce)
    check_subtraction(input, target)
    if reduction == "mean" and weight is None:
        check_mean(jnp.result_type(input, target))
    return _l1(input, target, weight, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _l1(input: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: str) -> jax.Array:
    return _weighted(absolute(_difference(input, target)), weight, reduction)


def smooth_l1_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> jax.Array:
    """``d**2 / (2 beta)`` for ``d = |input - target| < beta``, else ``d - beta / 2``.

    Torch's name: ``torch.nn.functional.smooth_l1_loss``.

    Args:
        input: Any shape.
        target: The same shape; another one broadcasts, with a warning.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        beta: Where the parabola ends; 0 is :func:`l1_loss`.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not broadcast, or a negative beta.
        NotImplementedError: Both arrays are of integers.
    """
    reduction = _checked(input, target, None, reduction, size_average, reduce)
    if beta == 0:
        shape = jnp.broadcast_shapes(input.shape, target.shape)
        input, target = (jnp.broadcast_to(spread(x, shape), shape) for x in (input, target))
        return l1_loss(input, target, reduction=reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    check_floating("smooth_l1_cpu", input, target)
    return _smooth_l1(input, target, reduction, float(beta))


@functools.partial(jax.jit, static_argnames=("reduction", "beta"))
def _smooth_l1(input: jax.Array, target: jax.Array, reduction: str, beta: float) -> jax.Array:
    difference = _difference(input, target)
    size = jnp.abs(difference)
    is_far = size >= beta
    near = jnp.where(is_far, 0, difference)  # Far away no slope of the parabola is infinite.
    losses = jnp.where(is_far, size - 0.5 * beta, 0.5 * near * near / beta)
    return reduced(losses, reduction)


def huber_loss(
    input: jax.Array,
    target: jax.Array,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: jax.Array | None = None,
) -> jax.Array:
    """``d**2 / 2`` for ``d = |input - target| < delta``, else ``delta (d - delta / 2)``.

    Torch's name: ``torch.nn.functional.huber_loss``.

    Args:
        input: Any shape.
        target: The same shape; another one broadcasts, with a warning.
        reduction: ``'none'``, ``'mean'`` (a weight does not divide it) or ``'sum'``.
        delta: Where the parabola ends.
        weight: Multiplies the losses; in the input's shape.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, or a weight in another shape.
        RuntimeError: Shapes that do not broadcast, a delta that is not positive, or an input of
            integers for a target of floats.
        NotImplementedError: Both arrays are of integers.
    """
    reduction = _checked(input, target, weight, reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    check_floating("huber_cpu", input, target)
    check_cast(jnp.result_type(input, target), input.dtype)
    return _huber(input, target, weight, reduction, float(delta))


@functools.partial(jax.jit, static_argnames=("reduction", "delta"))
def _huber(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: str,
    delta: float,
) -> jax.Array:
    difference = _difference(input, target)
    size = jnp.abs(difference)
    # Each branch is zero, with its slope, where the other holds: infinity is far, NaN is near.
    is_far = size >= delta
    near = jnp.where(is_far, 0, difference)
    slope = jnp.where(is_far, jnp.asarray(delta, size.dtype), 0)
    losses = (0.5 * near * near + slope * (size - 0.5 * slope)).astype(input.dtype)
    return reduced(losses if weight is None else losses * weight, reduction)


def _difference(input: jax.Array, target: jax.Array) -> jax.Array:
    shape = jnp.broadcast_shapes(input.shape, target.shape)
    return spread(input, shape) - spread(target, shape)


def _weighted(losses: jax.Array, weight: jax.Array | None, reduction: str) -> jax.Array:
    return reduced(losses if weight is None else losses * weight, reduction, weight)


def _checked(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: str,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> str:
    """Check the shapes, with torch's warning when they differ, and settle the reduction."""
    if target.shape != input.shape:
        warn(
            f"Using a target size ({shown(target.shape)}) that is different to the input size "
            f"({shown(input.shape)}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
        )
    broadcast(input.shape, target.shape)
    if weight is not None:
        if weight.shape != input.shape:
            raise ValueError("Weights and input must have the same size.")
        is_legacy = size_average is not None or reduce is not None
        if not is_legacy and reduction not in ("none", "mean", "sum"):
            raise ValueError(
                f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'."
            )
    return settled(reduction, size_average, reduce)
