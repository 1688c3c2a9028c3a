"""Normalisation by mean and variance.

The four functions differ only in which entries share a mean; the arithmetic is one: the variance in
two passes (mean first, then the mean of the squared distances), the biased one for normalising,
``1 / sqrt(variance + eps)``, and half types computed in float32.

``batch_norm`` and ``instance_norm`` also keep running statistics. A function here cannot write
them, so both always return ``(output, running_mean, running_var)``: the new statistics where torch
would have written some, the given ones otherwise, None for None. No gradient flows through them.
"""

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._norm_checks import (
    check_channels,
    check_dtypes,
    check_groups,
    check_layer,
)
from purestate.nn.functional._shapes import shown


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm"]


Statistics = tuple[jax.Array, jax.Array | None, jax.Array | None]


@functools.partial(jax.jit, static_argnames=("training", "eps"))
def batch_norm(
    input: jax.Array,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    training: bool = False,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
) -> Statistics:
    """Normalise each channel over the batch and the spatial axes.

    The counterpart of ``torch.nn.functional.batch_norm``, which writes into its statistics; this
    one returns them.

    Args:
        input: ``(N, C, *)``; floating-point.
        running_mean: ``(C,)`` or ``None``: the mean to use unless ``training``.
        running_var: ``(C,)`` or ``None``, likewise.
        weight: ``(C,)`` or ``None``: multiplies the normalised input.
        bias: ``(C,)`` or ``None``: is added to it.
        training: Use the batch's own statistics and move the running ones towards them.
        momentum: How far: ``(1 - momentum) * running + momentum * batch``. May be a traced scalar.
        eps: Added to the variance.

    Returns:
        The output in the input's shape and dtype, and the two running statistics. The running
        variance is moved towards the unbiased variance of the batch.

    Raises:
        ValueError: Training with one value per channel, only one of the two statistics given, or
            an eps that is negative, or zero in training.
        RuntimeError: Sizes or dtypes that do not fit, or evaluation without statistics.
    """
    check_channels(input.shape, running_mean, running_var, weight, bias, training, eps)
    check_dtypes("batch_norm", input, weight, bias, running_mean, running_var)
    axes = (0, *range(2, input.ndim))
    return _tracked(input, axes, running_mean, running_var, weight, bias, training, momentum, eps)


