"""Normalisation without running statistics: the same in training and in evaluation."""

import numbers
from collections.abc import Sequence
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._norm import group_norm, layer_norm


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
        if isinstance(normalized_shape, numbers.Integral):
            normalized_shape = (int(normalized_shape),)
        self.normalized_shape = tuple(normalized_shape)  # pyright: ignore[reportArgumentType]
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
