"""Activations made of straight pieces: ReLU and its kin, and the clipped lines.

``inplace`` is accepted and printed as in torch; nothing is done in place.
"""

from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate._warning import warn
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn._inplace import Inplace, flag
from purestate.nn.functional._rectifier import (
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    prelu,
    relu,
    relu6,
    rrelu,
    threshold,
)


__all__ = [
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "Threshold",
]


class ReLU(Inplace):
    """``max(x, 0)``. Torch's name: ``torch.nn.ReLU``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return relu(input)


class LeakyReLU(Module):
    """``x`` where it is positive, ``negative_slope * x`` elsewhere. Torch's ``torch.nn.LeakyReLU``.

    Args:
        negative_slope: The slope for negative inputs.
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False):
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"negative_slope={self.negative_slope}{flag(self.inplace)}"


class PReLU(Module):
    """Leaky ReLU with a learned slope. Torch's name: ``torch.nn.PReLU``.

    Args:
        num_parameters: One slope for all, or one per channel.
        init: The slope to start from.
        dtype: Dtype of the slope; JAX's default float when None.

    Attributes:
        weight: ``(num_parameters,)``.

    Shape:
        ``(N, C, *)`` to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when the slopes do not fit the channels.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, dtype=dtype))
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set the slopes to ``init``."""
        init.constant_(self.weight, self.init)

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """Leaky ReLU with a random slope for each element. Torch's name: ``torch.nn.RReLU``.

    In evaluation every slope is the mean of the two.

    Args:
        lower: The least slope.
        upper: The greatest slope.
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when the slopes are not finite or not in order.
        MissingRngError: In a training call without ``rng``.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        draws = self.training and self.lower < self.upper
        key = self.next_key() if draws else None
        return rrelu(input, self.lower, self.upper, self.training, rng=key)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"lower={self.lower}, upper={self.upper}{flag(self.inplace)}"


class Threshold(Module):
    """``x`` where it is above ``threshold``, ``value`` elsewhere. Torch's name: ``torch.nn.Threshold``.

    Args:
        threshold: What an input must be above to stay.
        value: What becomes of the others.
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"threshold={self.threshold}, value={self.value}{flag(self.inplace)}"


class Hardtanh(Module):
    """Clip to an interval. Torch's name: ``torch.nn.Hardtanh``.

    Args:
        min_val: Lower end.
        max_val: Upper end.
        inplace: Accepted for torch's sake.
        min_value: Torch's deprecated name of ``min_val``; warns.
        max_value: Torch's deprecated name of ``max_val``; warns.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        AssertionError: When the interval is empty.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ):
        super().__init__()
        self.min_val = min_val if min_value is None else _renamed("min", min_value)
        self.max_val = max_val if max_value is None else _renamed("max", max_value)
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    def forward(self, input: jax.Array) -> jax.Array:
        """The clipped input."""
        return hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"min_val={self.min_val}, max_val={self.max_val}{flag(self.inplace)}"


def _renamed(end: str, value: float) -> float:
    warn(
        f"keyword argument `{end}_value` is deprecated and renamed to `{end}_val`",
        FutureWarning,
    )
    return value


class ReLU6(Hardtanh):
    """``clip(x, 0, 6)``. Torch's name: ``torch.nn.ReLU6``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: jax.Array) -> jax.Array:
        """The clipped input."""
        return relu6(input)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return "inplace=True" if self.inplace else ""


class _InplaceUnprinted(Module):
    """Torch forgets to print the flag of these."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Hardsigmoid(_InplaceUnprinted):
    """``clip(x + 3, 0, 6) / 6``. Torch's name: ``torch.nn.Hardsigmoid``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return hardsigmoid(input)


class Hardswish(_InplaceUnprinted):
    """``x * clip(x + 3, 0, 6) / 6``. Torch's name: ``torch.nn.Hardswish``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return hardswish(input)
