"""The affine map, the bilinear one, and the layer that does nothing."""

import math
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._bilinear import bilinear
from purestate.nn.functional._linear import linear


__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Return the input. Torch's name: ``torch.nn.Identity``.

    Args:
        *args: Ignored.
        **kwargs: Ignored.

    Shape:
        Any array to the same array.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        del args, kwargs
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input itself."""
        return input


class Linear(Module):
    """``input @ weight.T + bias``. Torch's name: ``torch.nn.Linear``.

    Args:
        in_features: Size of the last axis of the input.
        out_features: Size of the last axis of the output.
        bias: Whether to add a bias.
        dtype: Dtype of weight and bias; JAX's default float when None.

    Attributes:
        weight: ``(out_features, in_features)``, uniform within ``1 / sqrt(in_features)``.
        bias: ``(out_features,)`` or None, likewise.

    Shape:
        ``(*, in_features)`` to ``(*, out_features)``, in the weight's dtype.

    Raises:
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set how weight and bias are drawn."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1]
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: jax.Array) -> jax.Array:
        """``(*, in_features)`` to ``(*, out_features)``."""
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """``input1 @ weight[k] @ input2 + bias[k]``. Torch's name: ``torch.nn.Bilinear``.

    Args:
        in1_features: Size of the last axis of the first input.
        in2_features: Size of the last axis of the second input.
        out_features: Size of the last axis of the output.
        bias: Whether to add a bias.
        dtype: Dtype of weight and bias; JAX's default float when None.

    Attributes:
        weight: ``(out_features, in1_features, in2_features)``, uniform within
            ``1 / sqrt(in1_features)``.
        bias: ``(out_features,)`` or None, likewise.

    Shape:
        ``(*, in1_features)`` and ``(*, in2_features)`` to ``(*, out_features)``, in the weight's dtype.

    Raises:
        ValueError: When ``in1_features`` is 0.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set how weight and bias are drawn."""
        if self.in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={self.in1_features})")
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: jax.Array, input2: jax.Array) -> jax.Array:
        """``(*, in1_features)`` and ``(*, in2_features)`` to ``(*, out_features)``."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
