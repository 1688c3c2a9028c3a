"""Resizing images, and torch's older names for it.

A mode says which entries of an axis an output entry reads (``_resampling``); the axes are resized one
after the other, last first, as torch does it. ``'area'`` is adaptive average pooling.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._warning import warn
from purestate.nn.functional._adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._options import IntOrInts, listed
from purestate.nn.functional._resampling import (
    Axis,
    Taps,
    antialiased,
    apply,
    apply_bytes,
    cubic,
    linear,
    nearest,
    nearest_exact,
)


__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]


FloatOrFloats = float | Sequence[float]

_COPYING = ("nearest", "area", "nearest-exact")
_AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "lanczos": 2, "trilinear": 3}
"""The number of axes that a mode is for; the copying modes are for one to three."""
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


def interpolate(
    input: jax.Array,
    size: IntOrInts | None = None,
    scale_factor: FloatOrFloats | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> jax.Array:
    """Resize the axes behind the channels.

    The counterpart of ``torch.nn.functional.interpolate``.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; floating-point, or uint8 for
            the modes of images and the nearest ones.
        size: The new size of each axis, one int or one per axis.
        scale_factor: Instead of a size: the factor, one float or one per axis.
        mode: ``'nearest'`` (below), ``'nearest-exact'``, ``'area'`` (the mean), for any number of
            axes; ``'linear'`` for one, ``'bilinear'``, ``'bicubic'`` and ``'lanczos'`` for two,
            ``'trilinear'`` for three.
        align_corners: Positions run from the centre of the first entry to that of the last, instead
            of from edge to edge. Not for the modes that copy or average.
        recompute_scale_factor: Use the ratio of the sizes instead of ``scale_factor``, from which it
            differs when the new size was rounded.
        antialias: Average all entries that an output entry covers when the image shrinks. For
            ``'bilinear'``, ``'bicubic'`` and ``'lanczos'``; the latter needs it.

    Returns:
        The resized array in the input's dtype. Half types are computed in float32.

    Raises:
        ValueError: Not exactly one of size and factor, a wrong number of them, or an option that the
            mode does not take.
        TypeError: A size that is not an int, or a factor that is not a number.
        RuntimeError: An empty axis, before or after.
        NotImplementedError: A mode for another number of axes, or a dtype that the mode lacks.
    """
    if mode not in _COPYING:
        align_corners = bool(align_corners)
    elif align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: "
            "linear | bilinear | bicubic | trilinear"
        )
    shape = input.shape[2:]
    sizes, factors = _sizes_and_factors(shape, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    scales = None
    if sizes is None:
        assert factors is not None
        if recompute_scale_factor or mode == "area":
            sizes = [int(old * factor) for old, factor in zip(shape, factors, strict=True)]
        else:
            scales = tuple(map(_number, factors))
            sizes = [_scaled(old, scale) for old, scale in zip(shape, scales, strict=True)]
    _check_mode(input.ndim, mode, align_corners, antialias)
    if mode == "area":
        return _AREA[len(shape)](input, sizes)
    return _interpolate(
        input,
        sizes=tuple(map(operator.index, sizes)),
        scales=scales or (None,) * len(shape),
        mode=mode,
        align_corners=bool(align_corners),
        antialias=bool(antialias),
    )


def upsample(
    input: jax.Array,
    size: IntOrInts | None = None,
    scale_factor: FloatOrFloats | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> jax.Array:
    """Resize (``torch.nn.functional.upsample``): the older name of ``interpolate``.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        size: The new size of each axis, one int or one per axis.
        scale_factor: Instead of a size: the factor, one float or one per axis.
        mode: As ``interpolate``'s.
        align_corners: As ``interpolate``'s.

    Returns:
        The resized array in the input's dtype. Warns: torch deprecates this function.
    """
    _warn_deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: jax.Array, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None
) -> jax.Array:
    """Resize by copying (``torch.nn.functional.upsample_nearest``).

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        size: The new size of each axis, one int or one per axis.
        scale_factor: Instead of a size: the factor, one float or one per axis.

    Returns:
        The resized array in the input's dtype. Warns: torch deprecates this function.
    """
    _warn_deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: jax.Array, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None
) -> jax.Array:
    """Resize an image, its corners kept (``torch.nn.functional.upsample_bilinear``).

    Args:
        input: ``(N, C, H, W)``.
        size: The new size of each axis, one int or one per axis.
        scale_factor: Instead of a size: the factor, one float or one per axis.

    Returns:
        The resized array in the input's dtype. Warns: torch deprecates this function.
    """
    _warn_deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _warn_deprecated(name: str) -> None:
    warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
    )


def _sizes_and_factors(
    shape: Sequence[int], size: Any, scale_factor: Any
) -> tuple[Sequence[int] | None, Sequence[float] | None]:
    """One size or one factor per axis, the other one of the two None."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        sizes = _per_axis(shape, size, ("output", "output size of", "output size", "o"))
        if not all(hasattr(value, "__index__") for value in sizes):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                f"Tuple[int, int, int], but got size with types {[type(value) for value in sizes]}"
            )
        return sizes, None
    if scale_factor is not None:
        texts = ("scale_factor", "scale_factor of shape", "scale_factor", "s")
        return None, _per_axis(shape, scale_factor, texts)
    raise ValueError("either size or scale_factor should be defined")


