"""Sums, means and maxima over bags of rows of a table.

A bag is a row of a 2-D input, or a stretch of a 1-D input that begins at an offset. The rows are
looked up as ``embedding`` does it and reduced by axis in the first case, by segment in the second.
Rows of ``padding_idx`` are in no bag; a bag of nothing gives zeros.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purestate._warning import warn
from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._embedding import embedding
from purestate.nn.functional._known import known
from purestate.nn.functional._shapes import shown


__all__ = ["embedding_bag"]

_INTEGERS = (jnp.int32, jnp.int64)


def embedding_bag(
    input: jax.Array,
    weight: jax.Array,
    offsets: jax.Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: jax.Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> jax.Array:
    """Reduce bags of rows of ``weight``.

    The counterpart of ``torch.nn.functional.embedding_bag``. Indices, and the first and the last
    offset, are checked where their values are known. Under a transformation that hides them
    (``jit``, ``vmap``) an index outside the table gives NaN. What lies past the last offset of
    ``include_last_offset=True`` is in no bag.

    Args:
        input: Integers, 32 or 64 bits: ``(B, N)``, which is ``B`` bags of ``N``, or ``(N,)``.
        weight: ``(num_embeddings, embedding_dim)``.
        offsets: ``(B,)``: where each bag of a 1-D input begins, in rising order, the first at 0.
        max_norm: Rows with a larger norm are looked up scaled down to it. The weight itself does
            not change (it does in torch): see ``embedding_renorm``.
        norm_type: The ``p`` of that norm.
        scale_grad_by_freq: Divide a row's gradient by the number of times it was looked up. Not
            for ``'max'``.
        mode: ``'sum'``, ``'mean'`` or ``'max'``.
        sparse: Accepted for torch's sake, not with ``'max'``; gradients are always dense.
        per_sample_weights: In the input's shape and the weight's dtype: what each row counts in the
            sum. Only for ``'sum'``.
        include_last_offset: Whether a last offset says where the last bag ends.
        padding_idx: The row that no bag contains; negative counts from the end.

    Returns:
        ``(B, embedding_dim)`` in the weight's dtype.

    Raises:
        ValueError: Shapes, modes and options that do not fit together.
        NotImplementedError: ``per_sample_weights`` for a mean or a maximum.
        RuntimeError: Dtypes that do not fit, or values out of range.
    """
    if weight.dtype in _INTEGERS and jnp.issubdtype(input.dtype, jnp.floating):
        warn(
            "Argument order of nn.functional.embedding_bag was changed. "
            "Usage `embedding_bag(weight, input, ...)` is deprecated, "
            "and should now be `embedding_bag(input, weight, ...)`.",
        )
        weight, input = input, weight
    _check_shapes(input, weight, offsets, per_sample_weights)
    _check_mode(mode, scale_grad_by_freq, sparse, per_sample_weights)
    padding_idx = _check_values(
        input, weight, offsets, per_sample_weights, mode, include_last_offset, padding_idx
    )
    return _embedding_bag(
        input,
        weight,
        offsets,
        per_sample_weights,
        max_norm,
        norm_type,
        scale_grad_by_freq,
        mode,
        include_last_offset,
        padding_idx,
    )


def _check_shapes(input, weight, offsets, per_sample_weights) -> None:
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({shown(per_sample_weights.shape)}) is not None, "
            f"then it must have the same shape as the input ({shown(input.shape)})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if input.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        return
    if offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            f"fixed length sequences. However, found offsets of type {type(offsets)}"
        )
    if input.shape[1] == 0:
        raise RuntimeError("step must be nonzero")


def _check_mode(mode: str, scale_grad_by_freq: bool, sparse: bool, per_sample_weights) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if mode != "sum" and per_sample_weights is not None:
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )


def _check_values(
    input, weight, offsets, per_sample_weights, mode, include_last_offset, padding_idx
) -> int | None:
    """The dtypes, and the values where they are known; returns the padding index counted from 0."""
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise RuntimeError(
                "padding_idx must be within the number of embeddings, "
                f"-{rows} through {rows - 1}, but got {padding_idx}"
            )
        padding_idx %= rows
    for array in (input, *([] if offsets is None else [offsets])):
        if array.dtype not in _INTEGERS:
            raise RuntimeError(_one_of("indices", "Long, Int", array))
    if not jnp.issubdtype(weight.dtype, jnp.floating):
        raise RuntimeError(_one_of("weight", "Half, BFloat16, Float, Double", weight))
    if offsets is not None:
        _check_offsets(input, offsets, include_last_offset)
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument "
            f"#1 'per_sample_weights'; but type torch.{scalar_type(weight.dtype)}Tensor does not "
            f"equal torch.{scalar_type(per_sample_weights.dtype)}Tensor "
            "(while checking arguments for embedding_bag)"
        )
    if known(input):
        values = np.asarray(input).ravel()
        places = np.flatnonzero((values < 0) | (values >= rows))
        if places.size:
            place, value = places[0], values[places[0]]
            # What torch has a fast kernel for, it words in another way.
            if mode != "max" and padding_idx is None and weight.dtype != jnp.float64:
                raise RuntimeError(
                    f"Index {place} of input takes value {value} which is not in the valid range "
                    f"[0, {rows})"
                )
            raise RuntimeError(
                f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {value}"
            )
    return padding_idx


def _one_of(name: str, types: str, array: jax.Array) -> str:
    return (
        f"Expected tensor for argument #1 '{name}' to have one of the following scalar types: {types}; "
        f"but got torch.{scalar_type(array.dtype)}Tensor instead "
        "(while checking arguments for embedding_bag)"
    )


def _check_offsets(input: jax.Array, offsets: jax.Array, include_last_offset: bool) -> None:
    if known(offsets):
        first, last = np.asarray(offsets)[[0, -1]]
        if first != 0:
            raise RuntimeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                f"position 0. However, got {first}"
            )
        if last > input.size:
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length {input.size} but got offsets[-1] "
                f"of {last}"
            )
    if include_last_offset and offsets.size == 0:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")


class _Bags(NamedTuple):
    """Which rows are together.

    Attributes:
        number: How many bags there are.
        bag: The bag of each row, or None where each bag has as many rows as every other.
    """

    number: int
    bag: jax.Array | None

    def sum(self, values: jax.Array) -> jax.Array:
        """``(rows, D)`` to ``(number, D)``."""
        if self.bag is None:
            return values.reshape(self.number, -1, values.shape[1]).sum(1)
        return jax.ops.segment_sum(values, self.bag, self.number, indices_are_sorted=True)

    def first_highest(self, values: jax.Array) -> jax.Array:
        """Where the first row with the highest value is, ``(number, D)``; the last if nowhere."""
        rows = values.shape[0]
        if self.bag is None:
            width = rows // self.number
            start = jnp.arange(self.number)[:, None] * width
            return start + values.reshape(self.number, width, -1).argmax(1)
        highest = jax.ops.segment_max(values, self.bag, self.number, indices_are_sorted=True)
        is_highest = (values == highest.at[self.bag].get(mode="fill")) | jnp.isnan(values)
        place = jnp.where(is_highest, jnp.arange(rows)[:, None], rows)
        first = jax.ops.segment_min(place, self.bag, self.number, indices_are_sorted=True)
        return jnp.minimum(first, rows - 1)


def _bags(input: jax.Array, offsets: jax.Array | None, include_last_offset: bool) -> _Bags:
    if offsets is None:
        return _Bags(input.shape[0], None)
    bag = jnp.searchsorted(offsets, jnp.arange(input.size, dtype=offsets.dtype), side="right") - 1
    return _Bags(offsets.size - include_last_offset, bag)


@functools.partial(
    jax.jit,
    static_argnames=(
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "mode",
        "include_last_offset",
        "padding_idx",
    ),
)
def _embedding_bag(
    input: jax.Array,
    weight: jax.Array,
    offsets: jax.Array | None,
    per_sample_weights: jax.Array | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
) -> jax.Array:
    bags = _bags(input, offsets, include_last_offset)
    index = input.reshape(-1)
    rows = embedding(index, weight, None, max_norm, norm_type, scale_grad_by_freq)  # (N, D)
    if 0 in (index.size, bags.number):
        return jnp.zeros((bags.number, weight.shape[1]), weight.dtype)
    counts = jnp.ones_like(index, bool) if padding_idx is None else index != padding_idx
    if mode == "max":
        rows = jnp.where(counts[:, None], rows, -jnp.inf)
        highest = jnp.take_along_axis(rows, bags.first_highest(jax.lax.stop_gradient(rows)), 0)
        return jnp.where(bags.sum(counts[:, None].astype(jnp.int32)) > 0, highest, 0)
    rows = widen(rows)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1).astype(rows.dtype)
    total = bags.sum(jnp.where(counts[:, None], rows, 0))
    if mode == "mean":
        total = total / jnp.maximum(bags.sum(counts[:, None].astype(total.dtype)), 1)
    return total.astype(weight.dtype)
