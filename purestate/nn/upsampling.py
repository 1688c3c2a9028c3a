"""Resizing images.

Torch's two older layers are the general one with some options fixed.
"""

from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._interpolate import FloatOrFloats, interpolate
from purestate.nn.functional._options import IntOrInts


__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resize the axes behind the channels. Torch's name: ``torch.nn.Upsample``.

    Args:
        size: The new size of each axis, one int or one per axis.
        scale_factor: Instead of a size: the factor, one float or a tuple of one per axis.
        mode: ``'nearest'``, ``'linear'``, ``'bilinear'``, ``'bicubic'``, ``'trilinear'`` or another
            mode of :func:`~purestate.nn.functional.interpolate`.
        align_corners: Positions run from the centre of the first entry to that of the last, instead
            of from edge to edge.
        recompute_scale_factor: Use the ratio of the sizes instead of ``scale_factor``.

    Shape:
        ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)`` to the new sizes, in the input's dtype.

    Raises:
        ValueError: In a call, when not exactly one of size and factor is given, or when the mode
            does not take an option.
        NotImplementedError: In a call, when the mode is for another number of axes.
    """

    def __init__(
        self,
        size: IntOrInts | None = None,
        scale_factor: FloatOrFloats | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor = _floats(scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: jax.Array) -> jax.Array:
        """The resized input."""
        return interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """As torch prints it."""
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize images by copying. Torch's name: ``torch.nn.UpsamplingNearest2d``.

    Args:
        size: The new height and width, one int or two.
        scale_factor: Instead of a size: the factor, one float or a tuple of two.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, in the input's dtype.
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images linearly, corners kept. Torch's name: ``torch.nn.UpsamplingBilinear2d``.

    Args:
        size: The new height and width, one int or two.
        scale_factor: Instead of a size: the factor, one float or a tuple of two.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, in the input's dtype.
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: FloatOrFloats | None = None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


def _floats(scale_factor: Any) -> float | tuple[float, ...] | None:
    """The factors as floats; a factor of zero counts as none."""
    if isinstance(scale_factor, tuple):
        return tuple(map(float, scale_factor))
    return float(scale_factor) if scale_factor else None
