"""Transposed convolutions over one, two and three axes.

A convolution with a stride maps several sizes to one, so its transpose has a choice: it is made in
the constructor (``output_padding``) or in the call (``output_size``).
"""

from collections.abc import Sequence
from typing import Any

import jax

from purestate.nn._construction import pair, single, triple
from purestate.nn.conv import _ConvNd
from purestate.nn.functional._conv_transpose import (
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from purestate.nn.functional._options import IntOrInts
from purestate.nn.functional._shapes import shown


__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTransposeNd(_ConvNd):
    padding: tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        dtype: Any,
    ):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            dtype,
            transposed=True,
            output_padding=output_padding,
        )

    def forward(self, input: jax.Array, output_size: Sequence[int] | None = None) -> jax.Array:
        """The convolved input.

        Args:
            input: What to convolve.
            output_size: The size of the output, of its spatial axes or of all; instead of
                ``output_padding``.
        """
        convolve = (conv_transpose1d, conv_transpose2d, conv_transpose3d)[len(self.kernel_size) - 1]
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._padding_for(input, output_size)
        return convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )

    def _padding_for(self, input: jax.Array, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that gives this size."""
        n = len(self.kernel_size)
        others = 2 if input.ndim == n + 2 else 1
        if len(output_size) == others + n:
            output_size = output_size[others:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.ndim}D input, output_size must have {n} "
                f"or {others + n} elements (got {len(output_size)})"
            )
        smallest = [
            (input.shape[d + others] - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        largest = [size + step - 1 for size, step in zip(smallest, self.stride, strict=True)]
        for size, low, high in zip(output_size, smallest, largest, strict=True):
            if not low <= size <= high:
                raise ValueError(
                    f"requested an output size of {output_size}, but valid sizes range from "
                    f"{smallest} to {largest} (for an input of {shown(input.shape[2:])})"
                )
        return tuple(size - low for size, low in zip(output_size, smallest, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """Convolve transposed over one axis. Torch's name: ``torch.nn.ConvTranspose1d``.

    Arguments, attributes and errors as :class:`ConvTranspose2d`.

    Shape:
        ``(N, C_in, L)`` to ``(N, C_out, L_out)``, or both without ``N``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            single(kernel_size),
            single(stride),
            single(padding),
            single(dilation),
            single(output_padding),
            groups,
            bias,
            padding_mode,
            dtype,
        )


class ConvTranspose2d(_ConvTransposeNd):
    """Convolve transposed over two axes. Torch's name: ``torch.nn.ConvTranspose2d``.

    What :class:`Conv2d` with the same options maps to the input's size, this maps back to its size.

    Args:
        in_channels: Channels of the input, ``C_in``.
        out_channels: Channels of the output, ``C_out``.
        kernel_size: Size of the kernel, one int or one per axis.
        stride: Step of the kernel in the output, one int or one per axis.
        padding: Entries left out at both ends of the output, one int or one per axis.
        output_padding: Entries added at the end of the output, one int or one per axis; fewer than
            the stride or the dilation.
        groups: Number of blocks that the channels are split into.
        bias: Whether to add a bias.
        dilation: Distance between the taps of the kernel, one int or one per axis.
        padding_mode: ``'zeros'``, the only one there is.
        dtype: Dtype of weight and bias; JAX's default float when None.

    Attributes:
        weight: ``(C_in, C_out // groups, *kernel_size)``, uniform within
            ``1 / sqrt(C_out // groups * prod(kernel_size))``.
        bias: ``(C_out,)`` or None, likewise.

    Shape:
        ``(N, C_in, H, W)`` to ``(N, C_out, H_out, W_out)``, or both without ``N``; in the weight's
        dtype. ``H_out`` is ``(H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) +
        output_padding + 1``, or what the call's ``output_size`` says.

    Raises:
        ValueError: For groups that do not divide the channels or another padding mode; in a call,
            when no output padding gives ``output_size``.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            pair(kernel_size),
            pair(stride),
            pair(padding),
            pair(dilation),
            pair(output_padding),
            groups,
            bias,
            padding_mode,
            dtype,
        )


class ConvTranspose3d(_ConvTransposeNd):
    """Convolve transposed over three axes. Torch's name: ``torch.nn.ConvTranspose3d``.

    Arguments, attributes and errors as :class:`ConvTranspose2d`.

    Shape:
        ``(N, C_in, D, H, W)`` to ``(N, C_out, D_out, H_out, W_out)``, or both without ``N``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            triple(kernel_size),
            triple(stride),
            triple(padding),
            triple(dilation),
            triple(output_padding),
            groups,
            bias,
            padding_mode,
            dtype,
        )
