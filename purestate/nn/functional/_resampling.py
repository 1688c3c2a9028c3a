"""Reading an axis at other positions: which entries, with which weights.

Every way to resize an image works axis by axis: each output entry is a weighted sum of a few input
entries, its *taps*. Sizes are static, so positions and weights are computed with numpy while
tracing; what runs is one read and one product for each tap. The arithmetic of positions is torch's,
in torch's precision (float32 except for float64 inputs), because a nearest entry, or the pair next
to a position, is decided by the last bit of it.

Images of uint8 have weights of 16 bits: integers, scaled by the largest power of two that fits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


Position = np.ndarray
"""Fractional positions in the input, one for each output entry."""


class Axis(NamedTuple):
    """One axis to resize: ``scale`` is the factor that was asked for, None if a size was."""

    size: int
    output: int
    scale: float | None
    align_corners: bool


class Taps(NamedTuple):
    """What the output entries read: both fields ``(taps, output)``; no weights for a plain copy.

    An output entry at the border may have fewer taps than the others: such a tap is entry -1.
    """

    entry: np.ndarray
    weight: np.ndarray | None


def apply(x: jax.Array, place: int, taps: Taps) -> jax.Array:
    """The weighted sum of the taps along the axis at ``place``."""
    if taps.weight is None:
        return _read(x, place, taps.entry[0])
    shape = [1] * x.ndim
    shape[place] = -1
    total = None
    for index, weight in zip(taps.entry, taps.weight, strict=True):
        value = _read(x, place, np.maximum(index, 0))
        if index.min() < 0:
            value = jnp.where((index >= 0).reshape(shape), value, 0)
        value = value * weight.reshape(shape)
        total = value if total is None else total + value
    assert total is not None
    return total


def apply_bytes(x: jax.Array, place: int, taps: Taps) -> jax.Array:
    """``apply`` for uint8, with weights rounded to 16 bits and a result rounded to 8."""
    taps, precision = _rounded(taps)
    total = apply(x.astype(jnp.int32), place, taps) + (1 << (precision - 1))
    return jnp.clip(total >> precision, 0, 255).astype(jnp.uint8)


def _read(x: jax.Array, place: int, index: np.ndarray) -> jax.Array:
    """``x`` at static positions along one axis.

    The gradient of a gather is a scatter, which XLA's CPU backend runs entry by entry. When an axis
    grows by a whole factor, the positions move on by one every ``factor`` entries, and the same
    read is a slice of the repeated input, whose gradient is a sum.
    """
    size, factor = x.shape[place], len(index) // x.shape[place]
    if size > 1 and size * factor == len(index):
        edge = 2  # no tap lies further outside
        start = (edge + 1) * factor - int(np.searchsorted(index, 1))
        steps = (np.arange(len(index)) + start) // factor - edge
        is_repeated = np.array_equal(np.clip(steps, 0, size - 1), index)
        if is_repeated and 0 <= start <= 2 * edge * factor:
            first = lax.slice_in_dim(x, 0, 1, axis=place)
            last = lax.slice_in_dim(x, size - 1, size, axis=place)
            x = lax.concatenate([first] * edge + [x] + [last] * edge, place)
            x = jnp.repeat(x, factor, axis=place)
            return lax.slice_in_dim(x, start, start + len(index), axis=place)
    return x.at[(slice(None),) * place + (index,)].get(mode="promise_in_bounds")


def nearest(axis: Axis, dtype: np.dtype, *, is_small: bool) -> Taps:
    """The entry below each position. Torch copies small images in another way (``is_small``)."""
    steps = np.arange(axis.output)
    if is_small and axis.output in (axis.size, 2 * axis.size):
        index = steps // (axis.output // axis.size)
    else:
        ratio = _ratio(axis, np.dtype(np.float32) if is_small else dtype)
        index = _floor(ratio * steps.astype(ratio.dtype))
    return _copies(index, axis)


def nearest_exact(axis: Axis, dtype: np.dtype, *, is_small: bool) -> Taps:
    """The entry whose centre is nearest to each position."""
    if is_small:
        ratio = _ratio(axis, np.dtype(np.float32))
        index = _floor((np.arange(axis.output) + 0.5) * np.float64(ratio))
    else:
        index = _floor(np.maximum(_positions(axis, dtype), 0).astype(np.float64) + 0.5)
    return _copies(index, axis)


def linear(axis: Axis, dtype: np.dtype) -> Taps:
    """The two entries around each position."""
    low, above = _split(np.maximum(_positions(axis, dtype), 0), axis)
    index = np.stack([low, np.minimum(low + 1, axis.size - 1)])
    return Taps(index, np.stack([1 - above, above]))


def cubic(axis: Axis, dtype: np.dtype) -> Taps:
    """The four entries around each position, the border repeated where there are fewer."""
    low, above = _split(_positions(axis, dtype), axis)
    index = np.clip(low + np.arange(-1, 3)[:, None], 0, axis.size - 1)
    return Taps(index, np.stack(cubic_weights(above)))


def cubic_weights(above: Any) -> list[Any]:
    """The weights of the four entries around a position that is ``above`` past the second.

    Of numpy or JAX arrays.
    """
    a = -0.75
    return [
        _cubic_far(above + 1, a),
        _cubic_near(above, a),
        _cubic_near(1 - above, a),
        _cubic_far(2 - above, a),
    ]


def _cubic_near(x: Any, a: float) -> Any:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _cubic_far(x: Any, a: float) -> Any:
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _keys(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.5  # not the -0.75 of ``cubic``: as in Pillow
    return np.where(x < 1, _cubic_near(x, a), np.where(x < 2, _cubic_far(x, a), 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0).astype(x.dtype)


_FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "bilinear": (_triangle, 2),
    "bicubic": (_keys, 4),
    "lanczos": (_lanczos, 6),
}
"""By mode: the filter and the width where it is not zero."""


def antialiased(axis: Axis, dtype: np.dtype, mode: str) -> Taps:
    """All entries below the filter, which shrinking widens: the resampling of Pillow."""
    curve, width = _FILTERS[mode]
    ratio = _ratio(axis, dtype)
    widened = max(ratio, dtype.type(1))
    reach = dtype.type(width) * dtype.type(0.5) * widened
    center = (np.arange(axis.output) + 0.5).astype(dtype) * ratio
    first = np.maximum(_truncated(center - reach), 0)
    count = np.minimum(_truncated(center + reach), axis.size) - first
    count = np.clip(count, 0, int(np.ceil(reach)) * 2 + 1)
    index = first + np.arange(count.max())[:, None]
    weight = curve(((index - center + 0.5) / widened).astype(dtype))
    weight = np.where(index < first + count, weight, 0)
    total = weight.sum(0)
    weight = weight / np.where(total == 0, 1, total)
    return Taps(np.where(index < first + count, index, -1), weight.astype(dtype))


def _truncated(position: Position) -> np.ndarray:
    """The position plus a half, towards zero."""
    return (position.astype(np.float64) + 0.5).astype(np.int64)


def _ratio(axis: Axis, dtype: np.dtype) -> np.floating:
    """How far one step of the output goes in the input."""
    number = dtype.type
    if axis.align_corners:
        return number(axis.size - 1) / number(axis.output - 1) if axis.output > 1 else number(0)
    if axis.scale is not None and axis.scale > 0:
        return number(1.0 / axis.scale)
    return number(axis.size) / number(axis.output)


def _positions(axis: Axis, dtype: np.dtype) -> Position:
    steps, ratio = np.arange(axis.output).astype(dtype), _ratio(axis, dtype)
    if axis.align_corners:
        return steps * ratio
    product = (steps + 0.5).astype(np.float64) * np.float64(ratio)
    return (product - 0.5).astype(dtype)  # rounded once, like torch's fused operation


def _floor(position: Position) -> np.ndarray:
    """The integer below; torch rounds the position to float32 for it."""
    return np.floor(position.astype(np.float32)).astype(np.int64)


def _split(position: Position, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """The entry below each position, and how far above it the position is."""
    low = np.minimum(_floor(position), axis.size - 1)
    return low, np.clip(position - low.astype(position.dtype), 0, 1)


def _copies(index: np.ndarray, axis: Axis) -> Taps:
    return Taps(np.minimum(index, axis.size - 1)[None], None)


def _rounded(taps: Taps) -> tuple[Taps, int]:
    """The taps with weights of 16 bits, and the power of two that these are scaled by."""
    entry, weight = taps.entry, np.array(taps.weight, np.float64)
    for tap in range(1, len(entry)):  # the border may be read twice: its weights are one
        same = entry[tap] == entry[tap - 1]
        weight[tap] += np.where(same, weight[tap - 1], 0)
        weight[tap - 1] = np.where(same, 0, weight[tap - 1])
    precision = 0
    while precision < 22 and int(0.5 + weight.max() * (1 << (precision + 1))) < 1 << 15:
        precision += 1
    scaled = weight * (1 << precision)
    return Taps(entry, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32)), precision
