"""What torch's multi-head attention refuses, in torch's words.

All of it depends on shapes and dtypes alone. Shapes are given in torch's order, ``(L, N, E)``,
whatever the order of the arrays.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from purestate._warning import warn
from purestate.nn.functional._shapes import shown


Shape = tuple[int, ...]


def check_ranks(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    key_padding_mask: jax.Array | None,
    attn_mask: jax.Array | None,
    num_heads: int,
) -> bool:
    """Whether the input has a batch axis."""
    batched = query.ndim == 3
    if query.ndim not in (2, 3):
        raise AssertionError(
            "query should be unbatched 2D or batched 3D tensor but received "
            f"{query.ndim}-D query tensor"
        )
    case = "batched (3-D)" if batched else "unbatched (2-D)"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {case} `query`, expected `key` and `value` to be {query.ndim}-D"
            f" but found {key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {case} `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D"
            f" but found {key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(
                f"For {case} `query`, expected `attn_mask` to be `None`, 2-D or 3-D"
                f" but found {attn_mask.ndim}-D tensor instead"
            )
        expected = (num_heads, query.shape[0], key.shape[0])
        if not batched and attn_mask.ndim == 3 and attn_mask.shape != expected:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {expected} but got {shown(attn_mask.shape)}"
            )
    return batched


def additive_mask(
    mask: jax.Array | None,
    name: str,
    dtype: DTypeLike,
    other: jax.Array | None = None,
    other_name: str | None = None,
) -> jax.Array | None:
    """A mask as numbers to add to the scores: -inf where a boolean one is True.

    Args:
        mask: Booleans or numbers.
        name: What the errors call it.
        dtype: Of the numbers that booleans become.
        other: A mask that should have the same dtype.
        other_name: What the warning calls that one.
    """
    if mask is None:
        return None
    floating = jnp.issubdtype(mask.dtype, jnp.floating)
    if mask.dtype != bool and not floating:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and mask.dtype != other.dtype:
        warn(
            f"Support for mismatched {name} and {other_name} is deprecated. "
            "Use same type for both instead.",
        )
    return mask if floating else jnp.where(mask, -jnp.inf, 0.0).astype(dtype)


def check_sizes(shapes: list[Shape], embed_dim: int, num_heads: int, separate: bool) -> None:
    """The axes of query, key and value, in the order ``(L, N, E)``."""
    query, key, value = shapes
    if query[2] != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {query[2]}")
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if separate and key[:2] != value[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {shown(key[:2])} do not match value's {shown(value[:2])}"
        )
    if not separate and key != value:
        raise AssertionError(f"key shape {shown(key)} does not match value shape {shown(value)}")


def check_projections(
    features: tuple[int, int, int],
    packed: jax.Array | None,
    weights: tuple[jax.Array | None, jax.Array | None, jax.Array | None],
    bias: jax.Array | None,
    separate: bool,
) -> None:
    """The weights that project query, key and value."""
    if not separate:
        if packed is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        return
    for name, weight in zip("qkv", weights, strict=True):
        if weight is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    width = features[0]
    for name, weight, size in zip(("query", "key", "value"), weights, features, strict=True):
        assert weight is not None
        if weight.shape != (width, size):
            raise AssertionError(
                f"expecting {name} weights shape of {(width, size)}, but got {shown(weight.shape)}"
            )
    if bias is not None and bias.shape != (3 * width,):
        part = -(-bias.shape[0] // 3)  # As torch's chunk divides it.
        raise AssertionError(f"expecting query bias shape of {(width,)}, but got {shown((part,))}")


def check_mask_shape(mask: jax.Array, length: int, keys: int, batch_heads: int) -> None:
    """The size of the attention mask, which has two or three axes."""
    expected = (length, keys) if mask.ndim == 2 else (batch_heads, length, keys)
    if mask.shape != expected:
        raise RuntimeError(
            f"The shape of the {mask.ndim}D attn_mask is {shown(mask.shape)}, but should be {expected}."
        )


def check_extra_keys(
    bias_k: jax.Array | None,
    bias_v: jax.Array | None,
    static_k: jax.Array | None,
    static_v: jax.Array | None,
    batch_heads: int,
    head_dim: int,
) -> None:
    """The learned key and value, and those that replace the projected ones."""
    if bias_k is not None and bias_v is not None:
        if static_k is not None:
            raise AssertionError("bias cannot be added to static key.")
        if static_v is not None:
            raise AssertionError("bias cannot be added to static value.")
    elif bias_k is not None:
        raise AssertionError("bias_k is set but bias_v is None")
    elif bias_v is not None:
        raise AssertionError("bias_v is set but bias_k is None")
    for name, static in (("static_k", static_k), ("static_v", static_v)):
        if static is None:
            continue
        for axis, size in ((0, batch_heads), (2, head_dim)):
            if static.shape[axis] != size:
                raise AssertionError(
                    f"expecting {name}.size({axis}) of {size}, but got {static.shape[axis]}"
                )


def check_padding(mask: jax.Array, batch: int, keys: int, extra: int) -> None:
    """The size of the padding mask, which torch has widened for ``extra`` keys by now."""
    if mask.shape[0] != batch:
        raise AssertionError(
            f"Expected key_padded_mask.shape[0] to be {batch}, but got {mask.shape[0]}"
        )
    if mask.shape[1] != keys:
        raise AssertionError(
            f"Expected key_padded_mask.shape[1] to be {keys + extra}, but got {mask.shape[1] + extra}"
        )
