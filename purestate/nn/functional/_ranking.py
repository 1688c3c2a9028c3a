"""Losses of comparisons: of two vectors that belong together or do not, of two scores, of a triple.

All of them pull what belongs together, and push the rest apart until a margin is reached: the part
of a difference above zero. Torch's derivative of that part at zero is 1.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from purestate.nn.functional._distance import pairwise_distance
from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._operands import (
    check_clamp,
    check_mean,
    check_negation,
    check_subtraction,
)
from purestate.nn.functional._options import listed
from purestate.nn.functional._reduction import check_reduction, reduced, settled
from purestate.nn.functional._shapes import broadcast, shown


__all__ = [
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def cosine_embedding_loss(
    input1: jax.Array,
    input2: jax.Array,
    target: jax.Array,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``1 - cos`` of vectors that belong together, ``max(0, cos - margin)`` of those that do not.

    Torch's name: ``torch.nn.functional.cosine_embedding_loss``.

    Args:
        input1: ``(N, D)``, or ``(D,)`` for one pair.
        input2: The same, or a shape that broadcasts with it.
        target: ``(N,)`` or ``()``: 1 for what belongs together, -1 for what does not; any other
            number counts for nothing.
        margin: The cosine below which vectors are far enough apart.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the target's shape; in the inputs' promoted dtype, float32 for
        integers.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not fit.
        NotImplementedError: Complex numbers.
    """
    reduction = settled(reduction, size_average, reduce)
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    axes = target.ndim + 1
    if input1.ndim != axes or input2.ndim != axes:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {axes}D input tensors, but found inputs with sizes "
            f"{listed(input1.shape)} and {listed(input2.shape)}."
        )
    shape = broadcast(input1.shape, input2.shape)
    check_clamp(jnp.result_type(input1, input2))
    broadcast(target.shape, shape[:-1])
    return _cosine(input1, input2, target, float(margin), reduction)


@functools.partial(jax.jit, static_argnames=("margin", "reduction"))
def _cosine(
    input1: jax.Array, input2: jax.Array, target: jax.Array, margin: float, reduction: str
) -> jax.Array:
    dtype = jnp.result_type(input1, input2, float)
    input1, input2 = widen(input1.astype(dtype)), widen(input2.astype(dtype))
    squares1 = jnp.square(input1).sum(-1) + 1e-12
    squares2 = jnp.square(input2).sum(-1) + 1e-12
    cosine = (input1 * input2).sum(-1) / jnp.sqrt(squares1 * squares2)  # (N,) or ()
    apart = _positive(cosine - margin)
    losses = jnp.where(target == 1, 1 - cosine, 0) + jnp.where(target == -1, apart, 0)
    return reduced(losses, reduction).astype(dtype)


