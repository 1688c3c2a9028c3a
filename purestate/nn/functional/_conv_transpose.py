"""Transposed convolution over one, two or three spatial axes.

It maps back what a convolution maps: the derivative of a convolution by its input. Written out, it
is an ordinary convolution with stride 1 and the kernel turned around, of an input with
``stride - 1`` zeros between its entries, padded by what the kernel reaches less ``padding``. The
zeros between are an option of XLA's convolution, so nothing is ever filled with them, and every
derivative is again a convolution.

The checks are torch's, in torch's order. Torch computes one axis as two, the first of size one, and
says so in its errors.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._conv import per_axis
from purestate.nn.functional._dtypes import plus, scalar_type
from purestate.nn.functional._options import IntOrInts, ints, listed


__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def conv_transpose1d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> jax.Array:
    """Convolve transposed over one spatial axis.

    The counterpart of ``torch.nn.functional.conv_transpose1d``. Options and errors as in
    ``conv_transpose2d``.

    Args:
        input: ``(N, C_in, L)``, or ``(C_in, L)`` without a batch.
        weight: ``(C_in, C_out // groups, k)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel in the output.
        padding: Entries left out at both ends of the output.
        output_padding: Entries added at the end of the output.
        groups: Number of blocks that the channels are split into.
        dilation: Distance between the taps of the kernel.

    Returns:
        ``(N, C_out, L_out)``, or ``(C_out, L_out)`` without a batch.
    """
    return _call(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> jax.Array:
    """Convolve transposed over two spatial axes.

    The counterpart of ``torch.nn.functional.conv_transpose2d``.

    Args:
        input: ``(N, C_in, H, W)``, or ``(C_in, H, W)`` without a batch.
        weight: ``(C_in, C_out // groups, kH, kW)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel in the output, one int or one per axis.
        padding: Entries left out at both ends of the output, one int or one per axis.
        output_padding: Entries added at the end of the output, one int or one per axis: of the
            sizes that a convolution with this stride maps to the input's, which one is meant.
        groups: Number of blocks that the channels are split into.
        dilation: Distance between the taps of the kernel, one int or one per axis.

    Returns:
        ``(N, C_out, H_out, W_out)``, or ``(C_out, H_out, W_out)`` without a batch, in the input's
        dtype. An axis of size ``n`` becomes ``(n - 1) * stride - 2 * padding +
        dilation * (k - 1) + output_padding + 1``.

    Raises:
        RuntimeError: Sizes do not fit, dtypes differ, or an option is out of its range.
        TypeError: An option is not of ints.
        NotImplementedError: The input is of bools or of small integers.
    """
    return _call(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> jax.Array:
    """Convolve transposed over three spatial axes.

    The counterpart of ``torch.nn.functional.conv_transpose3d``. Options and errors as in
    ``conv_transpose2d``.

    Args:
        input: ``(N, C_in, D, H, W)``, or ``(C_in, D, H, W)`` without a batch.
        weight: ``(C_in, C_out // groups, kD, kH, kW)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel in the output, one int or one per axis.
        padding: Entries left out at both ends of the output, one int or one per axis.
        output_padding: Entries added at the end of the output, one int or one per axis.
        groups: Number of blocks that the channels are split into.
        dilation: Distance between the taps of the kernel, one int or one per axis.

    Returns:
        ``(N, C_out, D_out, H_out, W_out)``, or ``(C_out, D_out, H_out, W_out)`` without a batch.
    """
    return _call(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _call(n, input, weight, bias, stride, padding, output_padding, groups, dilation):
    if isinstance(padding, str):
        raise TypeError(f"conv_transpose{n}d(): argument 'padding' must be tuple of ints, not str")
    return _conv_transpose(
        input,
        weight,
        bias,
        n=n,
        stride=ints(stride),
        padding=ints(padding),
        output_padding=ints(output_padding),
        groups=groups,
        dilation=ints(dilation),
    )


@functools.partial(
    jax.jit, static_argnames=("n", "stride", "padding", "output_padding", "groups", "dilation")
)
def _conv_transpose(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    *,
    n: int,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    groups: int,
    dilation: tuple[int, ...],
) -> jax.Array:
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv_transpose{n}d, "
            f"but got input of size: {listed(input.shape)}"
        )
    batched = input if input.ndim == n + 2 else input[None]
    stride = per_axis("stride", stride, weight, n)
    padding = per_axis("padding", padding, weight, n)
    dilation = per_axis("dilation", dilation, weight, n)
    output_padding = per_axis("output_padding", output_padding, weight, n)
    _check_options(stride, padding, output_padding, groups, dilation)
    _check_shapes(batched, weight, bias, groups)
    reach = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
    pads = [
        (taps - pad, taps - pad + more)
        for taps, pad, more in zip(reach, padding, output_padding, strict=True)
    ]
    sizes = [
        (size - 1) * step + 1 + sum(pad) - taps
        for size, step, pad, taps in zip(batched.shape[2:], stride, pads, reach, strict=True)
    ]
    if batched.shape[0]:
        _check_geometry(batched, weight, stride, output_padding, dilation, sizes)
    else:
        _check_empty(weight, groups, sizes)
    _check_dtypes(input, weight, bias, n)
    if not batched.shape[0]:  # of a shape that no convolution need have
        return jnp.zeros((0, groups * weight.shape[1], *sizes), input.dtype)
    output = _convolve_transposed(batched, weight, stride, pads, groups, dilation)
    if bias is not None:
        output = plus(output, bias.reshape(-1, *(1,) * n).astype(output.dtype))
    return output if input.ndim == n + 2 else output[0]


def _convolve_transposed(
    input: jax.Array,
    weight: jax.Array,
    stride: tuple[int, ...],
    pads: Sequence[tuple[int, int]],
    groups: int,
    dilation: tuple[int, ...],
) -> jax.Array:
    """XLA's convolution with zeros between the entries of the input, by the turned kernel."""
    in_channels, out_channels, *kernel = weight.shape  # the second within a group
    weight = weight.reshape(groups, in_channels // groups, out_channels, *kernel).swapaxes(1, 2)
    weight = weight.reshape(groups * out_channels, in_channels // groups, *kernel)
    spatial = "DHW"[-len(kernel) :]
    return lax.conv_general_dilated(
        input,
        jnp.flip(weight, range(2, weight.ndim)),
        (1,) * len(kernel),
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
    )


def _check_options(
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    groups: int,
    dilation: tuple[int, ...],
) -> None:
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) < 0:
        raise RuntimeError("dilation should be greater than zero")


def _check_shapes(input: jax.Array, weight: jax.Array, bias: jax.Array | None, groups: int) -> None:
    sizes, in_channels, out_channels = listed(weight.shape), weight.shape[0], weight.shape[1] * groups
    if in_channels < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {sizes} instead"
        )
    if in_channels % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{sizes}] instead"
        )
    if input.shape[1] != in_channels:
        raise RuntimeError(
            f"Given transposed=1, weight of size {sizes}, expected input{listed(input.shape)} to "
            f"have {in_channels} channels, but got {input.shape[1]} channels instead"
        )
    if bias is not None and bias.shape != (out_channels,):
        raise RuntimeError(
            f"Given transposed=1, weight of size {sizes}, expected bias to be 1-dimensional with "
            f"{out_channels} elements, but got bias of size {listed(bias.shape)} instead"
        )


def _check_geometry(
    input: jax.Array,
    weight: jax.Array,
    stride: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output: Sequence[int],
) -> None:
    sizes, kernel = input.shape[2:], weight.shape[2:]
    one = (1,) if len(kernel) == 1 else ()
    zero = (0,) if len(kernel) == 1 else ()
    sizes, kernel, output = (*one, *sizes), (*one, *kernel), (*one, *output)
    stride, dilation = (*one, *stride), (*one, *dilation)
    output_padding = (*zero, *output_padding)
    if 0 in sizes:
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{listed((*input.shape[:2], *sizes))}"
        )
    if len(kernel) == 2 and min(kernel) <= 0:
        raise RuntimeError(
            f"kernel size should be greater than zero, but got {_named('kernel', kernel)}"
        )
    if min(dilation) <= 0:
        got = _named("dilation", dilation).replace(" dilation", ", dilation")
        raise RuntimeError(f"dilation should be greater than zero, but got {got}")
    if any(
        more >= step and more >= gap
        for more, step, gap in zip(output_padding, stride, dilation, strict=True)
    ):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"{_named('output_padding', output_padding)} {_named('stride', stride)} "
            f"{_named('dilation', dilation)}"
        )
    if weight.size == 0:
        wanted = "non-empty 2D or 4D weight tensor expected"
        if len(kernel) == 3:
            wanted = (
                "non-empty 5D (n_output_plane x n_input_plane x kernel_depth x kernel_height x "
                "kernel_width) tensor expected for weight"
            )
        got = listed((*weight.shape[:2], *kernel))
        raise RuntimeError(f"{wanted}, but got: {got}")
    if min(output) < 1:
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, sizes))}). Calculated output "
            f"size per channel: ({' x '.join(map(str, output))}). Output size is too small"
        )


