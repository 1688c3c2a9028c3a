"""Scaled dot-product attention: ``softmax(query @ key.T * scale + bias) @ value``.

The derivative is written by hand, so that its transpose is the closed form that fused kernels use.
With ``e`` the weights before they are divided by the sums ``l`` of their rows, and ``o`` the output,
the tangent

    ``((e * ds) @ value - sum(e * ds) * o + e @ dvalue) / l``

subtracts the softmax's correction from the output instead of from the weights. In the transpose the
correction is ``sum(do * o)``, a sum over features instead of keys, and both divisions are by rows
of the output, which is smaller than the ``(L, S)`` weights.

A causal mask wastes half of the scores. Queries are therefore taken in a few blocks, each of which
sees the keys up to its own end: the same numbers from a quarter to a third fewer products.

A row whose keys are all masked gives zeros, with finite gradients, as in torch. Half types are
multiplied as they are and summed in float32.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dropout import dropout
from purestate.nn.functional._dtypes import cpp_type, scalar_type, widen
from purestate.nn.functional._forms import all_known
from purestate.nn.functional._options import listed
from purestate.nn.functional._shapes import broadcast
from purestate.nn.functional._tangents import moves


__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Average the values, weighted by how well their keys match the query.

    The counterpart of ``torch.nn.functional.scaled_dot_product_attention``. Leading axes broadcast.

    Args:
        query: ``(*, L, E)``; floating-point.
        key: ``(*, S, E)``.
        value: ``(*, S, Ev)``.
        attn_mask: Broadcasts to ``(*, L, S)``. Booleans: True takes part. Numbers are added to the
            scores.
        dropout_p: Probability to drop a weight; always applied, so pass 0 in evaluation.
        is_causal: Query ``i`` sees the keys up to ``i`` only. Not together with ``attn_mask``.
        scale: Multiplies the scores; ``1 / sqrt(E)`` when None. A Python number.
        enable_gqa: Key and value may have fewer heads (axis -3) than the query; each serves several.
        rng: A JAX key, needed with ``0 < dropout_p < 1``.

    Returns:
        ``(*, L, Ev)`` in the query's dtype. A row without any key to see is zero.

    Raises:
        RuntimeError: Sizes or dtypes that do not fit, ``attn_mask`` with ``is_causal``, or a
            probability over 1.
        IndexError: ``enable_gqa`` without an axis of heads.
        NotImplementedError: The inputs are complex.
        ValueError: Dropout without ``rng``.
    """
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    if enable_gqa:
        key, value = _repeated(query, key), _repeated(query, value)
    scores = _product_shape(query.shape, (*key.shape[:-2], key.shape[-1], key.shape[-2]))
    _product_shape(scores, value.shape)
    if attn_mask is not None:
        _check_mask(attn_mask.shape, scores)
    if 0 < dropout_p < 1 and rng is None:
        raise ValueError(
            "scaled_dot_product_attention with 0 < dropout_p < 1 needs a random key.\n"
            "    write: scaled_dot_product_attention(..., rng=key)\n"
            "    in a module: rng=self.next_key() if self.training else None"
        )
    return attend(
        query,
        key,
        value,
        attn_mask,
        rng,
        dropout_p=max(float(dropout_p), 0.0),
        is_causal=bool(is_causal),
        scale=scale,
    )


@functools.partial(jax.jit, static_argnames=("dropout_p", "is_causal", "scale"))
def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None,
    rng: jax.Array | None,
    *,
    dropout_p: float,
    is_causal: bool,
    scale: float | None = None,
) -> jax.Array:
    """``scaled_dot_product_attention`` of arguments that fit each other."""
    batch = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (jnp.broadcast_to(x, batch + x.shape[-2:]) for x in (query, key, value))
    (length, features), keys = query.shape[-2:], key.shape[-2]
    if scale is None:
        scale = 1 / math.sqrt(features) if features else 1.0
    kept = None
    if dropout_p > 0:
        ones = jnp.ones((*batch, length, keys), widen(query).dtype)
        kept = dropout(ones, dropout_p, rng=rng)
    if is_causal:
        output = _causal(query, key, value, kept, scale)
    else:
        output = _weighted(query, key, value, _bias(mask, widen(query).dtype), kept, scale)
    return output.astype(query.dtype)


def _bias(mask: jax.Array | None, dtype: jnp.dtype) -> jax.Array | None:
    """What the scores get added: 0 and -inf for a boolean mask."""
    if mask is None:
        return None
    return jnp.where(mask, 0.0, -jnp.inf).astype(dtype) if mask.dtype == bool else mask.astype(dtype)


