"""Losses of classes: cross entropy of logits, of log-probabilities, and of two classes.

Targets are indices of classes or their probabilities. An index outside the classes raises torch's
error where its value is known; under a transformation that hides it (``jit``, ``vmap``) its loss is
NaN. Losses of halves are summed in float32 and rounded once, at the end.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._dtypes import scalar_type, spread, widen
from purestate.nn.functional._known import known
from purestate.nn.functional._loss_checks import (
    check_arrays,
    check_binary_weight,
    check_classes,
    check_probabilities,
    check_unit_interval,
)
from purestate.nn.functional._operands import check_cast
from purestate.nn.functional._reduction import check_fits, check_floating, reduced, settled
from purestate.nn.functional._shapes import shown
from purestate.nn.functional._softmax import log_softmax
from purestate.nn.functional._tangents import moves


__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"]


def cross_entropy(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> jax.Array:
    """``-log(softmax(input))`` at the target (``torch.nn.functional.cross_entropy``).

    Args:
        input: Logits ``(N, C)``, ``(N, C, *)``, or ``(C,)`` for one example.
        target: Classes ``(N,)``, ``(N, *)`` or ``()``, int32, int64 or uint8; or probabilities of
            the classes, in the input's shape.
        weight: ``(C,)``: the weight of each class.
        size_average: Deprecated in torch; warns.
        ignore_index: A target class that counts for nothing. Not for probabilities.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'sum'``, or ``'mean'``: over the examples that count, by weight.
        label_smoothing: How much of the target is spread evenly over the classes, in [0, 1].

    Returns:
        A scalar, or with ``'none'`` the shape of the classes; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, or batches of different sizes.
        RuntimeError: Other sizes or dtypes that do not fit, or a smoothing above 1.
        IndexError: A target is not a class, or the input has no axis.
    """
    reduction = settled(reduction, size_average, reduce)
    is_probability = input.shape == target.shape
    if is_probability:
        check_probabilities(input, target, weight, ignore_index)
    if label_smoothing > 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    check_floating("log_softmax_lastdim_kernel_impl", input)
    if is_probability:
        return _soft(input, target, weight, reduction, label_smoothing)
    check_classes(input, target, weight, ignore_index)
    return _hard(input, target, weight, reduction, ignore_index, label_smoothing)


def nll_loss(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``-input`` at the target class (``torch.nn.functional.nll_loss``).

    Args:
        input: Log-probabilities ``(N, C)``, ``(N, C, *)``, or ``(C,)`` for one example.
        target: Classes ``(N,)``, ``(N, *)`` or ``()``; int32, int64 or uint8.
        weight: ``(C,)``: the weight of each class.
        size_average: Deprecated in torch; warns.
        ignore_index: A target class that counts for nothing.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'sum'``, or ``'mean'``: over the examples that count, by weight.

    Returns:
        A scalar, or with ``'none'`` the target's shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, or batches of different sizes.
        RuntimeError: Other sizes or dtypes that do not fit.
        IndexError: A target is not a class.
    """
    reduction = settled(reduction, size_average, reduce)
    check_classes(input, target, weight, ignore_index)
    check_floating("nll_loss_out_frame", input)
    return _nll(input, target, weight, reduction, ignore_index)


def _class_axis(input: jax.Array) -> int:
    return 0 if input.ndim == 1 else 1


def _along_classes(weight: jax.Array, input: jax.Array) -> jax.Array:
    """``(C,)`` made to broadcast against ``(N, C, *)``."""
    return weight.reshape(-1, *(1,) * (input.ndim - 1 - _class_axis(input)))


