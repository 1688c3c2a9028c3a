"""One step of a recurrent network, for loops of one's own.

The products and what follows them are those of the networks over sequences (``_gates.py``); torch
keeps these functions in ``torch`` itself (``torch.lstm_cell``).
"""

import functools

import jax
import jax.numpy as jnp

from purestate.nn.functional import _gates
from purestate.nn.functional._gates import Arrays, Gates
from purestate.nn.functional._recurrence import Weights
from purestate.nn.functional._recurrent_checks import check_cell, check_dtypes


__all__ = ["gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"]


def lstm_cell(
    input: jax.Array,
    hx: tuple[jax.Array, jax.Array] | None,
    w_ih: jax.Array,
    w_hh: jax.Array,
    b_ih: jax.Array | None = None,
    b_hh: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """One step of an LSTM (``torch.lstm_cell``).

    Args:
        input: ``(N, in)`` or ``(in,)``.
        hx: ``(h, c)``, each ``(N, H)`` or ``(H,)`` like the input; zeros if None.
        w_ih: ``(4 H, in)``: input, forget, cell and output gate.
        w_hh: ``(4 H, H)``.
        b_ih: ``(4 H,)`` or None.
        b_hh: ``(4 H,)`` or None.

    Returns:
        The next ``(h, c)``, in the input's dtype.

    Raises:
        ValueError: For an input or state of other axes.
        RuntimeError: For sizes or dtypes that do not fit.
    """
    h, c = _step(_gates.LSTM, input, hx, Weights(w_ih, w_hh, b_ih, b_hh))
    return h, c


def gru_cell(
    input: jax.Array,
    hx: jax.Array | None,
    w_ih: jax.Array,
    w_hh: jax.Array,
    b_ih: jax.Array | None = None,
    b_hh: jax.Array | None = None,
) -> jax.Array:
    """One step of a GRU (``torch.gru_cell``): the next ``h``.

    Arguments and errors as :func:`lstm_cell`, with three row blocks, reset, update and new gate, and
    one array as state.
    """
    return _step(_gates.GRU, input, _only(hx), Weights(w_ih, w_hh, b_ih, b_hh))[0]


def rnn_tanh_cell(
    input: jax.Array,
    hx: jax.Array | None,
    w_ih: jax.Array,
    w_hh: jax.Array,
    b_ih: jax.Array | None = None,
    b_hh: jax.Array | None = None,
) -> jax.Array:
    """``tanh(w_ih @ x + b_ih + w_hh @ h + b_hh)`` (``torch.rnn_tanh_cell``).

    Arguments and errors as :func:`gru_cell`, with one row block.
    """
    return _step(_gates.TANH, input, _only(hx), Weights(w_ih, w_hh, b_ih, b_hh))[0]


def rnn_relu_cell(
    input: jax.Array,
    hx: jax.Array | None,
    w_ih: jax.Array,
    w_hh: jax.Array,
    b_ih: jax.Array | None = None,
    b_hh: jax.Array | None = None,
) -> jax.Array:
    """:func:`rnn_tanh_cell` with the positive part in place of tanh (``torch.rnn_relu_cell``)."""
    return _step(_gates.RELU, input, _only(hx), Weights(w_ih, w_hh, b_ih, b_hh))[0]


def _only(hx: jax.Array | None) -> Arrays | None:
    return None if hx is None else (hx,)


@functools.partial(jax.jit, static_argnames="gates")
def _step(gates: Gates, input: jax.Array, hx: Arrays | None, weights: Weights) -> Arrays:
    check_cell(f"{gates.name}Cell", gates, input, hx, weights)
    is_batched = input.ndim == 2
    x = jnp.atleast_2d(input).T  # (in, N)
    if hx is None:
        zeros = jnp.zeros((weights.w_hh.shape[1], x.shape[1]), input.dtype)
        state = (zeros,) * gates.states
    else:
        state = tuple(jnp.atleast_2d(array).T for array in hx)
    check_dtypes(x, weights.w_ih)
    check_dtypes(state[0], weights.w_hh)
    joined = gates.join(weights.from_input(x), weights.from_state(state[0]))
    after, _ = gates.advance(joined, state)
    return tuple(array.T if is_batched else array[:, 0] for array in after)
