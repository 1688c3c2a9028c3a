"""Average pooling: the mean of every window.

The options are kept as they were given (``AvgPool1d`` alone makes tuples of them), because ``repr``
prints them as torch does.
"""

from typing import Any

import jax

from purestate._module import Module
from purestate.nn._construction import single
from purestate.nn.functional._avg_pool import avg_pool1d, avg_pool2d, avg_pool3d
from purestate.nn.functional._options import IntOrInts


__all__ = ["AvgPool1d", "AvgPool2d", "AvgPool3d"]


class _AvgPoolNd(Module):
    kernel_size: IntOrInts
    stride: IntOrInts
    padding: IntOrInts

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of every window along one axis. Torch's name: ``torch.nn.AvgPool1d``.

    Arguments and errors as :class:`AvgPool2d`, without ``divisor_override``.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``.
    """

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size = single(kernel_size)
        self.stride = single(stride if stride is not None else kernel_size)
        self.padding = single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolWithDivisor(_AvgPoolNd):
    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _options(self) -> tuple[Any, ...]:
        """The options in the order of the functionals."""
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of every window over two axes. Torch's name: ``torch.nn.AvgPool2d``.

    Args:
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Zeros at both ends, at most half the window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        count_include_pad: Whether the zeros count in the mean.
        divisor_override: Divide by this instead of the number of entries.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when the window does not fit or an option is out of its range.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return avg_pool2d(input, *self._options())


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean of every window over three axes. Torch's name: ``torch.nn.AvgPool3d``.

    Arguments and errors as :class:`AvgPool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return avg_pool3d(input, *self._options())