def _causal(
    query: jax.Array, key: jax.Array, value: jax.Array, kept: jax.Array | None, scale: float
) -> jax.Array:
    """Blocks of queries, each with the keys that its last query sees."""
    length, keys = query.shape[-2], key.shape[-2]
    if not all_known(length, keys):
        visible = jnp.arange(length)[:, None] >= jnp.arange(keys)
        return _weighted(query, key, value, _bias(visible, widen(query).dtype), kept, scale)
    blocks = max(1, min(4, length // 128))  # Smaller ones would lose more than they save.
    rows = max(1, -(-length // blocks))
    outputs = []
    for start in range(0, max(1, length), rows):
        stop = min(start + rows, length)
        seen = min(stop, keys)
        visible = jnp.arange(start, stop)[:, None] >= jnp.arange(seen)
        outputs.append(
            _weighted(
                query[..., start:stop, :],
                key[..., :seen, :],
                value[..., :seen, :],
                _bias(visible, widen(query).dtype),
                None if kept is None else kept[..., start:stop, :seen],
                scale,
            )
        )
    return jnp.concatenate(outputs, -2)


@functools.partial(jax.custom_jvp, nondiff_argnums=(5,))
def _weighted(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None,
    kept: jax.Array | None,
    scale: float,
) -> jax.Array:
    """Attention with equal leading axes; ``kept`` multiplies the weights. float32 for half types."""
    return _parts(query, key, value, bias, kept, scale)[0]


@functools.partial(_weighted.defjvp, symbolic_zeros=True)
def _weighted_jvp(scale, primals, tangents):
    query, key, value, bias, kept = primals
    dquery, dkey, dvalue, dbias, _ = tangents
    output, weights, used, share = _parts(query, key, value, bias, kept, scale)
    dscores = [_dot(dquery, key, -1) * scale] if moves(dquery) else []
    dscores += [_dot(query, dkey, -1) * scale] if moves(dkey) else []
    dscores += [dbias] if moves(dbias) else []
    terms = [_dot(used, dvalue, -2)] if moves(dvalue) else []
    if dscores:
        dscore = functools.reduce(jnp.add, dscores)
        correction = (weights * dscore).sum(-1, keepdims=True) * output
        terms += [_dot(used * dscore, value, -2) - correction]
    return output, functools.reduce(jnp.add, terms) * share if terms else jnp.zeros_like(output)


def _parts(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    bias: jax.Array | None,
    kept: jax.Array | None,
    scale: float,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The output, the undivided weights before and after dropout, and what divides them."""
    scores = _dot(query, key, -1) * scale
    if bias is not None:
        scores = scores + bias
    # Any shift gives the same output, so that of the derivatives is zero.
    top = lax.stop_gradient(scores.max(-1, keepdims=True, initial=-jnp.inf))
    weights = jnp.exp(scores - jnp.where(top == -jnp.inf, 0.0, top))
    total = weights.sum(-1, keepdims=True)
    share = 1 / jnp.where(total == 0, 1.0, total)
    used = weights if kept is None else weights * kept
    return _dot(used, value, -2) * share, weights, used, share


def _dot(a: jax.Array, b: jax.Array, axis: int) -> jax.Array:
    """Contract the last axis of ``a`` with an axis of ``b``, batched over the leading axes."""
    batch = tuple(range(a.ndim - 2))
    contracted = ((a.ndim - 1,), (b.ndim + axis,))
    return lax.dot_general(
        a.astype(b.dtype),
        b,
        (contracted, (batch, batch)),
        preferred_element_type=widen(b).dtype,
    )


def _repeated(query: jax.Array, other: jax.Array) -> jax.Array:
    """Key or value with each head repeated for the query heads that it serves."""
    for array in (query, other):
        if array.ndim < 3:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{array.ndim}, {array.ndim - 1}], but got -3)"
            )
    heads, count = query.shape[-3], other.shape[-3]
    if heads % count:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
    return other if heads == count else jnp.repeat(other, heads // count, -3)


# Torch's checks.


def _check(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None,
    dropout_p: float,
    is_causal: bool,
) -> None:
    arrays = (query, key, value)
    if min(x.ndim for x in arrays) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got "
            f"query.dim: {query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    dtypes = [cpp_type(x.dtype) for x in arrays]
    if len(set(dtypes)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{dtypes[0]} key.dtype: {dtypes[1]} and value.dtype: {dtypes[2]} instead."
        )
    if mask is not None:
        if is_causal:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )
        if mask.dtype not in (jnp.bool_, jnp.float32, query.dtype):
            raise RuntimeError(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                f"attn_mask.dtype: {cpp_type(mask.dtype)} and  query.dtype: {dtypes[0]} instead."
            )
    if jnp.issubdtype(query.dtype, jnp.complexfloating):
        raise NotImplementedError(
            f"\"softmax_lastdim_kernel_impl\" not implemented for '{scalar_type(query.dtype)}'"
        )
    if not jnp.issubdtype(query.dtype, jnp.floating):
        if max(x.ndim for x in arrays) == 2:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: float != {dtypes[0]}"
            )
        raise RuntimeError(f"expected scalar type Float but found {scalar_type(query.dtype)}")
    if dropout_p > 1:
        raise RuntimeError(
            f"dropout probability has to be between 0 and 1, but got {float(dropout_p):g}"
        )


def _product_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of ``left @ right``.

    Raises:
        RuntimeError: Either axes or leading axes do not fit.
    """
    rows, columns = left[-2], right[-1]
    if len(right) == 2:
        if left[-1] != right[0]:
            raise RuntimeError(
                "mat1 and mat2 shapes cannot be multiplied "
                f"({math.prod(left[:-1])}x{left[-1]} and {right[0]}x{right[1]})"
            )
        return (*left[:-1], columns)
    batch = broadcast(left[:-2], right[:-2])
    if left[-1] != right[-2]:
        count = math.prod(batch)
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{count}, {left[-1]}] but got: [{count}, {right[-2]}]."
        )
    return (*batch, rows, columns)


def _check_mask(mask: tuple[int, ...], scores: tuple[int, ...]) -> None:
    shape = broadcast(scores, mask)
    if shape != scores:
        raise RuntimeError(
            f"output with shape {listed(scores)} doesn't match the broadcast shape {listed(shape)}"
        )
