"""The layout of packed sequences: all first steps, then all second steps, and so on.

Sequences of different lengths, longest first, are one array without padding. ``batch_sizes[t]`` is how
many sequences have a step ``t``. The sizes decide shapes, so they are Python ints, known when a
function is traced. Where each row lies in the padded form follows from them and is a constant.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np


BatchSizes = tuple[int, ...]


def rows(batch_sizes: BatchSizes) -> tuple[np.ndarray, np.ndarray]:
    """For each packed row, its step and its sequence."""
    steps = np.repeat(np.arange(len(batch_sizes)), batch_sizes)
    sequences = [np.arange(size) for size in batch_sizes]
    return steps, np.concatenate(sequences or [np.arange(0)])


def lengths(batch_sizes: BatchSizes) -> np.ndarray:
    """The length of each sequence, longest first."""
    sequences = np.arange(batch_sizes[0])
    return (np.asarray(batch_sizes)[:, None] > sequences).sum(axis=0, dtype=np.int64)


@functools.partial(jax.jit, static_argnames="batch_sizes")
def packed(padded: jax.Array, batch_sizes: BatchSizes) -> jax.Array:
    """``(L, N, *)`` to the packed rows ``(sum, *)``."""
    steps, sequences = rows(batch_sizes)
    return padded[steps, sequences]


@functools.partial(jax.jit, static_argnames=("batch_sizes", "padding_value", "total_length"))
def padded(
    data: jax.Array,
    batch_sizes: BatchSizes,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> jax.Array:
    """The packed rows ``(sum, *)`` to ``(L, N, *)``."""
    length = len(batch_sizes) if total_length is None else total_length
    shape = (length, batch_sizes[0], *data.shape[1:])
    filled = jnp.full(shape, jnp.asarray(padding_value).astype(data.dtype))
    return filled.at[rows(batch_sizes)].set(data, unique_indices=True, indices_are_sorted=True)


def is_step(batch_sizes: BatchSizes) -> np.ndarray:
    """``(L, 1, N)``: whether a sequence has a step."""
    sequences = np.arange(batch_sizes[0])
    return (sequences < np.asarray(batch_sizes)[:, None])[:, None]
