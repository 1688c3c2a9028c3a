"""The bins of adaptive pooling.

Bin ``i`` of ``wanted`` along an axis of size ``size`` runs from ``floor(i * size / wanted)`` to
``ceil((i + 1) * size / wanted)``. Bins overlap or differ in length unless ``wanted`` divides
``size``; then they are a reshape.
"""

import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


OutputSize = int | None | Sequence[int | None]


def one_bin_count(name: str, output_size: int | Sequence[int]) -> tuple[int]:
    """The number of bins along the one axis.

    Raises:
        TypeError: It is not an int.
        RuntimeError: There is more than one, or none.
    """
    where = f"{name}(): argument 'output_size' (position 2) must be tuple of ints, "
    if output_size is None:
        raise TypeError(f"{where}not NoneType")
    counts = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,)
    if None in counts:
        raise TypeError(f"{where}but found element of type NoneType at pos {counts.index(None)}")
    if len(counts) != 1:
        raise RuntimeError(
            f"{name}() argument 'output_size' should contain one int (got {len(counts)})"
        )
    return (operator.index(counts[0]),)


def bin_counts(input: jax.Array, output_size: OutputSize, n: int, error: str) -> tuple[int, ...]:
    """The number of bins along each of ``n`` axes, with ``None`` filled in from the input.

    Args:
        input: The array to pool.
        output_size: As the user gives it.
        n: How many of the last axes are pooled.
        error: What to say of another number of sizes.

    Raises:
        TypeError: It is neither an int nor a sequence.
        ValueError: The input has not more axes than there are sizes.
        RuntimeError: There are not ``n`` sizes.
    """
    if output_size is None:
        raise TypeError("object of type 'NoneType' has no len()")
    if not isinstance(output_size, Sequence):
        return (operator.index(output_size),) * n
    if input.ndim <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    if len(output_size) != n:
        raise RuntimeError(error)
    return tuple(
        size if wanted is None else operator.index(wanted)
        for wanted, size in zip(output_size, input.shape[-n:], strict=True)
    )


def starts_and_lengths(size: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each bin starts, and how many entries it has."""
    bins = np.arange(wanted)
    starts = bins * size // max(wanted, 1)
    return starts, -(-(bins + 1) * size // max(wanted, 1)) - starts


def binned(x: jax.Array, axis: int, wanted: int, fill: ArrayLike) -> jax.Array:
    """One axis cut into bins: two axes, the bins and their entries; ``fill`` makes all equally long."""
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    if wanted and size % wanted == 0:
        return x.reshape(*before, wanted, size // wanted, *after)
    starts, lengths = starts_and_lengths(size, wanted)
    offsets = np.arange(lengths.max(initial=1))
    inside = offsets < lengths[:, None]  # (bins, longest)
    entries = jnp.take(x, np.minimum(starts[:, None] + offsets, size - 1), axis=axis)
    return jnp.where(inside.reshape(*inside.shape, *(1,) * len(after)), entries, fill)
