"""Convolution over one, two or three spatial axes.

One function does the work, ``_conv``: torch's layouts (``NC...`` and ``OI...``) are given to XLA as
they are, an input without a batch axis gets one for the time of the call, and 'same' becomes two
numbers per axis. The checks are torch's, in torch's order, and cost nothing after the first call
with a shape.
"""

import functools

import jax
from jax import lax

from purestate.nn.functional._conv_cpu import choose
from purestate.nn.functional._conv_threads import one_more_row, runs_on_one_thread
from purestate.nn.functional._dtypes import cpp_type, plus, scalar_type
from purestate.nn.functional._elementwise import check_kernel
from purestate.nn.functional._options import IntOrInts, expanded, ints, listed


__all__ = ["conv1d", "conv2d", "conv3d"]


def conv1d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolve over one spatial axis.

    The counterpart of ``torch.nn.functional.conv1d``. Options and errors as in ``conv2d``.

    Args:
        input: ``(N, C_in, L)``, or ``(C_in, L)`` without a batch.
        weight: ``(C_out, C_in // groups, k)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel.
        padding: Zeros added at both ends, ``'valid'`` or ``'same'``.
        dilation: Distance between the taps of the kernel.
        groups: Number of blocks that the channels are split into.

    Returns:
        ``(N, C_out, L_out)``, or ``(C_out, L_out)`` without a batch.
    """
    return _call(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolve over two spatial axes.

    The counterpart of ``torch.nn.functional.conv2d``.

    Args:
        input: ``(N, C_in, H, W)``, or ``(C_in, H, W)`` without a batch.
        weight: ``(C_out, C_in // groups, kH, kW)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel, one int or one per axis.
        padding: Zeros added at both ends, one int or one per axis; ``'valid'`` adds none,
            ``'same'`` keeps the size (stride 1 only; an odd zero goes to the end).
        dilation: Distance between the taps of the kernel, one int or one per axis.
        groups: Number of blocks that the channels are split into.

    Returns:
        ``(N, C_out, H_out, W_out)``, or ``(C_out, H_out, W_out)`` without a batch; in the inputs'
        dtype.

    Raises:
        RuntimeError: Sizes do not fit or are zero, the kernel is larger than the padded input,
            dtypes differ, or an option is out of its range.
        NotImplementedError: The input is of booleans.
    """
    return _call(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None = None,
    stride: IntOrInts = 1,
    padding: str | IntOrInts = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolve over three spatial axes.

    The counterpart of ``torch.nn.functional.conv3d``. Options and errors as in ``conv2d``.

    Args:
        input: ``(N, C_in, D, H, W)``, or ``(C_in, D, H, W)`` without a batch.
        weight: ``(C_out, C_in // groups, kD, kH, kW)``.
        bias: ``(C_out,)`` or ``None``.
        stride: Step of the kernel, one int or one per axis.
        padding: Zeros added at both ends, one int or one per axis, ``'valid'`` or ``'same'``.
        dilation: Distance between the taps of the kernel, one int or one per axis.
        groups: Number of blocks that the channels are split into.

    Returns:
        ``(N, C_out, D_out, H_out, W_out)``, or ``(C_out, D_out, H_out, W_out)`` without a batch.
    """
    return _call(3, input, weight, bias, stride, padding, dilation, groups)


def _call(n, input, weight, bias, stride, padding, dilation, groups):
    if not isinstance(padding, str):
        padding = ints(padding)
    return _conv(
        input,
        weight,
        bias,
        n=n,
        stride=ints(stride),
        padding=padding,
        dilation=ints(dilation),
        groups=groups,
    )


@functools.partial(jax.jit, static_argnames=("n", "stride", "padding", "dilation", "groups"))
def _conv(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    *,
    n: int,
    stride: tuple[int, ...],
    padding: str | tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> jax.Array:
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to conv{n}d, "
            f"but got input of size: {listed(input.shape)}"
        )
    batched = input if input.ndim == n + 2 else input[None]
    _check_bias_dtype(input, bias)
    if isinstance(padding, str):
        _check_named_padding(batched, weight, stride, padding, groups)
    stride = per_axis("stride", stride, weight, n)
    dilation = per_axis("dilation", dilation, weight, n)
    pads = _pads(padding, weight, dilation, n)
    _check_options(stride, pads, dilation, groups)
    _check_shapes(batched, weight, bias, pads, dilation, groups)
    if input.dtype != weight.dtype:
        raise RuntimeError(
            f"expected scalar type {scalar_type(input.dtype)} but found {scalar_type(weight.dtype)}"
        )
    _check_sizes(batched, weight, dilation)
    if input.dtype == bool:
        dense = "compute_columns3d" if n == 3 else "slow_conv2d_cpu"
        check_kernel("slow_conv_dilated<>" if max(dilation) > 1 else dense, input)
    output = convolve(batched, weight, stride, pads, dilation, groups)
    if bias is not None:
        output = plus(output, bias.reshape(-1, *(1,) * n))
    return output if input.ndim == n + 2 else output[0]


def convolve(
    input: jax.Array,
    weight: jax.Array,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> jax.Array:
    """The convolution of a batch in torch's layouts; every option has one entry per axis.

    XLA's own, except on a CPU for the shapes that it is slow at there, or deals with on one thread.
    """
    shapes = input.shape, weight.shape, stride, pads, dilation, groups
    if jax.default_backend() == "cpu" and runs_on_one_thread(*shapes):
        return one_more_row(input, weight, pads=pads, dilation=dilation)
    spatial = "DHW"[-len(stride) :]
    native = functools.partial(
        lax.conv_general_dilated,
        window_strides=stride,
        padding=pads,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
    )
    # What is lowered on a host with an accelerator is for that, and need not be traced twice.
    on_cpu = choose(*shapes) if jax.default_backend() == "cpu" else None
    if on_cpu is None:
        return native(input, weight)
    return lax.platform_dependent(input, weight, cpu=on_cpu, default=native)


def per_axis(name: str, value: tuple[int, ...], weight: jax.Array, n: int) -> tuple[int, ...]:
    """One entry per spatial axis; torch counts the axes of the weight here."""
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    axes = weight.ndim - 2
    value = expanded(value, n)
    if len(value) != axes:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {axes} values to match the "
            f"convolution dimensions, but got {name}={listed(value)}"
        )
    return value


def _pads(
    padding: str | tuple[int, ...], weight: jax.Array, dilation: tuple[int, ...], n: int
) -> tuple[tuple[int, int], ...]:
    """The zeros before and after each spatial axis."""
    if padding == "valid":
        padding = (0,)
    if isinstance(padding, str):
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((pad, pad) for pad in per_axis("padding", padding, weight, n))


def _check_bias_dtype(input: jax.Array, bias: jax.Array | None) -> None:
    if bias is not None and bias.dtype != input.dtype:
        raise RuntimeError(
            f"Input type ({cpp_type(input.dtype)}) and bias type ({cpp_type(bias.dtype)}) "
            "should be the same"
        )


def _check_named_padding(
    input: jax.Array, weight: jax.Array, stride: tuple[int, ...], padding: str, groups: int
) -> None:
    if padding not in ("same", "valid"):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if padding == "same":
        if weight.ndim != input.ndim:
            raise RuntimeError(
                f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight"
                f"{listed(weight.shape)}, but got {input.ndim}-dimensional input of size "
                f"{listed(input.shape)} instead"
            )
        if any(step != 1 for step in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")


def _check_options(
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    if any(low < 0 for low, _ in pads):
        raise RuntimeError("negative padding is not supported")
    if any(step <= 0 for step in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(step < 0 for step in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")


def _check_shapes(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array | None,
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    sizes, out_channels = listed(weight.shape), weight.shape[0]
    if weight.ndim != input.ndim:
        raise RuntimeError(
            f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight "
            f"{sizes}, but got {input.ndim}-dimensional input of size {listed(input.shape)} instead"
        )
    if out_channels < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {sizes} instead"
        )
    if out_channels % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{sizes}] instead"
        )
    if input.shape[1] != weight.shape[1] * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {sizes}, expected input{listed(input.shape)} "
            f"to have {weight.shape[1] * groups} channels, but got {input.shape[1]} channels "
            "instead"
        )
    if bias is not None and bias.shape != (out_channels,):
        raise RuntimeError(
            f"Given weight of size {sizes}, expected bias to be 1-dimensional with {out_channels} "
            f"elements, but got bias of size {listed(bias.shape)} instead"
        )
    padded = [size + sum(pad) for size, pad in zip(input.shape[2:], pads, strict=True)]
    kernel = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(size < taps for size, taps in zip(padded, kernel, strict=True)):
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). "
            f"Kernel size: ({' x '.join(map(str, kernel))}). "
            "Kernel size can't be greater than actual input size"
        )


def _check_sizes(input: jax.Array, weight: jax.Array, dilation: tuple[int, ...]) -> None:
    """No spatial axis is empty; only batch and channels may be."""
    one = (1,) if len(dilation) == 1 else ()
    sizes, kernel = (*one, *input.shape[2:]), (*one, *weight.shape[2:])
    if 0 in sizes and 0 not in input.shape[:2]:
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{listed((*input.shape[:2], *sizes))}"
        )
    if 0 in kernel:
        if any(step != 1 for step in dilation):
            got = f" {listed(kernel)}"
        elif len(kernel) == 3:
            got = f": {' x '.join(map(str, kernel))} (TxHxW)"
        else:
            got = f" kernel_height: {kernel[0]} kernel_width: {kernel[1]}"
        raise RuntimeError(f"kernel size should be greater than zero, but got{got}")
    if 0 in dilation:
        raise RuntimeError(f"dilation should be greater than zero, but got {listed((*one, *dilation))}")
