"""Losses of distributions: how unlikely a target is under the distribution that the input describes.

Each is a formula of elements that broadcast; halves are computed in float32 and rounded once, at
the end.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from purestate._warning import warn
from purestate.nn.functional._dtypes import cpp_type, widen
from purestate.nn.functional._graft import graft
from purestate.nn.functional._known import known
from purestate.nn.functional._operands import check_cast, check_comparison, check_subtraction
from purestate.nn.functional._reduction import (
    check_reduction,
    overridden,
    reduced,
    settled,
)
from purestate.nn.functional._shapes import broadcast


__all__ = ["gaussian_nll_loss", "kl_div", "poisson_nll_loss"]


def gaussian_nll_loss(
    input: jax.Array,
    target: jax.Array,
    var: jax.Array | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> jax.Array:
    """``(log(var) + (input - target)**2 / var) / 2``: the target is drawn from N(input, var).

    Torch's name: ``torch.nn.functional.gaussian_nll_loss``. Variances below ``eps`` count as
    ``eps``, but keep their derivative. Negative ones raise where they are known, and count as
    ``eps`` under ``jit``.

    Args:
        input: The means, any shape.
        target: The samples; broadcasts with the input.
        var: The variances: in the input's shape, or without its last axis, or with one of its axes
            of size 1; or one number.
        full: Add the constant ``log(2 pi) / 2``.
        eps: The smallest variance.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype.

    Raises:
        ValueError: An unknown reduction, negative variances or variances in another shape.
        RuntimeError: Shapes that do not broadcast, variances of integers, or booleans.
    """
    if isinstance(var, int | float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * jnp.ones(input.shape, jnp.result_type(input, float))
    check_comparison("lt_cpu", var)
    if known(var) and (np.asarray(var) < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if input.ndim and var.shape == input.shape[:-1]:
            var = jnp.expand_dims(var, -1)
        elif not _has_one_shared_axis(input, var):
            raise ValueError("var is of incorrect size")
    check_reduction(reduction, "is not valid")
    check_cast(jnp.float32, var.dtype, cpp_type)
    check_subtraction(input, target)
    broadcast(input.shape, target.shape)
    return _gaussian(input, target, var, full, float(eps), reduction)


def _has_one_shared_axis(input: jax.Array, var: jax.Array) -> bool:
    """Whether the variances differ from the input in one axis, where they have size 1.

    Torch adds up the sizes of ``var`` that differ and asks for 1: an axis of size 0 passes too.
    """
    differing = [own for size, own in zip(input.shape, var.shape, strict=False) if own != size]
    return input.ndim == var.ndim and sum(differing) == 1


@functools.partial(jax.jit, static_argnames=("full", "eps", "reduction"))
def _gaussian(
    input: jax.Array, target: jax.Array, var: jax.Array, full: bool, eps: float, reduction: str
) -> jax.Array:
    dtype = jnp.result_type(input, target, var)
    var = widen(var)
    var = graft(jnp.maximum(var, eps), var)
    losses = 0.5 * (jnp.log(var) + jnp.square(widen(input) - widen(target)) / var)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction).astype(dtype)


def poisson_nll_loss(
    input: jax.Array,
    target: jax.Array,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``exp(input) - target * input``: the target is drawn from Poisson(exp(input)).

    Torch's name: ``torch.nn.functional.poisson_nll_loss``.

    Args:
        input: The logarithms of the expected counts, any shape; or the counts themselves.
        target: The counts; broadcasts with the input.
        log_input: Whether the input is logarithms. If not, the loss is
            ``input - target * log(input + eps)``.
        full: Add Stirling's approximation of ``log(target!)``, for targets above 1.
        size_average: Deprecated in torch; warns.
        eps: Keeps the logarithm of an expected count of 0 finite.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype, float32 for
        integers.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not broadcast, or booleans.
    """
    reduction = overridden(reduction, size_average, reduce)
    check_reduction(reduction)
    broadcast(target.shape, input.shape)
    if jnp.result_type(input, target) == jnp.bool_ or not log_input:
        check_subtraction(input)
    if full:
        check_subtraction(target)
        check_comparison("le_cpu", target)
    return _poisson(input, target, log_input, full, float(eps), reduction)


@functools.partial(jax.jit, static_argnames=("log_input", "full", "eps", "reduction"))
def _poisson(
    input: jax.Array, target: jax.Array, log_input: bool, full: bool, eps: float, reduction: str
) -> jax.Array:
    dtype = jnp.result_type(jnp.result_type(input, float), target)
    input, target = widen(input.astype(dtype)), widen(target.astype(dtype))
    if log_input:
        losses = jnp.exp(input) - target * input
    else:
        losses = input - target * jnp.log(input + eps)
    if full:
        is_small = target <= 1
        count = jnp.where(is_small, 1, target)  # Keeps the logarithm's derivative finite.
        stirling = count * jnp.log(count) - count + 0.5 * jnp.log(2 * math.pi * count)
        losses = losses + jnp.where(is_small, 0, stirling)
    return reduced(losses, reduction).astype(dtype)


def kl_div(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> jax.Array:
    """``target * (log(target) - input)``: the divergence of the input from the target.

    Torch's name: ``torch.nn.functional.kl_div``. As in torch, ``'mean'`` is no divergence, and
    warns: it divides by the number of elements. ``'batchmean'`` divides by the size of the batch.

    Args:
        input: Log-probabilities, any shape.
        target: Probabilities; broadcasts with the input.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'batchmean'``, ``'mean'`` or ``'sum'``.
        log_target: Whether the target is log-probabilities.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not broadcast, or numbers that are not floating-point.
    """
    is_legacy = size_average is not None or reduce is not None
    if reduction == "mean" and not is_legacy:
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
        )
    by_batch = reduction == "batchmean"
    reduction = settled("sum" if by_batch else reduction, size_average, reduce)
    for array in (input, target):
        if jnp.iscomplexobj(array):
            raise RuntimeError("kl_div: Complex inputs not supported.")
    for array in (input, target):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise RuntimeError("kl_div: Integral inputs not supported.")
    broadcast(target.shape, input.shape)
    return _kl_div(input, target, reduction, by_batch, log_target)


@functools.partial(jax.jit, static_argnames=("reduction", "by_batch", "log_target"))
def _kl_div(
    input: jax.Array, target: jax.Array, reduction: str, by_batch: bool, log_target: bool
) -> jax.Array:
    dtype = jnp.result_type(input, target)
    logs, target = widen(input), widen(target)
    if log_target:
        losses = jnp.exp(target) * (target - logs)
    else:
        losses = xlogy(target, target) - target * logs
    result = reduced(losses, reduction)
    if by_batch and input.ndim:
        result = result / input.shape[0]
    return result.astype(dtype)
