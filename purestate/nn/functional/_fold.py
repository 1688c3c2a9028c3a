"""Sliding blocks of an image as columns, and columns summed back into an image.

A column holds one block, all channels of it; there is a column for every place of the block.
``unfold`` copies the entries of each block into its column, so an entry that lies in several blocks
is copied several times. ``fold`` adds those copies up again: it is the transpose of ``unfold``, and
is computed as that.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._options import IntOrInts, listed, per_axis
from purestate.nn.functional._varying import varying_alike
from purestate.nn.functional._windows import Axis, taps


__all__ = ["fold", "unfold"]


Pair = tuple[int, ...]


def unfold(
    input: jax.Array,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> jax.Array:
    """Every block of an image as a column.

    The counterpart of ``torch.nn.functional.unfold``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point, complex or bool.
        kernel_size: Size of the block, one int or one per axis.
        dilation: Distance between the entries of a block, one int or one per axis.
        padding: Zeros added at both ends, one int or one per axis.
        stride: Step of the block, one int or one per axis.

    Returns:
        ``(N, C * kH * kW, L)``, or without ``N``; ``L`` is the number of places of the block.

    Raises:
        RuntimeError: The block does not fit, an option is out of its range or has not two entries.
        IndexError: The input has fewer than three axes.
        NotImplementedError: The input is of integers.
    """
    return _unfold(
        input,
        kernel=_two("kernel_size", kernel_size),
        dilation=_two("dilation", dilation),
        padding=_two("padding", padding),
        stride=_two("stride", stride),
    )


def fold(
    input: jax.Array,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> jax.Array:
    """The sum of all blocks, each put back into its place in the image.

    The counterpart of ``torch.nn.functional.fold``. The options are those with which ``unfold``
    makes these columns of the image.

    Args:
        input: ``(N, C * kH * kW, L)``, or without ``N``; floating-point, complex or bool.
        output_size: Size of the image, one int or one per axis.
        kernel_size: Size of the block, one int or one per axis.
        dilation: Distance between the entries of a block, one int or one per axis.
        padding: Entries left out at both ends, one int or one per axis.
        stride: Step of the block, one int or one per axis.

    Returns:
        ``(N, C, *output_size)``, or without ``N``.

    Raises:
        RuntimeError: The number of rows or columns does not fit the options, an option is out of
            its range or has not two entries.
        NotImplementedError: The input is of integers.
    """
    return _fold(
        input,
        sizes=_two("output_size", output_size),
        kernel=_two("kernel_size", kernel_size),
        dilation=_two("dilation", dilation),
        padding=_two("padding", padding),
        stride=_two("stride", stride),
    )


def _two(name: str, value: IntOrInts) -> tuple[int, ...]:
    """An option of one entry per axis; unlike elsewhere, a sequence of one is not repeated."""
    entries = per_axis(value, 2)
    if len(entries) != 2:
        raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(entries)}")
    return entries


@functools.partial(jax.jit, static_argnames=("kernel", "dilation", "padding", "stride"))
def _unfold(
    input: jax.Array, *, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> jax.Array:
    _check_options(kernel, dilation, padding, stride, ("kernel", "dilation", "pad", "stride"))
    if not input.ndim:
        raise IndexError("Dimension specified as 1 but tensor has no dimensions")
    if input.ndim < 3:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [-{input.ndim}, {input.ndim - 1}], "
            f"but got {input.ndim})"
        )
    if input.ndim > 4 or 0 in input.shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {listed(input.shape)}"
        )
    axes = _axes(input.shape[-2:], kernel, dilation, padding, stride)
    blocks = tuple(axis.output for axis in axes)
    if min(blocks) < 1:
        raise RuntimeError(
            f"Given input with spatial size {input.shape[-2:]}, kernel_size={kernel}, "
            f"dilation={dilation}, padding={padding}, calculated shape of the array of sliding "
            f"blocks as {blocks}, but its components must be at least one."
        )
    _check_dtype("im2col", input.dtype)
    return _columns(input, axes)


@functools.partial(jax.jit, static_argnames=("sizes", "kernel", "dilation", "padding", "stride"))
def _fold(
    input: jax.Array, *, sizes: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> jax.Array:
    _check_options(kernel, dilation, padding, stride, ("kernel", "stride", "dilation", "pad"))
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {listed(input.shape)}"
        )
    rows, columns = input.shape[-2:]
    if rows % math.prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
            f"got input.size(1)={rows} and kernel_size={kernel}."
        )
    axes = _axes(sizes, kernel, dilation, padding, stride)
    blocks = [axis.output for axis in axes]
    if math.prod(blocks) != columns:
        raise RuntimeError(
            f"Given output_size={sizes}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, stride={stride}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {blocks[0]} * {blocks[1]} = {math.prod(blocks)}, "
            f"but got input.size(2)={columns}."
        )
    if min(sizes) < 1:
        raise RuntimeError(
            f"Expected output spatial size to be positive, but got: output_size={sizes}."
        )
    _check_dtype("col2im", input.dtype)
    summed = input.astype(jnp.float32) if input.dtype == bool else input
    image = jnp.zeros((*input.shape[:-2], rows // math.prod(kernel), *sizes), summed.dtype)
    image, summed = varying_alike((image, summed))
    (output,) = jax.linear_transpose(functools.partial(_columns, axes=axes), image)(summed)
    return output.astype(input.dtype)


def _columns(image: jax.Array, axes: tuple[Axis, Axis]) -> jax.Array:
    """``(*, C, H, W)`` to ``(*, C * kH * kW, L)``."""
    rows, columns = axes
    edges = [(axis.padding, axis.padding, 0) for axis in axes]
    blocks = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0)] * (image.ndim - 2) + edges)
    blocks = jnp.stack(list(taps(blocks, blocks.ndim - 2, rows)), -3)  # (*, C, kH, oH, W)
    blocks = jnp.stack(list(taps(blocks, blocks.ndim - 1, columns)), -3)  # (*, C, kH, kW, oH, oW)
    values = image.shape[-3] * rows.kernel * columns.kernel
    # One axis at a time, which JAX also does on a mesh with explicit axes.
    blocks = blocks.reshape(*image.shape[:-3], values, rows.output, columns.output)
    return blocks.reshape(*image.shape[:-3], values, rows.output * columns.output)


def _axes(sizes: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> tuple[Axis, Axis]:
    """The places of the block along both axes."""
    first, second = (
        Axis(size, taps, step, pad, gap, (size + 2 * pad - gap * (taps - 1) - 1) // step + 1)
        for size, taps, step, pad, gap in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )
    return first, second


def _check_options(
    kernel: Pair, dilation: Pair, padding: Pair, stride: Pair, order: Sequence[str]
) -> None:
    """Every option in its range; torch asks in another order in each function."""
    options = {"kernel": kernel, "dilation": dilation, "pad": padding, "stride": stride}
    titles = {"kernel": "kernel size", "pad": "padding"}
    for name in order:
        height, width = options[name]
        if min(height, width) < (0 if name == "pad" else 1):
            wanted = "non-negative" if name == "pad" else "greater than zero"
            raise RuntimeError(
                f"{titles.get(name, name)} should be {wanted}, but got {name}_height: {height} "
                f"{name}_width: {width}"
            )


def _check_dtype(kernel: str, dtype: jnp.dtype) -> None:
    if jnp.issubdtype(dtype, jnp.integer):
        raise NotImplementedError(f"\"{kernel}_out_cpu\" not implemented for '{scalar_type(dtype)}'")