def _per_axis(shape: Sequence[int], option: Any, texts: tuple[str, str, str, str]) -> Sequence[Any]:
    if not isinstance(option, list | tuple):
        return [option] * len(shape)
    if len(option) != len(shape):
        first, second, third, letter = texts
        raise ValueError(
            f"Input and {first} must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {listed(shape)} and {second} {option}. Please provide input tensor "
            f"in (N, C, d1, d2, ...,dK) format and {third} in "
            f"({letter}1, {letter}2, ...,{letter}K) format."
        )
    return option


def _number(factor: Any) -> float:
    if not hasattr(factor, "__float__"):
        raise TypeError(f"a scale_factor must be a float, not {type(factor).__name__}")
    return float(factor)


def _scaled(size: int, scale: float) -> int:
    scaled = size * scale
    if not abs(scaled) < 2.0**63:
        raise RuntimeError("value cannot be converted to type int64_t without overflow")
    return int(scaled)


def _check_mode(ndim: int, mode: str, align_corners: bool | None, antialias: bool) -> None:
    n = ndim - 2
    if antialias and not (n == 2 and mode in ("bilinear", "bicubic", "lanczos")):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a "
            "4-D tensor as input"
        )
    if n in (1, 2, 3) and mode in (*_COPYING, "linear", "bilinear", "trilinear"):
        if _AXES.get(mode, n) != n:
            raise NotImplementedError(
                f"Got {ndim}D input, but {mode} mode needs {_AXES[mode] + 2}D input"
            )
    elif n != 2 or mode not in ("bicubic", "lanczos"):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: "
            "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact "
            f"(got {mode})"
        )
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")


@functools.partial(jax.jit, static_argnames=("sizes", "scales", "mode", "align_corners", "antialias"))
def _interpolate(
    input: jax.Array,
    *,
    sizes: tuple[int, ...],
    scales: tuple[float | None, ...],
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> jax.Array:
    _check_input(input, sizes)
    # Torch's own kernel for small images: it rounds nearest positions in its own way.
    is_small = len(sizes) == 2 and sum(sizes) <= 128
    is_bytes = input.dtype == jnp.uint8
    _check_dtype(input, mode, is_small, antialias)
    x = input if is_bytes else widen(input)
    dtype = np.dtype(x.dtype)
    if is_bytes:
        dtype = np.dtype(np.float32 if mode in _COPYING else np.float64)
    for place in reversed(range(2, x.ndim)):
        axis = Axis(x.shape[place], sizes[place - 2], scales[place - 2], align_corners)
        taps = _taps(axis, dtype, mode, is_small, antialias, is_bytes)
        if taps is not None:
            combine = apply_bytes if is_bytes and taps.weight is not None else apply
            x = combine(x, place, taps)
    return x.astype(input.dtype)


def _taps(
    axis: Axis, dtype: np.dtype, mode: str, is_small: bool, antialias: bool, is_bytes: bool
) -> Taps | None:
    """What the axis reads; None for an axis that stays as it is."""
    if mode == "nearest":
        return nearest(axis, dtype, is_small=is_small)
    if mode == "nearest-exact":
        return nearest_exact(axis, dtype, is_small=is_small)
    # With a factor that rounds to the same size, cubic positions of floats move nevertheless.
    if axis.size == axis.output and (mode != "bicubic" or antialias or is_bytes):
        return None
    if antialias:
        return antialiased(axis, dtype, mode)
    return cubic(axis, dtype) if mode == "bicubic" else linear(axis, dtype)


def _check_input(input: jax.Array, sizes: tuple[int, ...]) -> None:
    n = len(sizes)
    if min(*input.shape[2:], *sizes) <= 0:
        before, after = (
            ", ".join(f"{name}: {size}" for name, size in zip("DHW"[-n:], values, strict=True))
            for values in (input.shape[2:], sizes)
        )
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got "
            f"input ({before}) {'and ' if n == 1 else ''}output ({after})"
        )
    if input.shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {n + 2}D data tensor expected but got a tensor with sizes {listed(input.shape)}"
        )


def _check_dtype(input: jax.Array, mode: str, is_small: bool, antialias: bool) -> None:
    """Torch has each mode for floating-point numbers, antialiasing not for halves."""
    kind = mode.removesuffix("-exact")
    allowed = ["float64", "float32"]
    if antialias:
        kernel = "compute_index_ranges_weights"
    else:
        allowed += ["float16", "bfloat16"]
        kernel = f"compute_indices_weights_{kind.removeprefix('bi').removeprefix('tri')}"
        if is_small and kind in ("nearest", "bilinear"):
            kernel = f"upsample_{kind}2d_channels_last"
    if kind in ("nearest", "bilinear", "bicubic", "lanczos"):
        allowed.append("uint8")
    if input.dtype.name not in allowed:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")
