"""Smooth activations: functions of each element, and the gated half of an axis.

``inplace`` is accepted and printed as in torch; nothing is done in place.
"""

import jax

from purestate._module import Module
from purestate.nn._inplace import Inplace, flag
from purestate.nn.functional._activation import (
    celu,
    elu,
    gelu,
    glu,
    logsigmoid,
    mish,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
)


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "LogSigmoid",
    "Mish",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Tanh",
]


class ELU(Module):
    """``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere. Torch's name: ``torch.nn.ELU``.

    Args:
        alpha: The scale for negative inputs.
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return elu(input, self.alpha)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"alpha={self.alpha}{flag(self.inplace)}"


class CELU(Module):
    """``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` elsewhere. Torch's name: ``torch.nn.CELU``.

    Args:
        alpha: Scale and reach for negative inputs.
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when ``alpha`` is 0.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return celu(input, self.alpha)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"alpha={self.alpha}{flag(self.inplace)}"


class SELU(Inplace):
    """:class:`ELU` scaled to keep mean 0 and variance 1. Torch's name: ``torch.nn.SELU``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return selu(input)


class SiLU(Inplace):
    """``x * sigmoid(x)``. Torch's name: ``torch.nn.SiLU``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return silu(input)


class Mish(Inplace):
    """``x * tanh(softplus(x))``. Torch's name: ``torch.nn.Mish``.

    Args:
        inplace: Accepted for torch's sake.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return mish(input)


class GELU(Module):
    """``x`` times the normal distribution function of ``x``. Torch's name: ``torch.nn.GELU``.

    Args:
        approximate: ``'none'`` for the exact function, ``'tanh'`` for the usual approximation.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        RuntimeError: In a call, for another ``approximate``.
    """

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """The first half along an axis, gated by the sigmoid of the second. Torch's name: ``torch.nn.GLU``.

    Args:
        dim: The axis to halve.

    Shape:
        ``(*, 2 * N, *)`` to ``(*, N, *)``, in the same dtype.

    Raises:
        RuntimeError: In a call, when the axis has odd size.
    """

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input: jax.Array) -> jax.Array:
        """The gated half."""
        return glu(input, self.dim)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"dim={self.dim}"


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``. Torch's name: ``torch.nn.Softplus``.

    Args:
        beta: The steepness.
        threshold: Above this value of ``beta * x`` the output is ``x``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """``x / (1 + |x|)``. Torch's name: ``torch.nn.Softsign``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return softsign(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``. Torch's name: ``torch.nn.Sigmoid``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return sigmoid(input)


class LogSigmoid(Module):
    """The logarithm of :class:`Sigmoid`, computed stably. Torch's name: ``torch.nn.LogSigmoid``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent. Torch's name: ``torch.nn.Tanh``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return tanh(input)
