"""Reading an image at positions that are themselves an array: a spatial transformer's two halves.

``affine_grid`` makes positions, ``grid_sample`` reads there. A position is in [-1, 1] on each axis,
last axis first. Each axis turns it into a few taps: which entry, and with which weight. An output
entry is the sum over all combinations of the axes' taps.

Torch reads images with vector instructions and volumes in a plain loop, which round differently and
part at positions that are NaN, infinite or huge. Both are followed.

The derivative by the grid is that of the weights, since the choice of entries is constant between
two of them. Positions outside are moved inside by clipping, whose derivative is zero at the border
itself, as in torch.
"""

import functools
import itertools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from purestate._warning import warn
from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._options import listed
from purestate.nn.functional._resampling import cubic_weights
from purestate.nn.functional._shapes import shown


__all__ = ["affine_grid", "grid_sample"]


Tap = tuple[jax.Array, jax.Array | None]
"""Entries along one axis, still floating-point, and their weights; None for 1."""


def grid_sample(
    input: jax.Array,
    grid: jax.Array,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> jax.Array:
    """Read an image, or a volume, at the positions of a grid.

    The counterpart of ``torch.nn.functional.grid_sample``.

    Args:
        input: ``(N, C, H, W)`` or ``(N, C, D, H, W)``; floating-point.
        grid: ``(N, H_out, W_out, 2)`` or ``(N, D_out, H_out, W_out, 3)`` in the input's dtype:
            positions ``(x, y)`` or ``(x, y, z)``, from -1 to 1 across the image.
        mode: ``'bilinear'`` (trilinear for a volume), ``'nearest'``, or ``'bicubic'`` (images only).
        padding_mode: What is outside: ``'zeros'``, ``'border'`` (its nearest entry), or
            ``'reflection'``.
        align_corners: -1 and 1 are the centres of the first and last entries, not their edges.
            False, with a warning, when None.

    Returns:
        ``(N, C, H_out, W_out)`` or ``(N, C, D_out, H_out, W_out)`` in the input's dtype; half types
        are computed in float32.

    Raises:
        ValueError: An unknown mode.
        RuntimeError: Shapes or dtypes that do not fit.
        NotImplementedError: The input is not floating-point.
    """
    name = "nn.functional.grid_sample(): expected"
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"{name} mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"{name} padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        _warn_default()
    return _grid_sample(
        input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners)
    )


@functools.partial(jax.jit, static_argnames=("mode", "padding_mode", "align_corners"))
def _grid_sample(
    input: jax.Array, grid: jax.Array, *, mode: str, padding_mode: str, align_corners: bool
) -> jax.Array:
    _check(input, grid, mode)
    sizes = input.shape[2:]
    positions = jnp.moveaxis(widen(grid), -1, 0)[::-1]  # the order of ``sizes``: x is last
    taps_of = _taps if len(sizes) == 2 else _volume_taps
    taps = [
        taps_of(position, size, mode, padding_mode, align_corners)
        for position, size in zip(positions, sizes, strict=True)
    ]
    # A read takes all channels of an entry: they are last, side by side in memory.
    flat = widen(input).reshape(*input.shape[:2], math.prod(sizes)).mT
    total = jnp.zeros((*grid.shape[:-1], input.shape[1]), flat.dtype)
    for corner in itertools.product(*taps):
        value = _read(flat, sizes, [entry for entry, _ in corner])
        weights = [weight for _, weight in corner if weight is not None]
        if weights:
            value = value * functools.reduce(jnp.multiply, weights)[..., None]
        total = total + value
    return jnp.moveaxis(total, -1, 1).astype(input.dtype)


def _taps(
    position: jax.Array, size: int, mode: str, padding_mode: str, align_corners: bool
) -> list[Tap]:
    """What is read along one axis of an image."""
    inside = functools.partial(
        _inside, size=size, padding_mode=padding_mode, align_corners=align_corners
    )
    if align_corners:
        position = (position + 1) * ((size - 1) / 2)
    else:
        position = (position + 1) * (size / 2) - 0.5
    if mode != "bicubic":
        return _near(inside(position), mode)
    low = jnp.floor(position)  # each of the four entries is moved inside, not the position
    weights = cubic_weights(position - low)
    return [(inside(low + step), weight) for step, weight in enumerate(weights, start=-1)]


def _near(position: jax.Array, mode: str) -> list[Tap]:
    """The nearest entry, or the two around a position."""
    if mode == "nearest":
        return [(jnp.round(position), None)]
    low = jnp.floor(position)
    return [(low, 1 - (position - low)), (low + 1, position - low)]


def _volume_taps(
    position: jax.Array, size: int, mode: str, padding_mode: str, align_corners: bool
) -> list[Tap]:
    """What is read along one axis of a volume."""
    if align_corners:
        position = (position + 1) / 2 * (size - 1)
    else:
        position = ((position + 1) * size - 1) / 2
    # Replaced at once: a weight of NaN times zero would be NaN, and so would its gradient.
    if padding_mode == "zeros":
        position = jnp.where(jnp.isfinite(position), position, -2)  # no tap of it is inside
    elif padding_mode == "border":
        position = _clipped(jnp.where(jnp.isnan(position), size - 1, position), size)
    elif size == 1 and align_corners:
        position = jnp.zeros_like(position)
    else:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        position = jnp.where(jnp.isfinite(position), position, size - 1)
        distance = jnp.abs(position - low)
        extra, flips = lax.rem(distance, jnp.full_like(distance, span)), jnp.floor(distance / span)
        # Torch counts in 32 bits, where what is beyond them has become even.
        odd = (flips % 2 == 1) & (flips < 2.0**31)
        position = _clipped(jnp.where(odd, span - extra, extra) + low, size)
    return _near(position, mode)


