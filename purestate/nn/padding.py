"""Padding: a border of a constant, or of the input itself.

A padding is one amount for all ends, or one per end, last axis first, low end before high; negative
amounts crop. The layers differ only in the mode of ``functional.pad`` and in the number of axes.
"""

from collections.abc import Sequence

import jax

from purestate._module import Module
from purestate.nn._construction import repeated
from purestate.nn.functional._options import IntOrInts
from purestate.nn.functional._pad import pad


__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    """Padding made of the input; the classes say how, and over how many axes."""

    _mode: str
    _axes: int
    padding: Sequence[int]

    def __init__(self, padding: IntOrInts):
        super().__init__()
        self.padding = repeated(padding, 2 * self._axes)

    def forward(self, input: jax.Array) -> jax.Array:
        """The padded input."""
        return pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input: jax.Array) -> jax.Array:
        """The padded input."""
        n = self._axes
        if input.ndim not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.ndim}D input)")
        return super().forward(input)


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class _ConstantPadNd(Module):
    _axes: int
    padding: Sequence[int]

    def __init__(self, padding: IntOrInts, value: float):
        super().__init__()
        self.value = value
        self.padding = repeated(padding, 2 * self._axes)

    def forward(self, input: jax.Array) -> jax.Array:
        """The padded input."""
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: IntOrInts):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"{self.padding}"


class CircularPad1d(_CircularPadNd):
    """Wrap one axis around. Torch's name: ``torch.nn.CircularPad1d``.

    Args:
        padding: The amount at each of the two ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``; in the input's dtype.

    Raises:
        ValueError: In a call, when the input has another number of axes.
        RuntimeError: In a call, when an amount is larger than its axis.
    """

    _axes = 1


class CircularPad2d(_CircularPadNd):
    """Wrap two axes around. Torch's name: ``torch.nn.CircularPad2d``.

    Args:
        padding: The amount at each of the four ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        ValueError: In a call, when the input has another number of axes.
        RuntimeError: In a call, when an amount is larger than its axis.
    """

    _axes = 2


class CircularPad3d(_CircularPadNd):
    """Wrap three axes around. Torch's name: ``torch.nn.CircularPad3d``.

    Args:
        padding: The amount at each of the six ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``; in the input's
        dtype.

    Raises:
        ValueError: In a call, when the input has another number of axes.
        RuntimeError: In a call, when an amount is larger than its axis.
    """

    _axes = 3


class ReflectionPad1d(_ReflectionPadNd):
    """Mirror one axis, without the edge. Torch's name: ``torch.nn.ReflectionPad1d``.

    Args:
        padding: The amount at each of the two ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when an amount is not smaller than its axis.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Mirror two axes, without the edge. Torch's name: ``torch.nn.ReflectionPad2d``.

    Args:
        padding: The amount at each of the four ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when an amount is not smaller than its axis.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Mirror three axes, without the edge. Torch's name: ``torch.nn.ReflectionPad3d``.

    Args:
        padding: The amount at each of the six ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``; in the input's
        dtype.

    Raises:
        RuntimeError: In a call, when an amount is not smaller than its axis.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Repeat the edges of one axis. Torch's name: ``torch.nn.ReplicationPad1d``.

    Args:
        padding: The amount at each of the two ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, L)`` to ``(N, C, L_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave nothing.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Repeat the edges of two axes. Torch's name: ``torch.nn.ReplicationPad2d``.

    Args:
        padding: The amount at each of the four ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, H_out, W_out)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave nothing.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Repeat the edges of three axes. Torch's name: ``torch.nn.ReplicationPad3d``.

    Args:
        padding: The amount at each of the six ends, one int or a tuple; negative ones crop.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, D_out, H_out, W_out)``, or both without ``N``; in the input's
        dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave nothing.
        NotImplementedError: In a call, when the input has another number of axes.
    """

    _axes = 3


class ConstantPad1d(_ConstantPadNd):
    """Surround one axis with a value. Torch's name: ``torch.nn.ConstantPad1d``.

    Args:
        padding: The amount at each of the two ends, one int or a tuple; negative ones crop.
        value: What the border is filled with, cast to the input's dtype.

    Shape:
        ``(*, L)`` to ``(*, L_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """

    _axes = 1


class ConstantPad2d(_ConstantPadNd):
    """Surround two axes with a value. Torch's name: ``torch.nn.ConstantPad2d``.

    Args:
        padding: The amount at each of the four ends, one int or a tuple; negative ones crop.
        value: What the border is filled with, cast to the input's dtype.

    Shape:
        ``(*, H, W)`` to ``(*, H_out, W_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """

    _axes = 2


class ConstantPad3d(_ConstantPadNd):
    """Surround three axes with a value. Torch's name: ``torch.nn.ConstantPad3d``.

    Args:
        padding: The amount at each of the six ends, one int or a tuple; negative ones crop.
        value: What the border is filled with, cast to the input's dtype.

    Shape:
        ``(*, D, H, W)`` to ``(*, D_out, H_out, W_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """

    _axes = 3


class ZeroPad1d(_ZeroPadNd, ConstantPad1d):
    """Surround one axis with zeros. Torch's name: ``torch.nn.ZeroPad1d``.

    Args:
        padding: The amount at each of the two ends, one int or a tuple; negative ones crop.

    Shape:
        ``(*, L)`` to ``(*, L_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """


class ZeroPad2d(_ZeroPadNd, ConstantPad2d):
    """Surround two axes with zeros. Torch's name: ``torch.nn.ZeroPad2d``.

    Args:
        padding: The amount at each of the four ends, one int or a tuple; negative ones crop.

    Shape:
        ``(*, H, W)`` to ``(*, H_out, W_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """


class ZeroPad3d(_ZeroPadNd, ConstantPad3d):
    """Surround three axes with zeros. Torch's name: ``torch.nn.ZeroPad3d``.

    Args:
        padding: The amount at each of the six ends, one int or a tuple; negative ones crop.

    Shape:
        ``(*, D, H, W)`` to ``(*, D_out, H_out, W_out)``, in the input's dtype.

    Raises:
        RuntimeError: In a call, when negative amounts leave less than nothing.
    """