@functools.partial(jax.jit, static_argnames=("use_input_stats", "eps"))
def instance_norm(
    input: jax.Array,
    running_mean: jax.Array | None = None,
    running_var: jax.Array | None = None,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    use_input_stats: bool = True,
    momentum: float | jax.Array = 0.1,
    eps: float = 1e-5,
) -> Statistics:
    """Normalise each channel of each example over the spatial axes.

    The counterpart of ``torch.nn.functional.instance_norm``, which writes into its statistics; this
    one returns them.

    Args:
        input: ``(N, C, *)``; floating-point.
        running_mean: ``(C,)`` or ``None``: the mean to use unless ``use_input_stats``.
        running_var: ``(C,)`` or ``None``, likewise.
        weight: ``(C,)`` or ``None``: multiplies the normalised input.
        bias: ``(C,)`` or ``None``: is added to it.
        use_input_stats: Use the input's own statistics, and move the running ones (if given)
            towards their mean over the batch.
        momentum: How far: ``(1 - momentum) * running + momentum * new``. May be a traced scalar.
        eps: Added to the variance.

    Returns:
        The output in the input's shape and dtype, and the two running statistics.

    Raises:
        ValueError: Input statistics of a single spatial element, only one statistic given, or a
            negative eps.
        RuntimeError: Sizes or dtypes that do not fit, or no statistics to use.
    """
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {shown(input.shape)}"
        )
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    check_channels(
        input.shape, running_mean, running_var, weight, bias, use_input_stats, eps, merged=True
    )
    check_dtypes("batch_norm", input, weight, bias, running_mean, running_var)
    axes = tuple(range(2, input.ndim))
    return _tracked(
        input, axes, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: jax.Array,
    normalized_shape: Sequence[int],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Normalise over the last axes.

    The counterpart of ``torch.nn.functional.layer_norm``.

    Args:
        input: ``(*, *normalized_shape)``; floating-point.
        normalized_shape: The sizes of the axes that share a mean.
        weight: ``normalized_shape`` or ``None``: multiplies the normalised input.
        bias: ``normalized_shape`` or ``None``: is added to it.
        eps: Added to the variance.

    Returns:
        The input's shape and dtype.

    Raises:
        RuntimeError: Sizes or dtypes that do not fit.
        TypeError: ``normalized_shape`` is not a sequence.
        NotImplementedError: The input is of integers.
    """
    if not isinstance(normalized_shape, Sequence):
        raise TypeError(
            "layer_norm(): argument 'normalized_shape' (position 2) must be tuple of ints, "
            f"not {type(normalized_shape).__name__}"
        )
    shape = tuple(map(operator.index, normalized_shape))
    return _layer_norm(input, weight, bias, shape=shape, eps=eps)


@functools.partial(jax.jit, static_argnames=("shape", "eps"))
def _layer_norm(
    input: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    *,
    shape: tuple[int, ...],
    eps: float,
) -> jax.Array:
    check_layer(input, weight, bias, shape)
    check_dtypes("LayerNormKernelImpl", input, weight, bias)
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    mean, var = _moments(input, axes)
    return affine(normalised(input, mean, var, eps), weight, bias, shape, input.dtype)


@functools.partial(jax.jit, static_argnames=("num_groups", "eps"))
def group_norm(
    input: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Normalise groups of channels of each example over the spatial axes.

    The counterpart of ``torch.nn.functional.group_norm``.

    Args:
        input: ``(N, C, *)``; floating-point.
        num_groups: The number of groups, a divisor of ``C``.
        weight: ``(C,)`` or ``None``: multiplies the normalised input.
        bias: ``(C,)`` or ``None``: is added to it.
        eps: Added to the variance.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: A batch of one with one value per group.
        RuntimeError: Sizes or dtypes that do not fit.
        NotImplementedError: The input is of integers.
    """
    check_groups(input, num_groups, weight, bias)
    check_dtypes("GroupNormKernelImpl", input, weight, bias)
    batch, channels = input.shape[:2]
    # (N, groups, channels of the group, *)
    grouped = input.reshape(batch, num_groups, channels // num_groups, *input.shape[2:])
    mean, var = _moments(grouped, tuple(range(2, grouped.ndim)))
    output = normalised(grouped, mean, var, eps).reshape(input.shape)
    per_channel = (1, -1) + (1,) * (input.ndim - 2)
    return affine(output, weight, bias, per_channel, input.dtype)


def _tracked(
    input: jax.Array,
    axes: tuple[int, ...],
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None,
    bias: jax.Array | None,
    from_input: bool,
    momentum: float | jax.Array,
    eps: float,
) -> Statistics:
    """Normalise by the input's statistics over ``axes``, or by the running ones."""
    if not input.size:
        return input, running_mean, running_var
    per_channel = (1, -1) + (1,) * (input.ndim - 2)
    if running_mean is None or running_var is None:
        mean, var = _moments(input, axes)
    elif not from_input:
        mean = widen(running_mean).reshape(per_channel)
        var = widen(running_var).reshape(per_channel)
    else:
        mean, var = _moments(input, axes)
        count = math.prod(input.shape[axis] for axis in axes)
        running_mean = moved(running_mean, mean, momentum)
        running_var = moved(running_var, var * (count / (count - 1)), momentum)
    output = normalised(input, mean, var, eps)
    return affine(output, weight, bias, per_channel, input.dtype), running_mean, running_var


def _moments(input: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance in two passes, with the reduced axes kept."""
    input = widen(input)
    mean = input.mean(axes, keepdims=True)
    return mean, jnp.square(input - mean).mean(axes, keepdims=True)


def normalised(input: jax.Array, mean: jax.Array, var: jax.Array, eps: float) -> jax.Array:
    """The input by its mean and variance; half types in float32."""
    return (widen(input) - mean) * lax.rsqrt(var + jnp.asarray(eps, var.dtype))


def affine(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
) -> jax.Array:
    """Times the weight plus the bias, which are read in a shape that broadcasts; cast at the end."""
    if weight is not None:
        x = x * widen(weight).reshape(shape)
    if bias is not None:
        x = x + widen(bias).reshape(shape)
    return x.astype(dtype)


def moved(running: jax.Array, new: jax.Array, momentum: float | jax.Array) -> jax.Array:
    """The running statistic moved towards the new one; outside every derivative.

    ``new`` is ``(1, C, 1, ...)``, or ``(N, C, 1, ...)`` of which the mean over ``N`` counts.
    """
    new = new.reshape(-1, running.size).mean(0)
    momentum = jnp.asarray(momentum).astype(new.dtype)
    mixed = (1 - momentum) * widen(running) + momentum * new
    return lax.stop_gradient(mixed.astype(running.dtype))
