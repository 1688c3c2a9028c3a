"""Power-average pooling: the p-norm of every window.

The options are kept as they were given, because ``repr`` prints them as torch does.
"""

from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._lp_pool import lp_pool1d, lp_pool2d, lp_pool3d
from purestate.nn.functional._options import IntOrInts


__all__ = ["LPPool1d", "LPPool2d", "LPPool3d"]


class _LPPoolNd(Module):
    def __init__(
        self,
        norm_type: float,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def _options(self) -> tuple[Any, ...]:
        """The options in the order of the functionals."""
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of every window along one axis. Torch's name: ``torch.nn.LPPool1d``.

    Arguments and errors as :class:`LPPool2d`.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The norms."""
        return lp_pool1d(input, *self._options())


class LPPool2d(_LPPoolNd):
    """The p-norm of every window over two axes. Torch's name: ``torch.nn.LPPool2d``.

    Negative entries keep their sign under an odd power, as in torch: a root can be NaN.

    Args:
        norm_type: The ``p`` of the norm; infinity is the largest absolute value.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        ceil_mode: Count the last window that starts inside although it ends outside.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when the window does not fit or an option is out of its range.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The norms."""
        return lp_pool2d(input, *self._options())


class LPPool3d(_LPPoolNd):
    """The p-norm of every window over three axes. Torch's name: ``torch.nn.LPPool3d``.

    Arguments and errors as :class:`LPPool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The norms."""
        return lp_pool3d(input, *self._options())
