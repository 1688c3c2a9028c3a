"""Moving entries between channels and pixels, or between groups of channels."""

import jax

from purestate._module import Module
from purestate.nn.functional._shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle


__all__ = ["ChannelShuffle", "PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Turn each group of channels into a block of pixels. Torch's name: ``torch.nn.PixelShuffle``.

    Args:
        upscale_factor: The side ``r`` of a block.

    Shape:
        ``(*, C * r**2, H, W)`` to ``(*, C, H * r, W * r)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when the factor does not fit the channels.
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: jax.Array) -> jax.Array:
        """``(*, C * r**2, H, W)`` to ``(*, C, H * r, W * r)``."""
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Turn each block of pixels into channels. Torch's name: ``torch.nn.PixelUnshuffle``.

    Args:
        downscale_factor: The side ``r`` of a block.

    Shape:
        ``(*, C, H * r, W * r)`` to ``(*, C * r**2, H, W)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when the factor does not fit the image.
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: jax.Array) -> jax.Array:
        """``(*, C, H * r, W * r)`` to ``(*, C * r**2, H, W)``."""
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleave groups of channels. Torch's name: ``torch.nn.ChannelShuffle``.

    Args:
        groups: The number of groups, a divisor of the channels.

    Shape:
        ``(N, C, *)`` to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when the groups do not divide the channels.
    """

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: jax.Array) -> jax.Array:
        """The input, its channels in another order."""
        return channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"groups={self.groups}"
