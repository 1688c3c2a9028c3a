"""Padding, constant or made of the input itself.

Each axis is padded by itself, last axis first. What torch does with a negative amount decides the
order: constant and circular padding crop first, so a circle closes around what is left; reflection
and replication read the whole input, so they pad first and crop last.
"""

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from purestate.nn.functional._dtypes import cpp_type, scalar_type
from purestate.nn.functional._options import listed


__all__ = ["pad"]


_UNSUPPORTED = (
    "Padding size {} is not supported for {}D input tensor.\n"
    "Supported combinations for non-constant padding:\n"
    "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
    "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
    "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
)

Pair = tuple[int, int]


def pad(
    input: jax.Array, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> jax.Array:
    """Pad the last axes; negative amounts crop.

    The counterpart of ``torch.nn.functional.pad``.

    Args:
        input: Any shape for ``'constant'``; for the other modes one to three padded axes behind a
            channel axis, with or without a batch axis.
        pad: Amounts ``(last_low, last_high, second_last_low, second_last_high, ...)``.
        mode: ``'constant'``, ``'reflect'`` (without the edge), ``'replicate'`` or ``'circular'``.
        value: What ``'constant'`` fills with (0 by default), cast to the input's dtype.

    Returns:
        The padded array in the input's dtype.

    Raises:
        RuntimeError: An amount that does not fit the input, an odd number of amounts, a value for a
            mode that takes none, or one that the dtype cannot hold.
        NotImplementedError: An unknown mode, or axes that the mode does not support.
        TypeError: ``pad`` is not a sequence of ints.
    """
    amounts = _amounts(pad)
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(amounts) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(amounts)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        if isinstance(value, int | float):
            _check_value(value, input.dtype)
        return _pad_constant(input, 0 if value is None else value, amounts=amounts)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    return _pad_self(input, amounts=amounts, mode=mode)


def _amounts(pad: Sequence[int]) -> tuple[int, ...]:
    name = "pad(): argument 'pad' (position 2) must be tuple of ints, "
    if not isinstance(pad, Sequence):
        raise TypeError(f"{name}not {type(pad).__name__}")
    for place, amount in enumerate(pad):
        if not hasattr(amount, "__index__"):
            raise TypeError(f"{name}but found element of type {type(amount).__name__} at pos {place}")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    return tuple(map(operator.index, pad))


_CPP_TYPES = {
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int64": "int64_t",
}
"""Where torch spells a type in another way than ``cpp_type``."""


def _check_value(value: float, dtype: DTypeLike) -> None:
    """Torch converts what it fills with, and refuses what the dtype cannot hold."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return
    if jnp.issubdtype(dtype, jnp.inexact):
        fits = not math.isfinite(value) or abs(value) <= float(jnp.finfo(dtype).max)
    else:
        limits = jnp.iinfo(dtype)
        fits = limits.min <= value <= limits.max  # NaN is not.
    if not fits:
        name = _CPP_TYPES.get(jnp.dtype(dtype).name, cpp_type(dtype))
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")


def _pairs(amounts: tuple[int, ...]) -> list[Pair]:
    """``(low, high)`` by axis, last axis first."""
    return list(zip(amounts[::2], amounts[1::2], strict=True))


@functools.partial(jax.jit, static_argnames="amounts")
def _pad_constant(input: jax.Array, value: jax.Array, *, amounts: tuple[int, ...]) -> jax.Array:
    config = [(0, 0, 0)] * input.ndim
    for axis, (low, high) in enumerate(_pairs(amounts), start=1):
        if input.shape[-axis] + min(low, 0) + min(high, 0) < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        config[-axis] = (low, high, 0)
    return lax.pad(input, jnp.asarray(value).astype(input.dtype), config)


@functools.partial(jax.jit, static_argnames=("amounts", "mode"))
def _pad_self(input: jax.Array, *, amounts: tuple[int, ...], mode: str) -> jax.Array:
    pairs = _pairs(amounts)
    if not 1 <= len(pairs) <= 3 or input.ndim - len(pairs) not in (1, 2):
        raise NotImplementedError(_UNSUPPORTED.format(len(amounts), input.ndim))
    if mode == "circular":
        _check_circular(input, pairs)
    else:
        _check_edges(input, pairs, mode)
    sizes = [size + sum(pair) for size, pair in zip(input.shape[::-1], pairs, strict=False)][::-1]
    if 0 in sizes:  # XLA aborts on some slices of what ends empty.
        return jnp.zeros((*input.shape[: -len(pairs)], *sizes), input.dtype)
    pad_axis = {"reflect": _reflect, "replicate": _replicate, "circular": _circular}[mode]
    for place, (low, high) in enumerate(pairs, start=1):
        axis = input.ndim - place
        if mode == "circular":
            input = pad_axis(_crop(input, low, high, axis), max(low, 0), max(high, 0), axis)
        else:
            input = _crop(pad_axis(input, max(low, 0), max(high, 0), axis), low, high, axis)
    return input


def _crop(x: jax.Array, low: int, high: int, axis: int) -> jax.Array:
    """Cut off what is negative of an amount."""
    return lax.slice_in_dim(x, max(-low, 0), x.shape[axis] - max(-high, 0), axis=axis)


def _reflect(x: jax.Array, low: int, high: int, axis: int) -> jax.Array:
    size = x.shape[axis]
    before = lax.rev(lax.slice_in_dim(x, 1, low + 1, axis=axis), (axis,))
    after = lax.rev(lax.slice_in_dim(x, size - 1 - high, size - 1, axis=axis), (axis,))
    return lax.concatenate([before, x, after], axis)


def _replicate(x: jax.Array, low: int, high: int, axis: int) -> jax.Array:
    size = x.shape[axis]
    first, last = (
        lax.slice_in_dim(x, 0, 1, axis=axis),
        lax.slice_in_dim(x, size - 1, size, axis=axis),
    )
    return lax.concatenate(
        [jnp.repeat(first, low, axis=axis), x, jnp.repeat(last, high, axis=axis)], axis
    )


def _circular(x: jax.Array, low: int, high: int, axis: int) -> jax.Array:
    size = x.shape[axis]
    before = lax.slice_in_dim(x, size - low, size, axis=axis)
    after = lax.slice_in_dim(x, 0, high, axis=axis)
    return lax.concatenate([before, x, after], axis)


def _check_circular(input: jax.Array, pairs: list[Pair]) -> None:
    wrapping = "Padding value causes wrapping around more than once."
    axes = list(zip(input.shape[-len(pairs) :], reversed(pairs), strict=True))
    for size, (low, high) in axes:
        if max(low, high) > size:
            raise RuntimeError(wrapping)
        if size + low + high < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
    for size, (low, high) in axes:  # where torch returns memory as it was
        if max(low, high) > size + min(low, 0) + min(high, 0):
            raise RuntimeError(wrapping)


def _check_edges(input: jax.Array, pairs: list[Pair], mode: str) -> None:
    """The checks that reflection and replication share."""
    n = len(pairs)
    if input.dtype == bool:
        kernel = "reflection" if mode == "reflect" else "replication"
        raise NotImplementedError(
            f"\"{kernel}_pad{n}d\" not implemented for '{scalar_type(input.dtype)}'"
        )
    if 0 in input.shape[-n - 1 :]:
        raise RuntimeError(
            f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and "
            f"other non-zero dimensions for input, but got: {listed(input.shape)}"
        )
    for axis, (low, high) in enumerate(pairs, start=1):
        if mode == "reflect" and max(low, high) >= input.shape[-axis]:
            raise RuntimeError(
                f"Argument #{2 + 2 * axis}: Padding size should be less than the corresponding "
                f"input dimension, but got: padding ({low}, {high}) at dimension "
                f"{input.ndim - axis} of input {listed(input.shape)}"
            )
    sizes = list(input.shape[-n:])
    output = [size + sum(pair) for size, pair in zip(sizes, reversed(pairs), strict=True)]
    if max(output) < 1:
        names = "DHW"[-n:]
        before = ", ".join(f"{a}: {size}" for a, size in zip(names, sizes, strict=True))
        after = " ".join(f"{a}: {size}" for a, size in zip(names, output, strict=True))
        if n == 3:  # torch's punctuation
            before = before.replace(", ", " ", 1)
        elif n == 2 and mode == "replicate":
            before += " "
        raise RuntimeError(f"input ({before}) is too small. Calculated output {after}")
    if min(output) < 0:
        negative, shape = next(size for size in output if size < 0), (*input.shape[:-n], *output)
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {negative}: {listed(shape)}"
        )
