"""Multi-head attention: project, attend in parallel heads, project back.

Torch works on ``(L, N, E)`` and transposes what is ``(N, L, E)``. Nothing here depends on the order
of the two axes but the split into heads, so ``batch_first`` is an option and nothing is transposed
for it.

Self-attention is one product with the packed weight, and a key that is also the value is projected
by one too. Which arguments are one array is seen before anything is jitted: inside they are told
apart by being None.
"""

import functools
import math

import jax
import jax.numpy as jnp

from purestate.nn.functional._attention import attend
from purestate.nn.functional._dropout import dropout
from purestate.nn.functional._dtypes import spread
from purestate.nn.functional._linear import linear
from purestate.nn.functional._multi_head_checks import (
    additive_mask,
    check_extra_keys,
    check_mask_shape,
    check_padding,
    check_projections,
    check_ranks,
    check_sizes,
)
from purestate.nn.functional._softmax import softmax


__all__ = ["multi_head_attention_forward"]


Optional = jax.Array | None
Weights = tuple[Optional, Optional, Optional]


def multi_head_attention_forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: jax.Array | None,
    in_proj_bias: jax.Array | None,
    bias_k: jax.Array | None,
    bias_v: jax.Array | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: jax.Array,
    out_proj_bias: jax.Array | None,
    training: bool = True,
    key_padding_mask: jax.Array | None = None,
    need_weights: bool = True,
    attn_mask: jax.Array | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: jax.Array | None = None,
    k_proj_weight: jax.Array | None = None,
    v_proj_weight: jax.Array | None = None,
    static_k: jax.Array | None = None,
    static_v: jax.Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array | None]:
    """Attention in ``num_heads`` parallel heads, with all its projections.

    The counterpart of ``torch.nn.functional.multi_head_attention_forward``.

    Args:
        query: ``(L, N, E)``, or ``(L, E)`` without a batch.
        key: ``(S, N, Ek)`` or ``(S, Ek)``.
        value: ``(S, N, Ev)`` or ``(S, Ev)``.
        embed_dim_to_check: ``E``.
        num_heads: The number of heads, a divisor of ``E``.
        in_proj_weight: ``(3 * E, E)``: the projections of query, key and value.
        in_proj_bias: ``(3 * E,)`` or None.
        bias_k: ``E`` numbers or None: one more key for every example.
        bias_v: ``E`` numbers or None: its value.
        add_zero_attn: Whether to add a key and a value of zeros.
        dropout_p: Probability to drop an attention weight, in training.
        out_proj_weight: ``(E, E)``.
        out_proj_bias: ``(E,)`` or None.
        training: Whether to drop.
        key_padding_mask: ``(N, S)`` or ``(S,)``: True hides a key; numbers are added to its scores.
        need_weights: Whether to return the attention weights; without is faster.
        attn_mask: ``(L, S)`` or ``(N * num_heads, L, S)``: True hides; numbers are added.
        use_separate_proj_weight: Whether to project by the three weights that follow.
        q_proj_weight: ``(E, E)``.
        k_proj_weight: ``(E, Ek)``.
        v_proj_weight: ``(E, Ev)``.
        static_k: ``(N * num_heads, S, E / num_heads)``: used instead of the projected key.
        static_v: Likewise.
        average_attn_weights: Whether to return the mean of the weights over the heads.
        is_causal: A hint that ``attn_mask`` is the causal mask, which must be given too.
        batch_first: The order of the first two axes is ``(N, L)``; not an option in torch.
        rng: A JAX key, needed in training with ``0 < dropout_p < 1``.

    Returns:
        The output, with the shape of the query, and the weights, after dropout:
        ``(N, L, S)`` (averaged), ``(N, num_heads, L, S)``, either without ``N``, or None.

    Raises:
        AssertionError: Sizes that do not fit, or integer masks.
        RuntimeError: A mask of the wrong size, or ``is_causal`` without ``attn_mask``.
        ValueError: Dropout without ``rng``.
    """
    batched = check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    same_key, same_value = query is key, key is value
    if not batched:
        axis = 0 if batch_first else 1
        query, key, value = (jnp.expand_dims(x, axis) for x in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask[None]
    padding = additive_mask(key_padding_mask, "key_padding_mask", query.dtype, attn_mask, "attn_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. "
            "You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    is_causal = bool(is_causal) and padding is None and not need_weights
    mask = None if is_causal else additive_mask(attn_mask, "attn_mask", query.dtype)

    # Torch's order of the axes, for the checks.
    order = (1, 0, 2) if batch_first else (0, 1, 2)
    shapes = [tuple(x.shape[axis] for axis in order) for x in (query, key, value)]
    check_sizes(shapes, embed_dim_to_check, num_heads, use_separate_proj_weight)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    features = (query.shape[-1], key.shape[-1], value.shape[-1])
    check_projections(features, in_proj_weight, weights, in_proj_bias, use_separate_proj_weight)
    (length, batch, width), keys = shapes[0], shapes[1][0]
    if mask is not None:
        check_mask_shape(mask, length, keys, batch * num_heads)
    check_extra_keys(bias_k, bias_v, static_k, static_v, batch * num_heads, width // num_heads)
    if padding is not None:
        extra = (bias_k is not None) + bool(add_zero_attn)
        check_padding(padding, batch, keys if static_k is None else static_k.shape[1], extra)
    dropout_p = float(dropout_p) if training else 0.0
    if 0 < dropout_p < 1 and rng is None:
        raise ValueError(
            "multi_head_attention_forward in training with 0 < dropout_p < 1 needs a random key.\n"
            "    write: multi_head_attention_forward(..., rng=key)\n"
            "    in a module: rng=self.next_key() if self.training else None"
        )
    output, attention = _multi_head(
        query,
        None if same_key else key,
        None if same_value else value,
        weights if use_separate_proj_weight else in_proj_weight,
        in_proj_bias,
        (bias_k, bias_v),
        (static_k, static_v),
        (out_proj_weight, out_proj_bias),
        mask,
        padding,
        rng,
        num_heads=num_heads,
        add_zero_attn=bool(add_zero_attn),
        dropout_p=dropout_p,
        need_weights=bool(need_weights),
        average=bool(average_attn_weights),
        is_causal=is_causal,
        batch_first=batch_first,
    )
    if not batched:
        output = output.squeeze(0 if batch_first else 1)
        attention = None if attention is None else attention.squeeze(0)
    return output, attention


@functools.partial(
    jax.jit,
    static_argnames=(
        "num_heads",
        "add_zero_attn",
        "dropout_p",
        "need_weights",
        "average",
        "is_causal",
        "batch_first",
    ),
)
def _multi_head(
    query: jax.Array,
    key: Optional,
    value: Optional,
    weight: jax.Array | Weights,
    bias: Optional,
    extra: tuple[Optional, Optional],
    static: tuple[Optional, Optional],
    out: tuple[jax.Array, Optional],
    mask: Optional,
    padding: Optional,
    rng: Optional,
    *,
    num_heads: int,
    add_zero_attn: bool,
    dropout_p: float,
    need_weights: bool,
    average: bool,
    is_causal: bool,
    batch_first: bool,
) -> tuple[jax.Array, Optional]:
    """Everything between the checks; a key of None is the query, a value of None is the key."""
    projected = _projected(query, key, value, weight, bias)
    q, k, v = (_to_heads(x, num_heads, batch_first) for x in projected)
    k = _completed(k, static[0], extra[0], add_zero_attn)
    v = _completed(v, static[1], extra[1], add_zero_attn)
    added = _merged(mask, padding, num_heads, (extra[0] is not None) + add_zero_attn)
    if need_weights:
        scores = (q * jnp.asarray(math.sqrt(1 / q.shape[-1]), q.dtype)) @ k.swapaxes(-1, -2)
        weights = softmax(scores if added is None else scores + added, -1)
        if dropout_p > 0:
            weights = dropout(weights, dropout_p, rng=rng)
        output = weights @ v
        attention = weights.mean(1) if average else weights
    else:
        output = attend(q, k, v, added, rng, dropout_p=dropout_p, is_causal=is_causal)
        attention = None
    return linear(_from_heads(output, batch_first), *out), attention


def _projected(
    query: jax.Array,
    key: Optional,
    value: Optional,
    weight: jax.Array | Weights,
    bias: Optional,
) -> tuple[jax.Array, ...]:
    """Query, key and value, each with as many features as the query."""
    width = query.shape[-1]
    if isinstance(weight, tuple):
        key = query if key is None else key
        value = key if value is None else value
        biases = (None, None, None) if bias is None else jnp.split(bias, 3)
        inputs = zip((query, key, value), weight, biases, strict=True)
        return tuple(linear(x, w, b) for x, w, b in inputs)
    if key is None and value is None:
        return tuple(jnp.split(linear(query, weight, bias), 3, -1))
    key = query if key is None else key
    if value is None:
        weights = jnp.split(weight, [width])
        biases = (None, None) if bias is None else jnp.split(bias, [width])
        packed = linear(key, weights[1], biases[1])
        return (linear(query, weights[0], biases[0]), *jnp.split(packed, 2, -1))
    w_query, w_key, w_value = jnp.split(weight, 3)
    return _projected(query, key, value, (w_query, w_key, w_value), bias)


def _to_heads(x: jax.Array, num_heads: int, batch_first: bool) -> jax.Array:
    """``(L, N, E)``, or ``(N, L, E)`` with ``batch_first``, to ``(N, heads, L, E / heads)``."""
    x = x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)
    return x.transpose((0, 2, 1, 3) if batch_first else (1, 2, 0, 3))


def _from_heads(x: jax.Array, batch_first: bool) -> jax.Array:
    x = x.transpose((0, 2, 1, 3) if batch_first else (2, 0, 1, 3))
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def _completed(x: jax.Array, static: Optional, learned: Optional, add_zero: bool) -> jax.Array:
    """Keys or values, or those given instead, and the ones that every example gets."""
    batch, heads, _, features = x.shape
    parts = [x if static is None else static.reshape(batch, heads, static.shape[1], features)]
    one_more = (batch, heads, 1, features)
    if learned is not None:
        learned = spread(learned.reshape(1, heads, 1, features), one_more)
        parts.append(jnp.broadcast_to(learned, one_more))
    if add_zero:
        parts.append(jnp.zeros(one_more, x.dtype))
    return jnp.concatenate(parts, 2) if len(parts) > 1 else parts[0]


def _merged(mask: Optional, padding: Optional, num_heads: int, extra: int) -> Optional:
    """What the scores ``(N, heads, L, S)`` get added; nothing for the extra keys."""
    parts = []
    if mask is not None:
        parts.append(mask if mask.ndim == 2 else mask.reshape(-1, num_heads, *mask.shape[1:]))
    if padding is not None:
        parts.append(padding[:, None, None])
    widened = [jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extra)]) for x in parts]
    return sum(widened[1:], widened[0]) if widened else None
