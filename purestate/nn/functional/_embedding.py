"""Rows of a table by index, and torch's three ways to bend the gradient or the table.

* ``padding_idx``: the gradient of one row is zero.
* ``scale_grad_by_freq``: the gradient of a row is divided by how often the batch asks for it.
* ``max_norm``: rows longer than this are scaled down. Torch writes the scaled rows into the weight
  before the lookup. Here ``embedding`` looks up the scaled rows and leaves the weight alone;
  ``embedding_renorm`` returns the new weight for whoever wants to keep it. The gradient is torch's
  in both: it does not see the scaling.

In the last two a value and its tangent come from different places, which is what ``graft`` says.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._graft import graft
from purestate.nn.functional._known import known


__all__ = ["embedding", "embedding_renorm"]


def embedding(
    input: jax.Array,
    weight: jax.Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """Look up rows of ``weight``.

    The counterpart of ``torch.nn.functional.embedding``. Indices are checked where their values are
    known. Under a transformation that hides them (``jit``, ``vmap``) an index outside the table,
    negative ones included, gives a row of NaN (the largest value for an integer table).

    Args:
        input: Integers of any shape ``(*)``, 32 or 64 bits.
        weight: ``(num_embeddings, embedding_dim)``.
        padding_idx: The row that gets no gradient; negative counts from the end.
        max_norm: Rows with a larger norm are looked up scaled down to it. The weight itself does
            not change (it does in torch): see ``embedding_renorm``.
        norm_type: The ``p`` of that norm.
        scale_grad_by_freq: Divide a row's gradient by the number of times it was looked up.
        sparse: Accepted for torch's sake; gradients are always dense.

    Returns:
        ``(*, embedding_dim)`` in the weight's dtype.

    Raises:
        IndexError: An index is outside the table.
        AssertionError: ``padding_idx`` is outside the table.
        RuntimeError: The weight is not 2-D, or the indices are not 32- or 64-bit integers.
    """
    del sparse
    if known(input):
        _check_range(input, weight)
    return _embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)


@functools.partial(
    jax.jit, static_argnames=("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")
)
def _embedding(
    input: jax.Array,
    weight: jax.Array,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
) -> jax.Array:
    _check(input, weight)
    count = weight.shape[0]
    if padding_idx is not None and not -count <= padding_idx < count:
        raise AssertionError("Padding_idx must be within num_embeddings")
    # Looked up wide, so that the gradients of a row are summed in float32.
    rows = _rows(widen(weight), input).astype(weight.dtype)  # (*, embedding_dim)
    source = rows
    if padding_idx is not None:
        is_padding = (input == padding_idx % count)[..., None]
        source = jnp.where(is_padding, jax.lax.stop_gradient(rows), rows)
    if max_norm is not None:
        rows = _renormed(rows, max_norm, norm_type)
    if scale_grad_by_freq:
        # Counted in integers: bfloat16 cannot count past 256.
        times = jnp.zeros(count, jnp.int32)
        times = times.at[input].add(1, mode="drop", wrap_negative_indices=False)
        share = 1 / _rows(times, input).astype(widen(weight).dtype)
        source = (source * share[..., None]).astype(weight.dtype)
    return source if source is rows else graft(jax.lax.stop_gradient(rows), source)


@functools.partial(jax.jit, static_argnames=("max_norm", "norm_type"))
def embedding_renorm(
    weight: jax.Array, input: jax.Array, max_norm: float, norm_type: float = 2.0
) -> jax.Array:
    """The weight after a lookup with ``max_norm``: the rows asked for are scaled down to it.

    The counterpart of ``torch.embedding_renorm_``, which writes into the weight. As there, the
    scaling has no gradient: the derivative of the result by the weight is the identity.

    Args:
        weight: ``(num_embeddings, embedding_dim)``.
        input: Integers of any shape; indices outside the table are ignored.
        max_norm: The largest norm that a row may keep.
        norm_type: The ``p`` of that norm.

    Returns:
        The new weight.

    Raises:
        RuntimeError: The weight is not 2-D, or the indices are not 32- or 64-bit integers.
    """
    _check(input, weight)
    rows = _renormed(_rows(weight, input), max_norm, norm_type)
    new = weight.at[input].set(rows, mode="drop", wrap_negative_indices=False)
    return graft(jax.lax.stop_gradient(new), weight)


def _rows(table: jax.Array, indices: jax.Array) -> jax.Array:
    return table.at[indices].get(mode="fill", wrap_negative_indices=False)


def _renormed(rows: jax.Array, max_norm: float, norm_type: float) -> jax.Array:
    """The rows with a norm above ``max_norm`` scaled down to it; torch's 1e-7 included."""
    rows = jax.lax.stop_gradient(rows)
    norm = jnp.linalg.norm(rows, norm_type, axis=-1, keepdims=True)
    return jnp.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows).astype(rows.dtype)


def _check(input: jax.Array, weight: jax.Array) -> None:
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if input.dtype not in (jnp.int32, jnp.int64):
        got = scalar_type(input.dtype)
        got = f"CPU{got}Type" if got == "Bool" else f"torch.{got}Tensor"
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {got} instead (while checking arguments for embedding)"
        )


def _check_range(input: jax.Array, weight: jax.Array) -> None:
    _check(input, weight)
    values = np.asarray(input)
    if values.size and (values.min() < 0 or values.max() >= weight.shape[0]):
        raise IndexError("index out of range in self")
