"""Fractional maximum pooling: windows at random distances, so that any size can be reached.

The windows have one size and their starts are drawn: with a random ``u`` in ``[0, 1)`` and the step
``a`` that spreads them evenly, window ``i`` starts at ``floor((i + u) * a) - floor(u * a)``, and the
last one ends with the input (Graham, 2014). Every channel of every item has a ``u`` per axis. Torch
draws them from a global generator; here ``rng`` is an argument, or the numbers are given as
``_random_samples``.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._largest import largest
from purestate.nn.functional._options import IntOrInts, listed, per_axis


__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]


Pooled = jax.Array | tuple[jax.Array, jax.Array]
Ratio = float | Sequence[float]


def fractional_max_pool2d(
    input: jax.Array,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: jax.Array | None = None,
    *,
    rng: jax.Array | None = None,
) -> Pooled:
    """The largest entry of every window, at random distances over two axes.

    The counterpart of ``torch.nn.functional.fractional_max_pool2d``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point.
        kernel_size: Size of the window, one int or one per axis.
        output_size: Number of windows, one int or one per axis.
        output_ratio: The same as a part of the input's size, a sequence of one per axis; read if
            ``output_size`` is None.
        return_indices: Return positions too.
        _random_samples: ``(N, C, 2)`` numbers in ``[0, 1)`` of the input's dtype, for the columns and
            for the rows; drawn if None.
        rng: A JAX key, needed if ``_random_samples`` is None.

    Returns:
        ``(N, C, out_H, out_W)``, or ``(C, out_H, out_W)`` without a batch, in the input's dtype; or
        the pair of it and the positions: ``row * W + column`` in the default integer dtype.

    Raises:
        ValueError: Neither size nor ratio is given, or neither numbers nor ``rng``; or the window
            is empty.
        RuntimeError: The windows do not fit, or the shape or dtype of the numbers is wrong.
        NotImplementedError: The input is of integers.
    """
    values, positions = fractional_max_pool2d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples, rng=rng
    )
    return (values, positions) if return_indices else values


def fractional_max_pool2d_with_indices(
    input: jax.Array,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: jax.Array | None = None,
    *,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """``fractional_max_pool2d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.fractional_max_pool2d_with_indices``.
    """
    del return_indices
    return _call(2, input, kernel_size, output_size, output_ratio, _random_samples, rng)


def fractional_max_pool3d(
    input: jax.Array,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: jax.Array | None = None,
    *,
    rng: jax.Array | None = None,
) -> Pooled:
    """The largest entry of every window, at random distances over three axes.

    The counterpart of ``torch.nn.functional.fractional_max_pool3d``. Errors as in
    ``fractional_max_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch; floating-point.
        kernel_size: Size of the window, one int or one per axis.
        output_size: Number of windows, one int or one per axis.
        output_ratio: The same as a part of the input's size, one number or one per axis; read if
            ``output_size`` is None.
        return_indices: Return positions too.
        _random_samples: ``(N, C, 3)`` numbers in ``[0, 1)`` of the input's dtype, one per axis in
            their order; drawn if None.
        rng: A JAX key, needed if ``_random_samples`` is None.

    Returns:
        ``(N, C, out_D, out_H, out_W)``, or without ``N``; or the pair of it and the positions:
        ``(plane * H + row) * W + column``.
    """
    values, positions = fractional_max_pool3d_with_indices(
        input, kernel_size, output_size, output_ratio, True, _random_samples, rng=rng
    )
    return (values, positions) if return_indices else values


def fractional_max_pool3d_with_indices(
    input: jax.Array,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: jax.Array | None = None,
    *,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """``fractional_max_pool3d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.fractional_max_pool3d_with_indices``.
    """
    del return_indices
    return _call(3, input, kernel_size, output_size, output_ratio, _random_samples, rng)


def _call(n, input, kernel_size, output_size, output_ratio, samples, rng):
    name = f"fractional_max_pool{n}d"
    if output_size is None:
        output_size = _from_ratio(name, input, output_ratio, n)
    kernel, sizes = per_axis(kernel_size, n), per_axis(output_size, n)
    return _fractional(input, samples, rng, kernel=kernel, sizes=sizes, n=n)


def _from_ratio(name: str, input: jax.Array, ratio: Any, n: int) -> tuple[int, ...]:
    if ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if n == 2 and len(ratio) > 2:
        raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
    ratios = ratio if isinstance(ratio, Sequence) else (ratio,) * n
    return tuple(int(input.shape[d - n] * ratios[d]) for d in range(n))


@functools.partial(jax.jit, static_argnames=("kernel", "sizes", "n"))
def _fractional(
    input: jax.Array,
    samples: jax.Array | None,
    rng: jax.Array | None,
    *,
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
    n: int,
) -> tuple[jax.Array, jax.Array]:
    name = f"fractional_max_pool{n}d"
    if samples is None:
        _check_drawing(input, n)
    _check_windows(name, input, kernel, sizes, n)
    if samples is None:
        samples = _drawn(name, input, n, rng)
    _check_samples(name, input, samples, n)
    lead = input.shape[:-n]
    samples = samples[: lead[0]] if len(lead) == 2 else samples[0]
    if n == 2:  # torch's order of the axes is not the same
        samples = samples[..., ::-1]
    windows = [
        _entries(samples[..., d], input.shape[d - n], kernel[d], sizes[d])[(..., *(None,) * (n - 1))]
        for d in range(n)
    ]  # (*lead, out * k, 1, ...)

    def cut(x: jax.Array, axis: int, fill: ArrayLike) -> jax.Array:
        del fill  # all windows are equally long
        place = axis - len(lead)
        index = jnp.moveaxis(windows[place], len(lead), axis)
        entries = jnp.take_along_axis(x, index, axis, mode="clip")
        shape = (*x.shape[:axis], sizes[place], kernel[place], *x.shape[axis + 1 :])
        return entries.reshape(shape)

    return largest(input, cut, n)


def _drawn(name: str, input: jax.Array, n: int, rng: jax.Array | None) -> jax.Array:
    if rng is None:
        raise ValueError(
            f"{name} draws where its windows start and needs a random key, in evaluation too.\n"
            f"    write: {name}(x, ..., rng=key), in a module rng=self.next_key()"
        )
    items = 1 if input.ndim == n + 1 else input.shape[0]
    return jax.random.uniform(rng, (items, input.shape[-n - 1], n), input.dtype)


def _entries(sample: jax.Array, size: int, kernel: int, count: int) -> jax.Array:
    """Where the entries of ``count`` windows lie along an axis, one window after the other."""
    dtype = jnp.finfo(sample.dtype)

    def rounded(x: jax.Array) -> jax.Array:
        # Torch computes in the dtype of the input step by step, and a half type is easily one off.
        return lax.reduce_precision(x, dtype.nexp, dtype.nmant)

    wide = sample.astype(jnp.promote_types(sample.dtype, jnp.float32))[..., None]
    last = size - kernel
    step = rounded(jnp.asarray(last / max(count - 1, 1), wide.dtype))
    numbers = rounded(jnp.asarray(np.arange(count - 1), wide.dtype))
    starts = jnp.trunc(rounded(rounded(numbers + wide) * step)) - jnp.trunc(rounded(wide * step))
    ends = jnp.full((*sample.shape, min(count, 1)), last)
    starts = jnp.concatenate([starts.astype(ends.dtype), ends], -1)
    return (starts[..., None] + np.arange(kernel)).reshape(*sample.shape, count * kernel)


def _check_drawing(input: jax.Array, n: int) -> None:
    """Torch finds these two while it draws."""
    if input.ndim < n + 1:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [-{input.ndim}, {input.ndim - 1}], "
            f"but got {-n - 1})"
        )
    if not jnp.issubdtype(input.dtype, jnp.floating):
        got = scalar_type(input.dtype)
        raise NotImplementedError(f"\"check_uniform_bounds\" not implemented for '{got}'")


def _check_windows(
    name: str, input: jax.Array, kernel: tuple[int, ...], sizes: tuple[int, ...], n: int
) -> None:
    where = f"{name}_out" if n == 3 else name
    three = "three " if n == 3 else ""
    for option, value in (("kernel_size", kernel), ("output_size", sizes)):
        if len(value) != n:
            raise RuntimeError(f"{name}: {option} must either be a single Int or tuple of {three}Ints")
    shape = listed(input.shape)
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{where}(): Expected {n + 1}D or {n + 2}D tensor, but got: {shape}")
    if 0 in input.shape[1:]:
        raise RuntimeError(
            f"{where}(): Expected input to have non-zero size for non-batch dimensions, but got"
            f"{shape} with dimension {input.shape.index(0, 1)} being empty."
        )
    axes = ("time", "height", "width")[-n:]
    for axis, size, taps, count in zip(axes, input.shape[-n:], kernel, sizes, strict=True):
        if count + taps - 1 > size - (n == 3):
            raise RuntimeError(
                f"{where}(): pool {axis} {taps} too large relative to input {axis} {size}"
            )
    if min(sizes) < 0:
        output = listed((*input.shape[:-n], *sizes))
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {output}")
    if min(kernel) < 1:
        raise ValueError(f"kernel_size must be greater than 0, but got {kernel}")


def _check_samples(name: str, input: jax.Array, samples: jax.Array, n: int) -> None:
    if samples.dtype != input.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    items = 1 if input.ndim == n + 1 else input.shape[0]
    if samples.shape[0] < items:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != input.shape[-n - 1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != n:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {samples.shape[2]}.")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise NotImplementedError(
            f"\"{name}_out_frame\" not implemented for '{scalar_type(input.dtype)}'"
        )
