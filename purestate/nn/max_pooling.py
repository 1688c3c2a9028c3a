"""Maximum pooling: the largest entry of every window.

The options are kept as they were given, because ``repr`` prints them as torch does.
"""

from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._max_pool import max_pool1d, max_pool2d, max_pool3d
from purestate.nn.functional._options import IntOrInts


__all__ = ["MaxPool1d", "MaxPool2d", "MaxPool3d"]


class _MaxPoolNd(Module):
    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _options(self) -> tuple[Any, ...]:
        """The options in the order of the functionals."""
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum of every window along one axis. Torch's name: ``torch.nn.MaxPool1d``.

    Arguments and errors as :class:`MaxPool2d`.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return max_pool1d(input, *self._options())


class MaxPool2d(_MaxPoolNd):
    """The maximum of every window over two axes. Torch's name: ``torch.nn.MaxPool2d``.

    Args:
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Entries of minus infinity at both ends, at most half the window.
        dilation: Distance between the entries of a window.
        return_indices: Return positions too.
        ceil_mode: Count the last window that starts inside although it ends outside.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when the window does not fit or an option is out of its range.
    """

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return max_pool2d(input, *self._options())


class MaxPool3d(_MaxPoolNd):
    """The maximum of every window over three axes. Torch's name: ``torch.nn.MaxPool3d``.

    Arguments and errors as :class:`MaxPool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return max_pool3d(input, *self._options())
