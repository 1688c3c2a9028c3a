"""Average pooling to a given size.

A bin over several axes is a box, so its mean is taken one axis after the other.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from purestate.nn.functional._bins import (
    OutputSize,
    bin_counts,
    binned,
    one_bin_count,
    starts_and_lengths,
)
from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._options import listed


__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"]


def adaptive_avg_pool1d(input: jax.Array, output_size: int | Sequence[int]) -> jax.Array:
    """The means of ``output_size`` bins along one axis.

    The counterpart of ``torch.nn.functional.adaptive_avg_pool1d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch; floating-point.
        output_size: The number of bins.

    Returns:
        ``(N, C, output_size)``, or ``(C, output_size)`` without a batch; in the input's dtype.

    Raises:
        RuntimeError: The input has other axes, an empty axis, or the size is negative.
        TypeError: The size is not an int.
        NotImplementedError: The input is of integers.
    """
    return _adaptive(input, sizes=one_bin_count("adaptive_avg_pool1d", output_size))


def adaptive_avg_pool2d(input: jax.Array, output_size: OutputSize) -> jax.Array:
    """The means of a grid of bins over two axes.

    The counterpart of ``torch.nn.functional.adaptive_avg_pool2d``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point.
        output_size: The number of bins, one int or one per axis; ``None`` keeps an axis.

    Returns:
        ``(N, C, out_H, out_W)``, or ``(C, out_H, out_W)`` without a batch; in the input's dtype
        (half types are averaged in float32).

    Raises:
        RuntimeError: The input has other axes, an empty axis, or a size is negative.
        ValueError: The input has fewer axes than there are sizes to pool.
        NotImplementedError: The input is of integers.
    """
    return _adaptive(input, sizes=_sizes(input, output_size, 2))


def adaptive_avg_pool3d(input: jax.Array, output_size: OutputSize) -> jax.Array:
    """The means of a grid of bins over three axes.

    The counterpart of ``torch.nn.functional.adaptive_avg_pool3d``. Errors as in
    ``adaptive_avg_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch; floating-point.
        output_size: The number of bins, one int or one per axis; ``None`` keeps an axis.

    Returns:
        ``(N, C, out_D, out_H, out_W)``, or without ``N``; in the input's dtype.
    """
    return _adaptive(input, sizes=_sizes(input, output_size, 3))


def _sizes(input: jax.Array, output_size: OutputSize, n: int) -> tuple[int, ...]:
    return bin_counts(input, output_size, n, f"adaptive_avg_pool{n}d: output_size must be {n}")


@functools.partial(jax.jit, static_argnames="sizes")
def _adaptive(input: jax.Array, *, sizes: tuple[int, ...]) -> jax.Array:
    _check(input, sizes)
    output = widen(input)
    for place, wanted in zip(range(-len(sizes), 0), sizes, strict=True):
        output = _means(output, output.ndim + place, wanted)
    return output.astype(input.dtype)


def _means(x: jax.Array, axis: int, wanted: int) -> jax.Array:
    """The means of ``wanted`` bins along one axis."""
    if wanted == x.shape[axis]:
        return x
    _, lengths = starts_and_lengths(x.shape[axis], wanted)
    lengths = jnp.asarray(lengths, x.dtype).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return binned(x, axis, wanted, 0).sum(axis + 1) / lengths


def _check(input: jax.Array, sizes: tuple[int, ...]) -> None:
    n = len(sizes)
    name = f"adaptive_avg_pool{n}d"
    if input.ndim not in (n + 1, n + 2):
        if n == 1:
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument "
                f"#1 'self' (while checking arguments for {name})"
            )
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {listed(input.shape)}"
        )
    shape = list(input.shape)
    if n == 1:  # torch pools one axis as two, the first of size one
        name, shape, sizes = "adaptive_avg_pool2d", [*shape[:-1], 1, shape[-1]], (1, *sizes)
    if min(sizes) < 0:
        got = ",".join(map(str, sizes)) if n == 3 else ", ".join(map(str, sizes))
        got = got.replace(",", ", ", 1) if n == 3 else got
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {{{got}}}"
        )
    first = len(shape) - len(sizes) if n < 3 else 1
    if 0 in shape[first:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {listed(shape)} with dimension {shape.index(0, first)} being empty"
        )
    if not jnp.issubdtype(input.dtype, jnp.inexact) and (n == 3 or 0 not in sizes):
        kernel = "adaptive_avg_pool3d_cpu" if n == 3 else name
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")