def hinge_embedding_loss(
    input: jax.Array,
    target: jax.Array,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """A distance between what belongs together, ``max(0, margin - distance)`` for the rest.

    Torch's name: ``torch.nn.functional.hinge_embedding_loss``.

    Args:
        input: Distances, any shape.
        target: 1 for what belongs together, -1 for what does not, and the sum of both for any other
            number; broadcasts with the input.
        margin: The distance that is far enough; rounded to the input's dtype.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the input's dtype.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not broadcast, booleans, or the mean of integers.
        NotImplementedError: Complex numbers.
    """
    reduction = settled(reduction, size_average, reduce)
    check_subtraction(input, input)
    check_clamp(input.dtype)
    broadcast(target.shape, input.shape)
    if reduction == "mean":
        check_mean(input.dtype)
    return _hinge(input, target, float(margin), reduction)


@functools.partial(jax.jit, static_argnames=("margin", "reduction"))
def _hinge(input: jax.Array, target: jax.Array, margin: float, reduction: str) -> jax.Array:
    apart = _positive(jnp.asarray(margin).astype(input.dtype) - input)
    losses = jnp.where(target != 1, apart, 0) + jnp.where(target != -1, input, 0)
    return reduced(losses, reduction)


def margin_ranking_loss(
    input1: jax.Array,
    input2: jax.Array,
    target: jax.Array,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``max(0, margin - target * (input1 - input2))``: which of two scores should be higher.

    Torch's name: ``torch.nn.functional.margin_ranking_loss``.

    Args:
        input1: Scores, any shape.
        input2: Scores, with the same number of axes; broadcasts.
        target: 1 where ``input1`` should be higher and -1 where ``input2`` should; likewise.
        margin: The difference that is large enough.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the broadcast shape; in the promoted dtype, float32 for
        integers.

    Raises:
        ValueError: An unknown reduction.
        RuntimeError: Shapes that do not fit, or booleans.
        NotImplementedError: Complex numbers.
    """
    reduction = settled(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {shown(input1.shape)}, input2: {shown(input2.shape)}, "
            f"target: {shown(target.shape)} "
        )
    check_subtraction(input1, input2)
    shape = broadcast(input1.shape, input2.shape)
    check_negation(target)
    broadcast(target.shape, shape)
    check_clamp(jnp.result_type(input1, input2, target))
    return _ranking(input1, input2, target, float(margin), reduction)


@functools.partial(jax.jit, static_argnames=("margin", "reduction"))
def _ranking(
    input1: jax.Array, input2: jax.Array, target: jax.Array, margin: float, reduction: str
) -> jax.Array:
    dtype = jnp.result_type(input1, input2, target, float)
    losses = _positive(-target * (widen(input1) - widen(input2)) + margin)
    return reduced(losses, reduction).astype(dtype)


def triplet_margin_loss(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """``max(0, margin + |anchor - positive| - |anchor - negative|)``.

    Torch's name: ``torch.nn.functional.triplet_margin_loss``. The distances are those of
    :func:`pairwise_distance`.

    Args:
        anchor: ``(N, D)``, or ``(D,)`` for one triple.
        positive: What belongs to the anchor; the same shape, or one that broadcasts.
        negative: What does not; likewise.
        margin: How much further away it should be; above 0.
        p: The ``p`` of the norm.
        eps: Is added to the differences.
        swap: Take the distance of ``positive`` and ``negative`` where it is the smaller one.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the shape of the distances; in their dtype.

    Raises:
        ValueError: An unknown reduction, or a margin that is not positive.
        RuntimeError: Shapes that do not fit.
    """
    reduction = settled(reduction, size_average, reduce)
    _check_triple(anchor, positive, negative, margin)
    return _triplet_of_vectors(anchor, positive, negative, float(margin), p, eps, swap, reduction)


@functools.partial(jax.jit, static_argnames=("margin", "p", "eps", "swap", "reduction"))
def _triplet_of_vectors(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
    reduction: str,
) -> jax.Array:
    distance = functools.partial(pairwise_distance, p=p, eps=eps)
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    *,
    distance_function: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> jax.Array:
    """:func:`triplet_margin_loss` with a distance of the caller's own.

    Torch's name: ``torch.nn.functional.triplet_margin_with_distance_loss``.

    Args:
        anchor: Any shape that the distance takes.
        positive: What belongs to the anchor; the same number of axes.
        negative: What does not; likewise.
        distance_function: From two arrays to their distances; :func:`pairwise_distance` for None.
        margin: How much further away the negative should be; above 0.
        swap: Take the distance of ``positive`` and ``negative`` where it is the smaller one.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.

    Returns:
        A scalar, or with ``'none'`` the shape of the distances; in their dtype.

    Raises:
        ValueError: An unknown reduction, or a margin that is not positive.
        RuntimeError: Numbers of axes or distances that do not fit, or the mean of integers.
    """
    check_reduction(reduction)
    _check_triple(anchor, positive, negative, margin)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _check_triple(anchor: jax.Array, positive: jax.Array, negative: jax.Array, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )


def _triplet(
    anchor: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    distance: Callable[[jax.Array, jax.Array], jax.Array],
    margin: float,
    swap: bool,
    reduction: str,
) -> jax.Array:
    """The distances, by a function that may not be jitted, and the loss of them."""
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        swapped = distance(positive, negative)
        broadcast(far.shape, swapped.shape)
        far = jnp.minimum(far, swapped)
    broadcast(near.shape, far.shape)
    if reduction == "mean":
        check_mean(jnp.result_type(margin, near, far))
    return _triplet_of_distances(near, far, margin, reduction)


@functools.partial(jax.jit, static_argnames="reduction")
def _triplet_of_distances(near: jax.Array, far: jax.Array, margin: float, reduction: str) -> jax.Array:
    # The margin is traced: as a static option, 1 and 1.0 would be one, but they promote differently.
    return reduced(_positive(margin + near - far), reduction)


def _positive(x: jax.Array) -> jax.Array:
    """The part above zero; with torch's derivative at zero, 1, and its 0 for NaN."""
    return jnp.where(x >= 0, x, jax.lax.stop_gradient(jnp.maximum(x, 0)))
