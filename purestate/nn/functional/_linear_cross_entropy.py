"""Cross entropy of a linear map, without all of its logits at once.

The logits of a vocabulary are the largest array of a language model. With options the batch goes
through ``lax.map`` in chunks of rows; ``jax.checkpoint`` makes a chunk's logits again in the backward
pass instead of keeping them. Without options it is ``cross_entropy(linear(...))``.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from purestate._warning import warn
from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._linear import linear
from purestate.nn.functional._linear_cross_entropy_options import LinearCrossEntropyOptions
from purestate.nn.functional._loss import cross_entropy, target_weights
from purestate.nn.functional._loss_checks import check_classes
from purestate.nn.functional._reduction import check_floating, reduced


__all__ = ["linear_cross_entropy"]


def linear_cross_entropy(
    input: jax.Array,
    linear_weight: jax.Array,
    target: jax.Array,
    *,
    linear_bias: jax.Array | None = None,
    weight: jax.Array | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> jax.Array:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    Torch's name: ``torch.nn.functional.linear_cross_entropy``. The options are for classes as
    indices, without smoothing and with a 2-D weight; elsewhere they are ignored, with a warning.

    Args:
        input: ``(N, in_features)``, or ``(in_features,)`` for one example.
        linear_weight: ``(C, in_features)``, or ``(C, *, in_features)`` for a loss of several axes.
        target: Classes ``(N,)``, ``(N, *)`` or ``()``; or probabilities in the shape of the logits.
        linear_bias: ``(C,)`` or ``(C, *)``.
        weight: ``(C,)``: the weight of each class.
        reduction: ``'none'``, ``'sum'``, or ``'mean'``: over the examples that count, by weight.
        ignore_index: A target class that counts for nothing; -100 when None. Not for probabilities.
        label_smoothing: How much of the target is spread evenly over the classes, in [0, 1].
        options: Go through the batch in chunks; ``LinearCrossEntropyOptions`` says of what size.

    Returns:
        A scalar, or with ``'none'`` the shape of the classes; in the input's dtype.

    Raises:
        ValueError: An unknown reduction, batches of different sizes, or options that disagree.
        RuntimeError: Other sizes or dtypes that do not fit.
        IndexError: A target is not a class.
    """
    _check(input, linear_weight, linear_bias)
    shape = (*input.shape[:-1], *linear_weight.shape[:-1])
    if target.shape == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    ignore_index = -100 if ignore_index is None else ignore_index
    if options is not None:
        is_simple = reduction in ("mean", "sum", "none") and label_smoothing == 0.0
        is_class = target.dtype in (jnp.int32, jnp.int64)
        if is_simple and is_class and linear_weight.ndim == 2:
            arrays = (input, linear_weight, target, linear_bias, weight)
            return _in_chunks(*arrays, reduction, ignore_index, options)
        _warn(linear_weight, target, linear_bias, reduction, label_smoothing)
    # A weight of several axes is one of many classes, and its logits are cut into them again.
    matrix = linear_weight.reshape(-1, input.shape[-1])
    logits = linear(input, matrix, None if linear_bias is None else linear_bias.reshape(-1))
    return cross_entropy(
        logits.reshape(shape),
        target,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def _check(input: jax.Array, linear_weight: jax.Array, linear_bias: jax.Array | None) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}"
        )
    features = input.shape[-1]
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {features} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:-1]:
        raise RuntimeError(
            f"expected linear_bias shape {linear_weight.shape[:-1]}, got {linear_bias.shape}"
        )
    if linear_weight.ndim > 2 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {linear_weight.shape} requires "
            f"batched input, (N, {features}), got unbatched input with shape {input.shape}"
        )


def _warn(linear_weight, target, linear_bias, reduction: str, label_smoothing: float) -> None:
    warn(
        "linear_cross_entropy: ``options`` ignored; chunked path needs "
        "reduction in {'mean','sum','none'}, label_smoothing == 0, target.dtype == int64, "
        f"out_features == (). Got reduction={reduction!r}, label_smoothing={label_smoothing}, "
        f"target.dtype=torch.{target.dtype.name}, out_features={linear_weight.shape[1:-1]}, "
        f"tracing=False, linear_bias.shape={None if linear_bias is None else linear_bias.shape}.",
    )


def _in_chunks(
    input: jax.Array,
    linear_weight: jax.Array,
    target: jax.Array,
    linear_bias: jax.Array | None,
    weight: jax.Array | None,
    reduction: str,
    ignore_index: int,
    options: LinearCrossEntropyOptions,
) -> jax.Array:
    is_batch = input.ndim == 2
    classes, features = linear_weight.shape
    # Of logits that never exist as a whole, what the checks look at.
    logits: Any = jax.ShapeDtypeStruct((*input.shape[:-1], classes), input.dtype)
    check_classes(logits, target, weight, ignore_index)
    check_floating("log_softmax_lastdim_kernel_impl", input)
    options.check_dtype(input.dtype)
    rows = options.rows(input.shape[0] if is_batch else 1, features, classes)
    if not is_batch:
        input, target = input[None], target.reshape(1)
    arrays = (input, linear_weight, target, linear_bias, weight, ignore_index)
    loss = _chunked(*arrays, reduction, rows)
    return loss if is_batch or reduction != "none" else loss[0]


@functools.partial(jax.jit, static_argnames=("reduction", "rows"))
def _chunked(
    input: jax.Array,
    linear_weight: jax.Array,
    target: jax.Array,
    linear_bias: jax.Array | None,
    weight: jax.Array | None,
    ignore_index: int,
    reduction: str,
    rows: int,
) -> jax.Array:
    dtype = widen(jnp.zeros((), input.dtype)).dtype
    batch, classes = input.shape[0], linear_weight.shape[0]
    logits: Any = jax.ShapeDtypeStruct((batch, classes), dtype)
    counts, index, weights = target_weights(logits, target, weight, ignore_index)
    # Wide outside of the loop, so that the gradients of the chunks are summed in float32.
    wide_weight = widen(linear_weight)
    wide_bias = None if linear_bias is None else widen(linear_bias)

    @jax.checkpoint
    def losses(chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
        input, index = chunk
        # (rows, in) x (classes, in) -> (rows, classes), summed in float32 for halves
        along = (((1,), (1,)), ((), ()))
        linear_weight = wide_weight.astype(input.dtype)
        logits = lax.dot_general(input, linear_weight, along, preferred_element_type=dtype)
        if wide_bias is not None:
            logits = logits + wide_bias
        picked = jnp.take_along_axis(logits, index[:, None], 1, mode="fill")
        return jax.nn.logsumexp(logits, 1) - picked[:, 0]

    chunks = -(-batch // rows)
    spare = chunks * rows - batch
    inputs = jnp.pad(input, ((0, spare), (0, 0))).reshape(chunks, rows, -1)
    indices = jnp.pad(index, (0, spare)).reshape(chunks, rows)
    each = lax.map(losses, (inputs, indices)).reshape(-1)[:batch]
    if reduction == "mean":
        counts = counts | (weights.sum() == 0)  # The gradient of a mean of nothing is NaN, too.
    return reduced(jnp.where(counts, each, 0) * weights, reduction, weights).astype(input.dtype)