def _check_empty(weight: jax.Array, groups: int, sizes: Sequence[int]) -> None:
    """What torch refuses of an empty batch: only what its view of nothing as the output does."""
    if weight.size == 0:
        raise IndexError("select(): index 0 out of range for tensor of size [0] at dimension 0")
    one = (1,) if len(sizes) == 1 else ()
    shape = [0, groups * weight.shape[1], *one, *sizes]
    for place, size in enumerate(shape):
        if size < -1:
            raise RuntimeError(
                f"invalid shape dimension {size} at index {place} of shape {listed(shape)}"
            )
        if -1 in shape[:place] and size == -1:
            raise RuntimeError("only one dimension can be inferred")
    if -1 in shape:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {listed(shape)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )


def _named(option: str, values: Sequence[int]) -> str:
    """An option as torch prints it: ``stride_height: 1 stride_width: 1``."""
    names = ("depth", "height", "width")[-len(values) :]
    return " ".join(f"{option}_{name}: {value}" for name, value in zip(names, values, strict=True))


def _check_dtypes(input: jax.Array, weight: jax.Array, bias: jax.Array | None, n: int) -> None:
    expected = scalar_type(input.dtype)
    others = [weight] if bias is None or n < 3 else [weight, bias]
    for other in others:  # the bias of one or two axes is cast
        if other.dtype != input.dtype:
            raise RuntimeError(f"expected scalar type {expected} but found {scalar_type(other.dtype)}")
    if not jnp.issubdtype(input.dtype, jnp.inexact) and input.dtype.itemsize < 4:
        raise NotImplementedError(
            f"\"slow_conv_transpose{max(n, 2)}d_out_cpu\" not implemented for '{expected}'"
        )
