"""Moving entries between channels and pixels, or between groups of channels: reshape, transpose.

Each function is three steps: split one axis in two (or two axes each in two), exchange the parts,
join them again. One axis at a time: on a mesh with explicit axes JAX refuses to reshape two at once.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp

from purestate.nn.functional._options import listed


__all__ = ["channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(input: jax.Array, upscale_factor: int) -> jax.Array:
    """Turn each group of channels into a block of pixels.

    The counterpart of ``torch.nn.functional.pixel_shuffle``.

    Args:
        input: ``(*, C * r**2, H, W)`` of any dtype.
        upscale_factor: The side ``r`` of a block.

    Returns:
        ``(*, C, H * r, W * r)``.

    Raises:
        RuntimeError: Too few axes, a factor that is not positive, or channels that it does not
            divide.
        TypeError: The factor is not an int.
    """
    return _pixel_shuffle(input, _integer("pixel_shuffle", "upscale_factor", upscale_factor))


@functools.partial(jax.jit, static_argnums=1)
def _pixel_shuffle(input: jax.Array, factor: int) -> jax.Array:
    _check_pixels("pixel_shuffle", "upscale_factor", input, factor)
    *batch, channels, height, width = input.shape
    if channels % factor**2:
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={channels} is not divisible by {factor**2}"
        )
    channels //= factor**2
    blocks = input.reshape(*batch, channels, factor, factor, height, width)
    blocks = jnp.moveaxis(blocks, (-4, -3), (-3, -1))  # (*, C, H, r, W, r)
    rows = blocks.reshape(*batch, channels, height * factor, width, factor)
    return rows.reshape(*batch, channels, height * factor, width * factor)


def pixel_unshuffle(input: jax.Array, downscale_factor: int) -> jax.Array:
    """Turn each block of pixels into a group of channels: the inverse of ``pixel_shuffle``.

    The counterpart of ``torch.nn.functional.pixel_unshuffle``.

    Args:
        input: ``(*, C, H * r, W * r)`` of any dtype.
        downscale_factor: The side ``r`` of a block.

    Returns:
        ``(*, C * r**2, H, W)``.

    Raises:
        RuntimeError: Too few axes, a factor that is not positive, or an image that it does not
            divide.
        TypeError: The factor is not an int.
    """
    return _pixel_unshuffle(input, _integer("pixel_unshuffle", "downscale_factor", downscale_factor))


@functools.partial(jax.jit, static_argnums=1)
def _pixel_unshuffle(input: jax.Array, factor: int) -> jax.Array:
    _check_pixels("pixel_unshuffle", "downscale_factor", input, factor)
    *batch, channels, height, width = input.shape
    for name, place in (("height", -2), ("width", -1)):
        if input.shape[place] % factor:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                f"input.size({place})={input.shape[place]} is not divisible by {factor}"
            )
    height, width = height // factor, width // factor
    rows = input.reshape(*batch, channels, height, factor, width * factor)
    blocks = rows.reshape(*batch, channels, height, factor, width, factor)
    blocks = jnp.moveaxis(blocks, (-3, -1), (-4, -3))  # (*, C, r, r, H, W)
    return blocks.reshape(*batch, channels * factor**2, height, width)


def channel_shuffle(input: jax.Array, groups: int) -> jax.Array:
    """Interleave groups of channels: the first of each group, then the second of each, and so on.

    The counterpart of ``torch.nn.functional.channel_shuffle``.

    Args:
        input: ``(N, C, *)`` with at least one more axis, of any dtype.
        groups: The number of groups, a divisor of ``C``.

    Returns:
        The input's shape.

    Raises:
        RuntimeError: Too few axes, or groups that do not divide the channels.
        TypeError: ``groups`` is not an int.
    """
    return _channel_shuffle(input, _integer("channel_shuffle", "groups", groups))


def native_channel_shuffle(input: jax.Array, groups: int) -> jax.Array:
    """``channel_shuffle`` (``torch.nn.functional.native_channel_shuffle``).

    Args:
        input: ``(N, C, *)`` with at least one more axis, of any dtype.
        groups: The number of groups, a divisor of ``C``.

    Returns:
        The input's shape.
    """
    return _channel_shuffle(input, _integer("native_channel_shuffle", "groups", groups))


@functools.partial(jax.jit, static_argnums=1)
def _channel_shuffle(input: jax.Array, groups: int) -> jax.Array:
    if input.ndim < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{listed(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    batch, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(
            "Number of channels must be divisible by groups. "
            f"Got {channels} channels and {groups} groups."
        )
    grouped = input.reshape(batch, groups, channels // groups, *rest)
    return grouped.swapaxes(1, 2).reshape(input.shape)


def _integer(name: str, option: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{name}(): argument '{option}' (position 2) must be int, not {type(value).__name__}"
        )
    return operator.index(value)


def _check_pixels(name: str, option: str, input: jax.Array, factor: int) -> None:
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with "
            f"{input.ndim} dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {option}, but got {factor}")
