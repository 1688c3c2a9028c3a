"""Adaptive pooling: the mean or the largest entry of every bin, for a given number of bins."""

from collections.abc import Sequence
from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._adaptive_max_pool import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)
from purestate.nn.functional._adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)


__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]


class _AdaptiveAvgPoolNd(Module):
    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of ``output_size`` bins. Torch's name: ``torch.nn.AdaptiveAvgPool1d``.

    Args:
        output_size: The number of bins.

    Shape:
        ``(N, C, L)`` to ``(N, C, output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, for an input with other axes.
    """

    output_size: int | Sequence[int]

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of a grid of bins. Torch's name: ``torch.nn.AdaptiveAvgPool2d``.

    Args:
        output_size: The number of bins, one int or one per axis; None keeps the size of an axis.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, *output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, for an input with other axes.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of a box of bins. Torch's name: ``torch.nn.AdaptiveAvgPool3d``.

    Arguments and errors as :class:`AdaptiveAvgPool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, *output_size)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The means."""
        return adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(Module):
    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest entries of ``output_size`` bins. Torch's name: ``torch.nn.AdaptiveMaxPool1d``.

    Args:
        output_size: The number of bins.
        return_indices: Return positions too.

    Shape:
        ``(N, C, L)`` to ``(N, C, output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, for an input with other axes.
    """

    output_size: int | Sequence[int]

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest entries of a grid of bins. Torch's name: ``torch.nn.AdaptiveMaxPool2d``.

    Args:
        output_size: The number of bins, one int or one per axis; None keeps the size of an axis.
        return_indices: Return positions too.

    Shape:
        ``(N, C, H, W)`` to ``(N, C, *output_size)``, or both without ``N``; in the input's dtype.

    Raises:
        RuntimeError: In a call, for an input with other axes.
    """

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest entries of a box of bins. Torch's name: ``torch.nn.AdaptiveMaxPool3d``.

    Arguments and errors as :class:`AdaptiveMaxPool2d`.

    Shape:
        ``(N, C, D, H, W)`` to ``(N, C, *output_size)``, or both without ``N``.
    """

    def forward(self, input: jax.Array) -> Any:
        """The maxima; with ``return_indices``, the pair of them and their positions."""
        return adaptive_max_pool3d(input, self.output_size, self.return_indices)
