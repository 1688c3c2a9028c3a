"""The softmaxes: activations that normalise along one axis."""

import jax

from purestate._module import Module
from purestate.nn.functional._softmax import log_softmax, softmax, softmin


__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _OverAxis(Module):
    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"dim={self.dim}"


class Softmax(_OverAxis):
    """Exponentials that sum to one along an axis. Torch's name: ``torch.nn.Softmax``.

    Args:
        dim: The axis. None picks one by the number of axes, and warns, as in torch.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        IndexError: In a call, when the input has no such axis.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised exponentials."""
        return softmax(input, self.dim)


class LogSoftmax(_OverAxis):
    """The logarithm of :class:`Softmax`. Torch's name: ``torch.nn.LogSoftmax``.

    Arguments, shapes and errors as :class:`Softmax`.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The logarithms."""
        return log_softmax(input, self.dim)


class Softmin(_OverAxis):
    """:class:`Softmax` of ``-x``. Torch's name: ``torch.nn.Softmin``.

    Arguments, shapes and errors as :class:`Softmax`.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised exponentials of the negatives."""
        return softmin(input, self.dim)


class Softmax2d(Module):
    """:class:`Softmax` over the channels of images. Torch's name: ``torch.nn.Softmax2d``.

    Shape:
        ``(N, C, H, W)`` or ``(C, H, W)`` to the same shape and dtype.

    Raises:
        ValueError: In a call, for another number of axes.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """At every place, exponentials that sum to one."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return softmax(input, -3)