def target_weights(
    input: jax.Array, target: jax.Array, weight: jax.Array | None, ignore_index: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which targets count, their index (past the end if it is not a class), and their weight."""
    # A uint8 cannot hold an ignore_index of -100.
    target = target.astype(jnp.promote_types(target.dtype, jnp.int32))
    counts = target != ignore_index
    index = jnp.where(counts, jnp.where(target < 0, input.shape[_class_axis(input)], target), 0)
    ones = jnp.ones(target.shape, input.dtype)
    if weight is None or not weight.size:  # Without classes every target is ignored.
        weights = ones
    else:
        weights = weight.astype(input.dtype).at[index].get(mode="fill")
    return counts, index, jnp.where(counts, weights, 0)


@functools.partial(jax.jit, static_argnames=("reduction", "ignore_index"))
def _nll(
    input: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: str, ignore_index: int
) -> jax.Array:
    dtype, input = input.dtype, widen(input)
    if input.ndim == 1:
        target = target.reshape(())
    counts, index, weights = target_weights(input, target, weight, ignore_index)
    axis = _class_axis(input)
    if input.ndim == 1:
        picked = input.at[index].get(mode="fill")
    else:
        picked = jnp.take_along_axis(input, jnp.expand_dims(index, axis), axis, mode="fill")
        picked = picked.squeeze(axis)
    losses = -jnp.where(counts, picked, 0) * weights
    return reduced(losses, reduction, weights).astype(dtype)


@functools.partial(jax.jit, static_argnames=("reduction", "ignore_index", "label_smoothing"))
def _hard(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> jax.Array:
    axis = _class_axis(input)
    logs = log_softmax(input, axis)
    loss = _nll(logs, target, weight, reduction, ignore_index)
    if label_smoothing <= 0.0:
        return loss
    logs = widen(logs)
    counts, _, weights = target_weights(logs, target, weight, ignore_index)
    spread = logs if weight is None else logs * _along_classes(weight.astype(logs.dtype), logs)
    # (N, *): every class counts the same.
    smooth = reduced(jnp.where(counts, -spread.sum(axis), 0), reduction, weights)
    share = _share(label_smoothing, input.shape[axis])
    return ((1 - label_smoothing) * widen(loss) + share * smooth).astype(input.dtype)


def _share(label_smoothing: float, classes: int) -> float:
    """What every class gets; of none it is infinite, as in C++."""
    return label_smoothing / classes if classes else math.inf


@functools.partial(jax.jit, static_argnames=("reduction", "label_smoothing"))
def _soft(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: str,
    label_smoothing: float,
) -> jax.Array:
    axis = _class_axis(input)
    classes = input.shape[axis]
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + _share(label_smoothing, classes)
    products = widen(log_softmax(input, axis)) * widen(target)  # (N, C, *)
    if weight is not None:
        products = products * _along_classes(weight, input)
    dtype = jnp.result_type(input, target, *([] if weight is None else [weight]))
    if reduction == "none":
        return -products.sum(axis).astype(dtype)
    total = -products.sum()
    if reduction == "mean":
        total = total / (math.prod(input.shape) // classes) if input.size else total * jnp.nan
    return total.astype(dtype)


def binary_cross_entropy(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``-t log(x) - (1 - t) log(1 - x)`` (``torch.nn.functional.binary_cross_entropy``).

    As in torch, the logarithms end at -100 and the derivative at ``1e12``. Values outside of
    [0, 1] raise where they are known, and are not noticed under ``jit``.

    Args:
        input: Probabilities, any shape.
        target: Probabilities in the input's shape and dtype.
        weight: Multiplies the losses; broadcasts to the input.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the input's shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, or shapes that differ.
        RuntimeError: Dtypes or a weight that do not fit, or values outside of [0, 1].
    """
    reduction = settled(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({shown(target.shape)}) that is different to the input size "
            f"({shown(input.shape)}) is deprecated. Please ensure they have the same size."
        )
    check_binary_weight(target, weight)
    if target.dtype != input.dtype:
        raise RuntimeError(
            f"Found dtype {scalar_type(target.dtype)} but expected {scalar_type(input.dtype)}"
        )
    check_floating("binary_cross_entropy", input)
    for name, array in (("input", input), ("target", target)):
        if known(array):
            check_unit_interval(name, np.asarray(array))
    return _binary(input, target, weight, reduction)


@jax.custom_jvp
def _binary_losses(input: jax.Array, target: jax.Array) -> jax.Array:
    at_one = jnp.maximum(jnp.log(input), -100)
    at_zero = jnp.maximum(jnp.log1p(-input), -100)
    return (target - 1) * at_zero - target * at_one


@functools.partial(_binary_losses.defjvp, symbolic_zeros=True)
def _binary_losses_jvp(primals, tangents):
    input, target = primals
    output = _binary_losses(input, target)
    slopes = (
        (input - target) / jnp.maximum((1 - input) * input, 1e-12),
        jnp.log1p(-input) - jnp.log(input),  # Infinite at 0 and 1: it may not meet a zero.
    )
    terms = [slope * tangent for slope, tangent in zip(slopes, tangents, strict=True) if moves(tangent)]
    return output, sum(terms[1:], start=terms[0]) if terms else jnp.zeros_like(output)


@functools.partial(jax.jit, static_argnames="reduction")
def _binary(input: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: str) -> jax.Array:
    losses = _binary_losses(widen(input), widen(target))
    if weight is not None:
        losses = losses * weight.astype(losses.dtype)
    return reduced(losses, reduction).astype(input.dtype)


def binary_cross_entropy_with_logits(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: jax.Array | None = None,
) -> jax.Array:
    """``binary_cross_entropy(sigmoid(input), target)``, stably.

    Torch's name: ``torch.nn.functional.binary_cross_entropy_with_logits``.

    Args:
        input: Logits, any shape.
        target: Probabilities in the input's shape.
        weight: Multiplies the losses; broadcasts to the input.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        pos_weight: Multiplies the part of the positive class; broadcasts to the input.

    Returns:
        A scalar, or with ``'none'`` the input's shape; in the target's dtype.

    Raises:
        ValueError: An unknown reduction, or shapes that differ.
        TypeError: A weight that is a number.
        RuntimeError: Dtypes or weights that do not fit.
    """
    reduction = settled(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({shown(target.shape)}) must be the same as input size ({shown(input.shape)})"
        )
    check_arrays("binary_cross_entropy_with_logits", 3, weight=weight, pos_weight=pos_weight)
    check_floating("log_sigmoid_cpu", input)
    if pos_weight is not None:
        check_fits(input.shape, pos_weight, first=True)
    check_cast(input.dtype, target.dtype)
    if weight is not None:
        check_fits(input.shape, weight)
    return _binary_logits(input, target, weight, pos_weight, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _binary_logits(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    pos_weight: jax.Array | None,
    reduction: str,
) -> jax.Array:
    input, dtype = widen(input), target.dtype
    log_sigmoid = -jnp.logaddexp(-input, 0)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((spread(pos_weight, input.shape) - 1) * target + 1)
    losses = (1 - target) * input - log_sigmoid
    if weight is not None:
        losses = losses * weight
    return reduced(losses, reduction).astype(dtype)
