"""Losses of classes by margin: the score of a class that is right should exceed those that are not.

Torch's derivative at the margin itself is 0. Classes are given by index. As for the other losses of
classes, an index that is none raises where its value is known; under a transformation that hides it
(``jit``, ``vmap``) the loss of its example is NaN. Halves are computed in float32 and rounded once,
at the end.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._known import known
from purestate.nn.functional._operands import check_cast, check_negation, check_subtraction
from purestate.nn.functional._options import listed
from purestate.nn.functional._reduction import (
    check_fits,
    check_floating,
    check_reduction,
    overridden,
    reduced,
    settled,
)
from purestate.nn.functional._shapes import broadcast


__all__ = [
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
]


def multi_margin_loss(
    input: jax.Array,
    target: jax.Array,
    p: int = 1,
    margin: float = 1.0,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """The mean of ``max(0, margin - input[target] + input)**p``, over the classes but for the target.

    Torch's name: ``torch.nn.functional.multi_margin_loss``. The mean divides by the number of all
    classes.

    Args:
        input: Scores ``(N, C)``, or ``(C,)`` for one example.
        target: Classes ``(N,)`` or ``()``; int32 or int64.
        p: 1 or 2.
        margin: The difference that is large enough.
        weight: ``(C,)``: multiplies the loss of an example by that of its target.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` (a weight does not divide it) or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the target's shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, another p, or a weight that has not one axis.
        RuntimeError: Sizes or dtypes that do not fit, or a target that is not a class.
        NotImplementedError: The input is not floating-point.
    """
    reduction = settled(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    _check_matrix(input)
    batch, classes = _matrix_shape(input)
    if target.ndim > 1 or target.size != batch:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{batch}], but got {listed(target.shape)}. "
            f"Input has shape {listed(input.shape)}."
        )
    if weight is not None and weight.size != classes:
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {listed(weight.shape)}"
        )
    check_floating("multi_margin_loss_cpu_kernel", input)
    _check_indices(target)
    if weight is not None and weight.dtype != input.dtype:
        raise RuntimeError(
            f"expected scalar type {scalar_type(input.dtype)} but found {scalar_type(weight.dtype)}"
        )
    if known(target) and not _all_within(target, 0, classes):
        raise RuntimeError("target out of range")
    return _multi_margin(input, target, weight, p == 2, float(margin), reduction)


@functools.partial(jax.jit, static_argnames=("is_squared", "margin", "reduction"))
def _multi_margin(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    is_squared: bool,
    margin: float,
    reduction: str,
) -> jax.Array:
    scores = widen(input).reshape(_matrix_shape(input))  # (N, C)
    classes = scores.shape[1]
    index = target.reshape(-1, 1)
    is_class = (index >= 0) & (index < classes)
    index = jnp.where(is_class, index, 0)
    terms = _hinges(margin - jnp.take_along_axis(scores, index, 1) + scores)
    if is_squared:
        terms = jnp.square(terms)
    if weight is not None:
        terms = terms * widen(weight)[index]
    losses = jnp.where(jnp.arange(classes) != index, terms, 0).sum(1) / classes
    losses = jnp.where(is_class[:, 0], losses, jnp.nan)
    return reduced(losses.reshape(target.shape), reduction).astype(input.dtype)


def multilabel_margin_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """The sum of ``max(0, 1 - input[right] + input[wrong])`` over such pairs, by the number of classes.

    Torch's name: ``torch.nn.functional.multilabel_margin_loss``.

    Args:
        input: Scores ``(N, C)``, or ``(C,)`` for one example.
        target: In the input's shape, int32 or int64: the classes that are right, in any order, and
            -1 after the last one.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` one loss per example; in the input's dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Sizes or dtypes that do not fit, or a target that is neither a class nor -1.
        NotImplementedError: The input is not floating-point.
    """
    reduction = settled(reduction, size_average, reduce)
    _check_matrix(input)
    fits = target.shape == input.shape if input.ndim == 2 else target.ndim < 2
    if not fits or target.size != input.size:
        raise RuntimeError(
            f"inconsistent target size: {listed(target.shape)} for input of size: {listed(input.shape)}"
        )
    if known(target) and not _all_within(target, -1, _matrix_shape(input)[1]):
        raise RuntimeError("argument #2 'target' is out of range")
    check_floating("multilabel_margin_loss_forward_out_frame", input)
    _check_indices(target)
    return _multilabel_margin(input, target, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _multilabel_margin(input: jax.Array, target: jax.Array, reduction: str) -> jax.Array:
    scores = widen(input).reshape(_matrix_shape(input))  # (N, C)
    classes = scores.shape[1]
    target = target.reshape(scores.shape)
    is_listed = jnp.cumprod(target >= 0, 1, dtype=bool)  # Up to the first -1.
    index = jnp.where(is_listed & (target < classes), target, 0)
    # (N, C of the target, C of the input)
    is_right = is_listed[:, :, None] & (index[:, :, None] == jnp.arange(classes))
    is_pair = is_listed[:, :, None] & ~is_right.any(1, keepdims=True)
    terms = _hinges(1 - jnp.take_along_axis(scores, index, 1)[:, :, None] + scores[:, None])
    losses = jnp.where(is_pair, terms, 0).sum((1, 2)) / classes
    losses = jnp.where(((target >= -1) & (target < classes)).all(1), losses, jnp.nan)
    return reduced(losses.reshape(input.shape[:-1]), reduction).astype(input.dtype)


def multilabel_soft_margin_loss(
    input: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """The mean of ``-t log(sigmoid(x)) - (1 - t) log(sigmoid(-x))`` over the classes.

    Torch's name: ``torch.nn.functional.multilabel_soft_margin_loss``.

    Args:
        input: Logits ``(N, C)`` or ``(*, C)``.
        target: Whether each class is right, 1 or 0; broadcasts with the input.
        weight: Multiplies the losses; broadcasts with them.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the shape without the axis of the classes; in the promoted
        dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not broadcast, or a target of booleans.
        IndexError: The input has no axis.
        NotImplementedError: The input is not floating-point.
    """
    reduction = overridden(reduction, size_average, reduce)
    check_floating("log_sigmoid_cpu", input)
    shape = broadcast(target.shape, input.shape)
    check_subtraction(target)
    if weight is not None:
        broadcast(shape, weight.shape)
    if not input.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    check_reduction(reduction, "is not valid")
    return _multilabel_soft_margin(input, target, weight, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _multilabel_soft_margin(
    input: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: str
) -> jax.Array:
    dtype = jnp.result_type(input, target, *([] if weight is None else [weight]))
    logits, target = widen(input), widen(target)
    losses = -(target * jax.nn.log_sigmoid(logits) + (1 - target) * jax.nn.log_sigmoid(-logits))
    if weight is not None:
        losses = losses * widen(weight)
    # The axis is counted from the front of what may have more axes by now.
    losses = losses.sum(input.ndim - 1) / input.shape[-1]
    return reduced(losses, reduction).astype(dtype)


def soft_margin_loss(
    input: jax.Array,
    target: jax.Array,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``log(1 + exp(-target * input))`` (``torch.nn.functional.soft_margin_loss``).

    Torch's own overflows where the exponential does; this one is the line ``-target * input`` there.

    Args:
        input: Scores, any shape.
        target: 1 or -1; broadcasts to the input.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the input's shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: A target that does not broadcast to the input, or an input of integers or
            booleans.
    """
    reduction = settled(reduction, size_average, reduce)
    check_negation(input)
    check_fits(input.shape, target)
    check_cast(jnp.result_type(input, target, float), input.dtype)
    return _soft_margin(input, target, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _soft_margin(input: jax.Array, target: jax.Array, reduction: str) -> jax.Array:
    losses = jax.nn.softplus(-widen(input) * widen(target))
    return reduced(losses, reduction).astype(input.dtype)


def _matrix_shape(input: jax.Array) -> tuple[int, int]:
    """``(N, C)``: one example for a vector, and one class for a scalar."""
    return (input.shape[0] if input.ndim == 2 else 1), (input.shape[-1] if input.ndim else 1)


def _check_matrix(input: jax.Array) -> None:
    if input.ndim > 2 or 0 in input.shape[-1:]:
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{listed(input.shape)}"
        )


def _check_indices(target: jax.Array) -> None:
    if target.dtype not in (jnp.int32, jnp.int64):
        raise RuntimeError(f"expected scalar type Long but found {scalar_type(target.dtype)}")


def _all_within(target: jax.Array, start: int, stop: int) -> bool:
    values = np.asarray(target)
    return bool(((values >= start) & (values < stop)).all())


def _hinges(x: jax.Array) -> jax.Array:
    """The part above zero; with torch's derivative at zero, 0, and its 0 for NaN."""
    return jnp.where(x > 0, x, 0)
