"""Activations that shrink: small values to zero, or every value by a smooth share of itself."""

import jax

from purestate._module import Module
from purestate.nn.functional._shrink import hardshrink, softshrink, tanhshrink


__all__ = [
    "Hardshrink",
    "Softshrink",
    "Tanhshrink",
]


class Hardshrink(Module):
    """``x`` outside of ``[-lambd, lambd]``, 0 inside. Torch's name: ``torch.nn.Hardshrink``.

    Args:
        lambd: Half the width of the interval.

    Shape:
        Any shape to the same shape and dtype.
    """

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return str(self.lambd)


class Softshrink(Module):
    """``x`` moved towards 0 by ``lambd``, not past it. Torch's name: ``torch.nn.Softshrink``.

    Args:
        lambd: The distance; not negative.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        RuntimeError: In a call, when ``lambd`` is negative.
    """

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return str(self.lambd)


class Tanhshrink(Module):
    """``x - tanh(x)``. Torch's name: ``torch.nn.Tanhshrink``.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The activation of each element."""
        return tanhshrink(input)
