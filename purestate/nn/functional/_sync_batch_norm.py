"""Batch normalisation over a group: the statistics of what all members of a mapped axis hold.

A mapped axis (``jax.shard_map`` over a mesh, ``jax.vmap`` or ``jax.pmap`` with an ``axis_name``) is
what a process group is in torch. Sums are added over it before they are divided by the count of the
whole batch, so every member normalises by the mean and variance of all.
"""

import functools
import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._norm import Statistics, affine, moved, normalised
from purestate.nn.functional._norm_checks import check_channels, check_dtypes


@functools.partial(jax.jit, static_argnames=("eps", "group"))
def sync_batch_norm(
    input: jax.Array,
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None,
    bias: jax.Array | None,
    momentum: float | jax.Array,
    eps: float,
    group: Hashable,
) -> Statistics:
    """``batch_norm`` in training, by the statistics of a whole group.

    Args:
        input: ``(N, C, *)``: this member's part of the batch; floating-point.
        running_mean: ``(C,)`` or ``None``.
        running_var: ``(C,)`` or ``None``.
        weight: ``(C,)`` or ``None``: multiplies the normalised input.
        bias: ``(C,)`` or ``None``: is added to it.
        momentum: How far the statistics move. May be a traced scalar.
        eps: Added to the variance.
        group: The name of the mapped axis, or a tuple of names.

    Returns:
        The output in the input's shape and dtype, and the two running statistics, the same for
        every member.

    Raises:
        ValueError: One value per channel in the whole group, only one of the two statistics given, or
            an eps that is not positive.
        RuntimeError: Sizes or dtypes that do not fit.
        NameError: Outside of the mapped axis.
    """
    members = lax.axis_size(group)
    whole = (input.shape[0] * members, *input.shape[1:])
    check_channels(whole, running_mean, running_var, weight, bias, True, eps)
    check_dtypes("batch_norm", input, weight, bias, running_mean, running_var)
    if not input.size:  # For the whole group: all members have one shape.
        return input, running_mean, running_var
    axes = (0, *range(2, input.ndim))
    count = members * math.prod(input.shape[axis] for axis in axes)

    def mean_of(x: jax.Array) -> jax.Array:
        return lax.psum(x.sum(axes, keepdims=True), group) / count

    mean = mean_of(widen(input))
    var = mean_of(jnp.square(widen(input) - mean))
    if running_mean is not None and running_var is not None:
        running_mean = moved(running_mean, mean, momentum)
        running_var = moved(running_var, var * (count / (count - 1)), momentum)
    output = normalised(input, mean, var, eps)
    per_channel = (1, -1) + (1,) * (input.ndim - 2)
    return affine(output, weight, bias, per_channel, input.dtype), running_mean, running_var
