"""Maximum pooling to a given size: the first largest entry of every bin."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from purestate.nn.functional._bins import OutputSize, bin_counts, binned, one_bin_count
from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._largest import largest
from purestate.nn.functional._options import listed


__all__ = [
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
]


Pooled = jax.Array | tuple[jax.Array, jax.Array]


def adaptive_max_pool1d(
    input: jax.Array, output_size: int | Sequence[int], return_indices: bool = False
) -> Pooled:
    """The largest entries of ``output_size`` bins along one axis.

    The counterpart of ``torch.nn.functional.adaptive_max_pool1d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch; floating-point.
        output_size: The number of bins.
        return_indices: Return positions too.

    Returns:
        ``(N, C, output_size)``, or ``(C, output_size)`` without a batch, in the input's dtype; or
        the pair of it and the positions in ``L``.

    Raises:
        RuntimeError: The input has other axes, an empty axis, or the size is negative.
        TypeError: The size is not an int.
        NotImplementedError: The input is of integers.
    """
    values, positions = adaptive_max_pool1d_with_indices(input, output_size)
    return (values, positions) if return_indices else values


def adaptive_max_pool1d_with_indices(
    input: jax.Array, output_size: int | Sequence[int], return_indices: bool = False
) -> tuple[jax.Array, jax.Array]:
    """``adaptive_max_pool1d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.adaptive_max_pool1d_with_indices``.
    """
    del return_indices
    return _adaptive_max(input, sizes=one_bin_count("adaptive_max_pool1d", output_size))


def adaptive_max_pool2d(
    input: jax.Array, output_size: OutputSize, return_indices: bool = False
) -> Pooled:
    """The largest entries of a grid of bins over two axes.

    The counterpart of ``torch.nn.functional.adaptive_max_pool2d``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point.
        output_size: The number of bins, one int or one per axis; ``None`` keeps an axis.
        return_indices: Return positions too.

    Returns:
        ``(N, C, out_H, out_W)``, or ``(C, out_H, out_W)`` without a batch, in the input's dtype; or
        the pair of it and the positions: ``row * W + column`` in the default integer dtype.

    Raises:
        RuntimeError: The input has other axes, an empty axis, or a size is negative.
        ValueError: The input has fewer axes than there are sizes to pool.
        NotImplementedError: The input is of integers.
    """
    values, positions = adaptive_max_pool2d_with_indices(input, output_size)
    return (values, positions) if return_indices else values


def adaptive_max_pool2d_with_indices(
    input: jax.Array, output_size: OutputSize, return_indices: bool = False
) -> tuple[jax.Array, jax.Array]:
    """``adaptive_max_pool2d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.adaptive_max_pool2d_with_indices``.
    """
    del return_indices
    return _adaptive_max(input, sizes=_sizes(input, output_size, 2))


def adaptive_max_pool3d(
    input: jax.Array, output_size: OutputSize, return_indices: bool = False
) -> Pooled:
    """The largest entries of a grid of bins over three axes.

    The counterpart of ``torch.nn.functional.adaptive_max_pool3d``. Errors as in
    ``adaptive_max_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch; floating-point.
        output_size: The number of bins, one int or one per axis; ``None`` keeps an axis.
        return_indices: Return positions too.

    Returns:
        ``(N, C, out_D, out_H, out_W)``, or without ``N``; or the pair of it and the positions:
        ``(plane * H + row) * W + column``.
    """
    values, positions = adaptive_max_pool3d_with_indices(input, output_size)
    return (values, positions) if return_indices else values


def adaptive_max_pool3d_with_indices(
    input: jax.Array, output_size: OutputSize, return_indices: bool = False
) -> tuple[jax.Array, jax.Array]:
    """``adaptive_max_pool3d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.adaptive_max_pool3d_with_indices``.
    """
    del return_indices
    return _adaptive_max(input, sizes=_sizes(input, output_size, 3))


def _sizes(input: jax.Array, output_size: OutputSize, n: int) -> tuple[int, ...]:
    error = f"adaptive_max_pool{n}d(): internal error: output_size.size() must be {n}"
    return bin_counts(input, output_size, n, error)


@functools.partial(jax.jit, static_argnames="sizes")
def _adaptive_max(input: jax.Array, *, sizes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    _check(input, sizes)

    def cut(x: jax.Array, axis: int, fill: ArrayLike) -> jax.Array:
        return binned(x, axis, sizes[axis - input.ndim], fill)

    return largest(input, cut, len(sizes))


def _check(input: jax.Array, sizes: tuple[int, ...]) -> None:
    n = len(sizes)
    name = f"adaptive_max_pool{n}d"
    shape = listed(input.shape)
    if input.ndim not in (n + 1, n + 2):
        if n == 1:
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument "
                f"#1 'self' (while checking arguments for {name})"
            )
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {shape}")
    if 0 in input.shape[1:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input "
            f"has sizes {shape} with dimension {input.shape.index(0, 1)} being empty"
        )
    if min(sizes) < 0:
        one = (1,) if n == 1 else ()  # torch pools one axis as two, the first of size one
        output = listed((*input.shape[:-n], *one, *sizes))
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {output}")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        kernel = "adaptive_max_pool3d_cpu" if n == 3 else "adaptive_max_pool2d"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")