def _inside(position: jax.Array, size: int, padding_mode: str, align_corners: bool) -> jax.Array:
    """The position moved into the image; for ``'zeros'`` it stays where it is."""
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return jnp.zeros_like(position)
        distance = jnp.abs(position - low)
        distance = distance - jnp.trunc(distance / (2 * span)) * (2 * span)
        position = jnp.minimum(distance, 2 * span - distance) + low
    return _clipped(position, size)  # where NaN becomes the first entry


def _clipped(position: jax.Array, size: int) -> jax.Array:
    """The nearest position inside; the derivative at the border itself is zero."""
    return jnp.where(position > 0, jnp.where(position < size - 1, position, size - 1), 0)


def _read(flat: jax.Array, sizes: Sequence[int], entries: Sequence[jax.Array]) -> jax.Array:
    """The entries ``(N, *out)`` of ``flat`` ``(N, prod(sizes), C)``; zero for those outside."""
    place, inside = jnp.zeros((), jnp.int32), jnp.ones((), bool)
    for entry, size in zip(entries, sizes, strict=True):
        fits = (entry >= 0) & (entry < size)
        inside = inside & fits
        place = place * size + jnp.where(fits, entry, 0).astype(jnp.int32)
    values = jax.vmap(lambda image, at: image.at[at].get(mode="promise_in_bounds"))(flat, place)
    return jnp.where(inside[..., None], values, 0)


def _check(input: jax.Array, grid: jax.Array, mode: str) -> None:
    shapes = f"input with sizes {listed(input.shape)} and grid with sizes {listed(grid.shape)}"
    name, n = "grid_sampler(): expected", input.ndim - 2
    if 0 in (input.ndim, grid.ndim):
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"{name} grid and input to have same batch size, but got {shapes}")
    if grid.shape[-1] != n:
        raise RuntimeError(
            f"{name} grid to have size {n} in last dimension, but got grid with sizes "
            f"{listed(grid.shape)}"
        )
    for place in range(2, input.ndim):
        if input.shape[place] == 0:
            raise RuntimeError(
                f"{name} input to have non-empty spatial dimensions, but input has sizes "
                f"{listed(input.shape)} with dimension {place} being empty"
            )
    if n not in (2, 3) or input.ndim != grid.ndim:
        raise RuntimeError(
            f"{name} {4 if n == 2 else 5}D input and grid with same number of dimensions, but got "
            f"{shapes}"
        )
    if n == 3 and mode == "bicubic":
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        kernel = "grid_sampler_2d_cpu_kernel_impl" if n == 2 else "grid_sampler3d_cpu"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")
    if input.dtype != grid.dtype:
        raise RuntimeError(
            f"expected scalar type {scalar_type(input.dtype)} but found {scalar_type(grid.dtype)}"
        )


def affine_grid(theta: jax.Array, size: Sequence[int], align_corners: bool | None = None) -> jax.Array:
    """The grid that reads an image through an affine map.

    The counterpart of ``torch.nn.functional.affine_grid``.

    Args:
        theta: ``(N, 2, 3)`` or ``(N, 3, 4)``; floating-point: the map from output positions to
            input positions, its translation last.
        size: The size of the output, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        align_corners: As ``grid_sample``'s. False, with a warning, when None.

    Returns:
        ``(N, H, W, 2)`` or ``(N, D, H, W, 3)`` in ``theta``'s dtype.

    Raises:
        ValueError: ``theta`` is not floating-point, does not fit ``size``, or an axis is empty.
        NotImplementedError: ``size`` has another number of axes.
        RuntimeError: The batches differ.
    """
    if align_corners is None:
        _warn_default()
    if not jnp.issubdtype(theta.dtype, jnp.floating):
        raise ValueError(f"Expected theta to have floating point type, but got torch.{theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if theta.ndim != 3 or theta.shape[1:] != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. "
            f"Got {shown(theta.shape)}."
        )
    if align_corners and min(size[2:]) == 1:
        warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid. See the "
            "documentation of affine_grid for details.",
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    if size[0] != theta.shape[0]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {n + 1}] "
            f"but got: [{theta.shape[0]}, {n + 1}]."
        )
    sizes = tuple(map(operator.index, size[2:]))
    return _affine_grid(theta, sizes=sizes, align_corners=bool(align_corners))


@functools.partial(jax.jit, static_argnames=("sizes", "align_corners"))
def _affine_grid(theta: jax.Array, *, sizes: tuple[int, ...], align_corners: bool) -> jax.Array:
    n = len(sizes)
    columns = jnp.moveaxis(widen(theta), -1, 0)  # (n + 1, N, n)
    columns = columns.reshape(n + 1, theta.shape[0], *(1,) * n, n)
    grid = jnp.broadcast_to(columns[n], (theta.shape[0], *sizes, n))
    for axis, size in enumerate(sizes):
        steps = np.linspace(-1, 1, size) if size > 1 else np.zeros(size)
        if not align_corners:
            steps = steps * (size - 1) / size
        shape = [1] * (n + 2)
        shape[axis + 1] = size
        grid = grid + jnp.asarray(steps, columns.dtype).reshape(shape) * columns[n - 1 - axis]
    return grid.astype(theta.dtype)


def _warn_default() -> None:
    warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
        "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
        "documentation of grid_sample for details.",
    )
