"""The first largest entry of every window, for windows that differ from each other.

Adaptive and fractional pooling cut an axis into windows each in its own way. What is common is the
search: the winner of a box is the winner of its rows' winners, so it goes through the axes one by
one, last first, and carries positions along. The search has no derivative. The values are then
looked up at the positions, and that has: the whole gradient goes to the entry that was found.

An entry wins as in torch's loop, where it replaces the best so far if it is larger, or NaN: the
first of equal entries, and the last NaN.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike


Cut = Callable[[jax.Array, int, ArrayLike], jax.Array]
"""From an array, an axis and a value that never wins, to the array with two axes in that place: the
windows, and their entries in order."""


def largest(x: jax.Array, cut: Cut, n: int) -> tuple[jax.Array, jax.Array]:
    """The largest entries over the last ``n`` axes, and their flat positions in these axes."""
    lead, sizes = x.shape[: x.ndim - n], x.shape[x.ndim - n :]
    best = lax.stop_gradient(x)
    positions = jnp.broadcast_to(jnp.arange(math.prod(sizes)).reshape(sizes), x.shape)
    for axis in reversed(range(x.ndim - n, x.ndim)):
        entries = cut(best, axis, -jnp.inf)
        winner = jnp.expand_dims(_winner(entries, axis + 1), axis + 1)
        positions = jnp.take_along_axis(cut(positions, axis, 0), winner, axis + 1).squeeze(axis + 1)
        best = entries.max(axis + 1)
    flat = positions.reshape(*lead, math.prod(positions.shape[len(lead) :]))
    values = jnp.take_along_axis(x.reshape(*lead, math.prod(sizes)), flat, -1)
    return values.reshape(positions.shape), positions


def _winner(entries: jax.Array, axis: int) -> jax.Array:
    nan = entries != entries
    last_nan = entries.shape[axis] - 1 - jnp.argmax(jnp.flip(nan, axis), axis)
    return jnp.where(nan.any(axis), last_nan, jnp.argmax(entries, axis))
