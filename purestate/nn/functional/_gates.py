"""What one step of a recurrence does with its gates, and the derivative of that in closed form.

Arrays here are ``(features, batch)``: the gates of one step are blocks of rows, and a block of rows
is contiguous, so that XLA's CPU compiler takes a gate out of the product at no cost.

A step is two products and then something elementwise. ``w_ih @ x + b_ih`` and ``w_hh @ h + b_hh``
come in; ``join`` adds what belongs together, ``advance`` computes the next state and, beside it, the
slopes: the coefficients that ``tangent`` needs to carry a change of the joined gates and of the state
to a change of the next state. ``tangent`` and ``join`` are linear in what they carry, so their
transposes are the backward pass.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


Arrays = tuple[jax.Array, ...]


class Gates(NamedTuple):
    """One kind of recurrence.

    Attributes:
        name: As torch's errors name it.
        blocks: How many blocks of ``hidden_size`` rows a weight has.
        states: How many arrays a state has.
        join: ``(from the input, from the state)`` to the gates before their nonlinearity.
        advance: ``(joined gates, state)`` to ``(next state, slopes)``.
        tangent: ``(slopes, change of the joined gates, change of the state)`` to the change of the
            next state.
    """

    name: str
    blocks: int
    states: int
    join: Callable[[jax.Array, jax.Array], Arrays]
    advance: Callable[[Arrays, Arrays], tuple[Arrays, Any]]
    tangent: Callable[[Any, Arrays, Arrays], Arrays]


def added(from_input: jax.Array, from_state: jax.Array) -> Arrays:
    """The join of gates that see nothing but the sum."""
    return (from_input + from_state,)


def _lstm(joined: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    i, f, g, o = jnp.split(joined[0], 4)
    i, f, g, o = lax.logistic(i), lax.logistic(f), jnp.tanh(g), lax.logistic(o)
    c = f * state[1] + i * g
    t = jnp.tanh(c)
    slopes = (
        g * i * (1 - i),
        state[1] * f * (1 - f),
        i * (1 - g * g),
        t * o * (1 - o),
        o * (1 - t * t),
        f,
    )
    return (o * t, c), slopes


def _lstm_tangent(slopes: Arrays, joined: Arrays, state: Arrays) -> Arrays:
    of_i, of_f, of_g, of_o, of_c, f = slopes
    i, f_gate, g, o = jnp.split(joined[0], 4)
    c = f * state[1] + of_i * i + of_f * f_gate + of_g * g
    return of_o * o + of_c * c, c


LSTM = Gates("LSTM", 4, 2, added, _lstm, _lstm_tangent)
"""Input, forget, cell and output gate; the state is ``(h, c)``."""


def _gru_join(from_input: jax.Array, from_state: jax.Array) -> Arrays:
    """Reset and update gate as one array; the new gate in two parts, for reset scales the second."""
    rows = from_input.shape[-2] // 3 * 2
    (rz, n), (rz_state, n_state) = (
        jnp.split(part, [rows], axis=-2) for part in (from_input, from_state)
    )
    return rz + rz_state, n, n_state


def _gru(joined: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    r, z = jnp.split(joined[0], 2)
    r, z = lax.logistic(r), lax.logistic(z)
    n = jnp.tanh(joined[1] + r * joined[2])
    of_n = (1 - z) * (1 - n * n)
    slopes = (
        of_n * joined[2] * r * (1 - r),
        (state[0] - n) * z * (1 - z),
        of_n,
        of_n * r,
        z,
    )
    return ((state[0] - n) * z + n,), slopes


def _gru_tangent(slopes: Arrays, joined: Arrays, state: Arrays) -> Arrays:
    of_r, of_z, of_input, of_state, z = slopes
    r, z_gate = jnp.split(joined[0], 2)
    h = z * state[0] + of_r * r + of_z * z_gate
    return (h + of_input * joined[1] + of_state * joined[2],)


GRU = Gates("GRU", 3, 1, _gru_join, _gru, _gru_tangent)
"""Reset, update and new gate."""


def _tanh(joined: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    del state
    h = jnp.tanh(joined[0])
    return (h,), (1 - h * h,)


def _relu(joined: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    del state
    (values,) = joined
    zero, one = jnp.zeros((), values.dtype), jnp.ones((), values.dtype)
    # NaN is not below zero and must still come through; the slope at zero is zero.
    return (jnp.where(values <= 0, zero, values),), (jnp.where(values <= 0, zero, one),)


def _scaled(slopes: Arrays, joined: Arrays, state: Arrays) -> Arrays:
    del state
    return (slopes[0] * joined[0],)


TANH = Gates("RNN", 1, 1, added, _tanh, _scaled)
"""One gate, its tanh the new state."""

RELU = Gates("RNN", 1, 1, added, _relu, _scaled)
"""One gate, its positive part the new state."""
