"""Unpooling: maxima back at their positions, zeros elsewhere."""

from collections.abc import Sequence

import jax

from purestate._module import Module
from purestate.nn._construction import pair, single, triple
from purestate.nn.functional._max_unpool import max_unpool1d, max_unpool2d, max_unpool3d
from purestate.nn.functional._options import IntOrInts


__all__ = ["MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"]


class _MaxUnpoolNd(Module):
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Undo :class:`MaxPool1d` as far as it goes. Torch's name: ``torch.nn.MaxUnpool1d``.

    Arguments and errors as :class:`MaxUnpool2d`.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``.
    """

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0):
        super().__init__()
        self.kernel_size = single(kernel_size)
        self.stride = single(stride if stride is not None else kernel_size)
        self.padding = single(padding)

    def forward(
        self, input: jax.Array, indices: jax.Array, output_size: Sequence[int] | None = None
    ) -> jax.Array:
        """The maxima at their positions, which pooling with ``return_indices`` gives."""
        return max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Undo :class:`MaxPool2d` as far as it goes. Torch's name: ``torch.nn.MaxUnpool2d``.

    Args:
        kernel_size: Size of the window that was pooled, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: What was added at both ends.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``. ``H_out`` is
        ``(H - 1) * stride + kernel_size - 2 * padding``, or what the call's ``output_size`` says.

    Raises:
        ValueError: In a call, when ``output_size`` is a stride or more from that.
        RuntimeError: In a call, when a position is outside, or shapes or dtypes do not fit.
    """

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0):
        super().__init__()
        self.kernel_size = pair(kernel_size)
        self.stride = pair(stride if stride is not None else kernel_size)
        self.padding = pair(padding)

    def forward(
        self, input: jax.Array, indices: jax.Array, output_size: Sequence[int] | None = None
    ) -> jax.Array:
        """The maxima at their positions, which pooling with ``return_indices`` gives."""
        return max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Undo :class:`MaxPool3d` as far as it goes. Torch's name: ``torch.nn.MaxUnpool3d``.

    Arguments and errors as :class:`MaxUnpool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``.
    """

    def __init__(self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0):
        super().__init__()
        self.kernel_size = triple(kernel_size)
        self.stride = triple(stride if stride is not None else kernel_size)
        self.padding = triple(padding)

    def forward(
        self, input: jax.Array, indices: jax.Array, output_size: Sequence[int] | None = None
    ) -> jax.Array:
        """The maxima at their positions, which pooling with ``return_indices`` gives."""
        return max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)
