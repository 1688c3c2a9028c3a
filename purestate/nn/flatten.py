"""Joining neighbouring axes into one, and the reverse."""

import math
from collections.abc import Sequence
from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._options import axis, listed


__all__ = ["Flatten", "Unflatten"]


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
        start, end = (axis(dim, input.ndim) for dim in (self.start_dim, self.end_dim))
        if start > end:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        joined = math.prod(input.shape[start : end + 1])
        return input.reshape(*input.shape[:start], joined, *input.shape[end + 1 :])

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split one axis into several. Torch's name: ``torch.nn.Unflatten``.

    Args:
        dim: The axis; negative counts from the end.
        unflattened_size: The sizes of the axes it becomes, a tuple or list; one may be -1 and is
            inferred.

    Shape:
        ``(*, S_1 * ... * S_n, *)`` to ``(*, S_1, ..., S_n, *)``, in any dtype.

    Raises:
        TypeError: When the sizes are not a tuple of integers.
        IndexError: In a call, when the input has no such axis.
        RuntimeError: In a call, when the sizes do not multiply up to that of the axis.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        _check_sizes(unflattened_size)
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with its axis split."""
        dim = axis(self.dim, input.ndim)
        sizes = _inferred(input, dim, tuple(self.unflattened_size))
        return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


def _check_sizes(sizes: Any) -> None:
    if not isinstance(sizes, tuple | list):
        raise TypeError(
            f"unflattened_size must be a tuple of ints, but found type {type(sizes).__name__}"
        )
    for index, size in enumerate(sizes):
        if not isinstance(size, int):
            raise TypeError(
                "unflattened_size must be tuple of ints, "
                f"but found element of type {type(size).__name__} at pos {index}"
            )


def _inferred(input: jax.Array, dim: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes with -1 filled in."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    unexpected = "unflatten got an unexpected error:\n"
    if input.ndim == 0:
        raise RuntimeError(f"{unexpected}Dimension specified as {dim} but tensor has no dimensions")
    for index, size in enumerate(sizes):
        if size < -1:
            raise RuntimeError(
                f"{unexpected}invalid shape dimension {size} at index {index} of shape {listed(sizes)}"
            )
    if sizes.count(-1) > 1:
        raise RuntimeError(f"{unexpected}only one dimension can be inferred")
    known, total = math.prod(size for size in sizes if size != -1), input.shape[dim]
    is_inferred = -1 in sizes
    if is_inferred and known == total == 0:
        raise RuntimeError(
            f"{unexpected}cannot reshape tensor of 0 elements into shape {listed(sizes)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    fits = known == total if not is_inferred else known and total % known == 0
    if not fits:
        raise RuntimeError(
            f"unflatten: Provided sizes {listed(sizes)} don't multiply up to the size of dim {dim} "
            f"({total}) in the input tensor"
        )
    return tuple(total // known if size == -1 else size for size in sizes)
