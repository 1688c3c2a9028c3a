"""Joining neighbouring axes into one."""

import math

import jax

from purestate._module import Module


class Flatten(Module):
    """Join the axes from ``start_dim`` to ``end_dim``. Torch's name: ``torch.nn.Flatten``.

    Args:
        start_dim: First axis to join; by default the one after the batch.
        end_dim: Last axis to join; negative counts from the end.

    Shape:
        ``(*, S_start, ..., S_end, *)`` to ``(*, S_start * ... * S_end, *)``, in any dtype.

    Raises:
        IndexError: In a call, when the input has no such axis.
        RuntimeError: In a call, when ``start_dim`` comes after ``end_dim``.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with its axes joined."""
        start, end = (_axis(dim, input.ndim) for dim in (self.start_dim, self.end_dim))
        if start > end:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        joined = math.prod(input.shape[start : end + 1])
        return input.reshape(*input.shape[:start], joined, *input.shape[end + 1 :])

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


def _axis(dim: int, ndim: int) -> int:
    """An axis counted from the start; a scalar counts as having one."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise IndexError(
            "Dimension out of range "
            f"(expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count
