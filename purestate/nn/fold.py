"""Images to columns of sliding blocks and back.

The options are kept as they were given, because ``repr`` prints them as torch does.
"""

import jax

from purestate._module import Module
from purestate.nn.functional._fold import fold, unfold
from purestate.nn.functional._options import IntOrInts


__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Add up blocks at their places in an image. Torch's name: ``torch.nn.Fold``.

    Args:
        output_size: Size of the image, one int or one per axis.
        kernel_size: Size of the block, one int or one per axis.
        dilation: Distance between the entries of a block, one int or one per axis.
        padding: Entries left out at both ends, one int or one per axis.
        stride: Step of the block, one int or one per axis.

    Shape:
        ``(N, C * prod(kernel_size), L)`` to ``(N, C, *output_size)``, or both without ``N``.

    Raises:
        RuntimeError: In a call, when the sizes do not fit or an option is out of its range.
    """

    def __init__(
        self,
        output_size: IntOrInts,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ):
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: jax.Array) -> jax.Array:
        """The image."""
        return fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Copy every block of an image into a column. Torch's name: ``torch.nn.Unfold``.

    Args:
        kernel_size: Size of the block, one int or one per axis.
        dilation: Distance between the entries of a block, one int or one per axis.
        padding: Zeros added at both ends, one int or one per axis.
        stride: Step of the block, one int or one per axis.

    Shape:
        ``(N, C, H, W)`` to ``(N, C * prod(kernel_size), L)``, or both without ``N``; ``L`` is the
        number of places of the block.

    Raises:
        RuntimeError: In a call, when the block does not fit or an option is out of its range.
    """

    def __init__(
        self,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: jax.Array) -> jax.Array:
        """The columns."""
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )
