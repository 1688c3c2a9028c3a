"""Convolutions over one, two and three axes.

Zero padding is the convolution's own. The other padding modes pad the input first, by the amounts
in ``_reversed_padding_repeated_twice``, which torch keeps on the module under this name.
"""

import math
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again, pair, single, triple
from purestate.nn.functional._conv import conv1d, conv2d, conv3d
from purestate.nn.functional._options import IntOrInts
from purestate.nn.functional._pad import pad


__all__ = ["Conv1d", "Conv2d", "Conv3d"]


class _ConvNd(Module):
    weight: Any
    bias: Any
    _convolve: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        dtype: Any,
        transposed: bool = False,
        output_padding: tuple[int, ...] | None = None,
    ):
        super().__init__()
        _check_options(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding or (0,) * len(kernel_size)
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _edges(padding, kernel_size, dilation)
        # The rows of a transposed weight are the input's channels.
        rows, columns = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(empty(rows, columns // groups, *kernel_size, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set how weight and bias are drawn."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: jax.Array) -> jax.Array:
        """The convolved input."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: jax.Array, weight: jax.Array, bias: jax.Array | None) -> jax.Array:
        """Torch's seam for subclasses that compute their own weight."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input = pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """As torch prints it."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


def _check_options(
    in_channels: int,
    out_channels: int,
    stride: tuple[int, ...],
    padding: str | tuple[int, ...],
    groups: int,
    padding_mode: str,
) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    names = {"same", "valid"}
    if isinstance(padding, str):
        if padding not in names:
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {names}")
        if padding == "same" and any(step != 1 for step in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    modes = {"zeros", "reflect", "replicate", "circular"}
    if padding_mode not in modes:
        raise ValueError(f"padding_mode must be one of {modes}, but got padding_mode='{padding_mode}'")


def _edges(
    padding: str | tuple[int, ...], kernel_size: tuple[int, ...], dilation: tuple[int, ...]
) -> list[int] | tuple[int, ...]:
    """How much to pad before and after each axis, the last axis first: the order of ``pad``."""
    if not isinstance(padding, str):
        return tuple(amount for amount in reversed(padding) for _ in range(2))
    if padding == "valid":
        return [0, 0] * len(kernel_size)
    totals = [step * (size - 1) for step, size in zip(dilation, kernel_size, strict=False)]
    return [edge for total in reversed(totals) for edge in (total // 2, total - total // 2)]


class Conv1d(_ConvNd):
    """Convolve over one axis. Torch's name: ``torch.nn.Conv1d``.

    Arguments, attributes and errors as :class:`Conv2d`.

    Shape:
        ``(N, C_in, L)`` to ``(N, C_out, L_out)``, or both without ``N``.
    """

    _convolve = staticmethod(conv1d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            single(kernel_size),
            single(stride),
            padding if isinstance(padding, str) else single(padding),
            single(dilation),
            groups,
            bias,
            padding_mode,
            dtype,
        )


class Conv2d(_ConvNd):
    """Convolve over two axes. Torch's name: ``torch.nn.Conv2d``.

    Args:
        in_channels: Channels of the input, ``C_in``.
        out_channels: Channels of the output, ``C_out``.
        kernel_size: Size of the kernel, one int or one per axis.
        stride: Step of the kernel, one int or one per axis.
        padding: Entries added at both ends, one int or one per axis; ``'valid'`` adds none,
            ``'same'`` keeps the size (stride 1 only).
        dilation: Distance between the taps of the kernel, one int or one per axis.
        groups: Number of blocks that the channels are split into.
        bias: Whether to add a bias.
        padding_mode: ``'zeros'``, ``'reflect'``, ``'replicate'`` or ``'circular'``.
        dtype: Dtype of weight and bias; JAX's default float when None.

    Attributes:
        weight: ``(C_out, C_in // groups, *kernel_size)``, uniform within ``1 / sqrt(fan_in)``.
        bias: ``(C_out,)`` or None, likewise.

    Shape:
        ``(N, C_in, H, W)`` to ``(N, C_out, H_out, W_out)``, or both without ``N``; in the weight's
        dtype.

    Raises:
        ValueError: For groups that do not divide the channels, or an unknown or unusable padding.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    _convolve = staticmethod(conv2d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            pair(kernel_size),
            pair(stride),
            padding if isinstance(padding, str) else pair(padding),
            pair(dilation),
            groups,
            bias,
            padding_mode,
            dtype,
        )


class Conv3d(_ConvNd):
    """Convolve over three axes. Torch's name: ``torch.nn.Conv3d``.

    Arguments, attributes and errors as :class:`Conv2d`.

    Shape:
        ``(N, C_in, D, H, W)`` to ``(N, C_out, D_out, H_out, W_out)``, or both without ``N``.
    """

    _convolve = staticmethod(conv3d)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            triple(kernel_size),
            triple(stride),
            padding if isinstance(padding, str) else triple(padding),
            triple(dilation),
            groups,
            bias,
            padding_mode,
            dtype,
        )
