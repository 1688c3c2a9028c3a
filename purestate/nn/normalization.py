"""Normalisation without running statistics: the same in training and in evaluation.

Over the last axes of an array, over groups of channels, or over neighbouring channels.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._local_response import cross_map_lrn, local_response_norm
from purestate.nn.functional._norm import group_norm, layer_norm
from purestate.nn.functional._rms_norm import rms_norm


__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Affine(Module):
    """What the two share: an optional weight of ones and an optional bias of zeros."""

    def _register(self, shape: tuple[int, ...], affine: bool, bias: bool, dtype: Any) -> None:
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(shape, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of the last axes; an int is the last one alone."""
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)  # pyright: ignore[reportArgumentType]


class LayerNorm(_Affine):
    """Normalise over the last axes. Torch's name: ``torch.nn.LayerNorm``.

    Args:
        normalized_shape: The sizes of those axes; an int for the last one alone.
        eps: Added to the variance.
        elementwise_affine: Whether to have a weight (and a bias).
        bias: Whether to have a bias, with ``elementwise_affine``.
        dtype: Dtype of weight and bias; JAX's default float when None.

    Attributes:
        weight: ``normalized_shape`` or None, ones at first.
        bias: ``normalized_shape`` or None, zeros at first.

    Shape:
        ``(*, *normalized_shape)`` to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register(self.normalized_shape, elementwise_affine, bias, dtype)

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(_Affine):
    """Normalise groups of channels of each example. Torch's name: ``torch.nn.GroupNorm``.

    Args:
        num_groups: The number of groups, a divisor of ``num_channels``.
        num_channels: The channels of the input.
        eps: Added to the variance.
        affine: Whether to have a weight (and a bias) per channel.
        dtype: Dtype of weight and bias; JAX's default float when None.
        bias: Whether to have a bias, with ``affine``.

    Attributes:
        weight: ``(num_channels,)`` or None, ones at first.
        bias: ``(num_channels,)`` or None, zeros at first.

    Shape:
        ``(N, num_channels, *)`` to the same shape and dtype.

    Raises:
        ValueError: When the groups do not divide the channels; in a call, for a batch of one with
            one value per group.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._register((num_channels,), affine, bias, dtype)

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square over the last axes. Torch's name: ``torch.nn.RMSNorm``.

    Args:
        normalized_shape: The sizes of those axes; an int for the last one alone.
        eps: Added to the mean square; the machine epsilon of the arithmetic when None.
        elementwise_affine: Whether to have a weight.
        dtype: Dtype of the weight; JAX's default float when None.

    Attributes:
        weight: ``normalized_shape`` or None, ones at first.

    Shape:
        ``(*, *normalized_shape)`` to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when the sizes do not fit.
        ValueError: In a call, for an input with fewer axes than ``normalized_shape``.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(empty(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set the weight to ones."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: jax.Array) -> jax.Array:
        """The normalised input."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _Neighbours(Module):
    """The options of the two layers that normalise across neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_Neighbours):
    """Normalise across neighbouring channels. Torch's name: ``torch.nn.LocalResponseNorm``.

    ``input / (k + alpha * mean square) ** beta``, the mean over the ``size`` channels around each.

    Args:
        size: The number of neighbours, the channel itself included.
        alpha: Multiplies the mean square.
        beta: The exponent.
        k: Added before the power.

    Shape:
        ``(N, C, *)``, at least three axes, to the same shape and dtype.

    Raises:
        ValueError: In a call, for an input of fewer than three axes.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input."""
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_Neighbours):
    """Normalise across neighbouring channels, in an older form.

    Torch's name: ``torch.nn.CrossMapLRN2d``. It differs from :class:`LocalResponseNorm` as torch's
    does: the first channel counts as a neighbour of every later one, and the gradient is torch's own
    formula rather than the derivative.

    Args:
        size: The number of neighbours, the channel itself included.
        alpha: Multiplies the mean square.
        beta: The exponent.
        k: Added before the power.

    Shape:
        ``(N, C, H, W)`` to the same shape and dtype.

    Raises:
        ValueError: In a call, for an input with other axes.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1):
        super().__init__(size, alpha, beta, k)

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input."""
        return cross_map_lrn(input, self.size, self.alpha, self.beta, self.k)
