"""Layers and directions put together from single recurrences.

A recurrence, one layer in one direction, is in ``_recurrence.py``; what its step computes, in
``_gates.py``. Here are the order of the weights, the dropout between layers, and the way from torch's
layouts (batch first or second, no batch, packed) to the one inside, ``(L, features, N)``, and back.

Packed sequences run in their padded form: where a sequence has no step, its state stays as it was. So
the last state is the one after its own last step, and the reverse direction starts there.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purestate.nn.functional._dropout import dropout as drop
from purestate.nn.functional._gates import Arrays, Gates
from purestate.nn.functional._packed import BatchSizes, is_step, packed, padded
from purestate.nn.functional._recurrence import Weights, recurrence
from purestate.nn.functional._recurrent_checks import check_axes, check_state, check_weights
from purestate.nn.functional._varying import varying_alike


class Options(NamedTuple):
    """What a compiled network depends on besides shapes."""

    num_layers: int
    bias: bool
    dropout: float
    training: bool
    bidirectional: bool
    batch_first: bool
    batch_sizes: BatchSizes | None
    proj_size: int = 0

    @property
    def directions(self) -> int:
        """1 or 2."""
        return 2 if self.bidirectional else 1


@functools.partial(jax.jit, static_argnames=("function", "gates", "options"))
def network(
    function: str,
    gates: Gates,
    input: jax.Array,
    hx: Arrays | None,
    weights: Arrays,
    options: Options,
    rng: jax.Array | None,
) -> tuple[jax.Array, Arrays]:
    """Run a network; the arguments are those of the public functions in ``_recurrent.py``."""
    directions = options.directions
    check_axes(gates, input, hx, options.batch_sizes)
    is_batched = input.ndim == 3
    if options.batch_sizes is not None:
        input = padded(input, options.batch_sizes)
    elif not is_batched:
        input = input[:, None]
        hx = None if hx is None else tuple(state[:, None] for state in hx)
    elif options.batch_first:
        input = input.swapaxes(0, 1)
    if input.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    rows = options.num_layers * directions
    grouped = _grouped(function, weights, rows, options.bias, options.proj_size)
    check_weights(function, gates, input, grouped, directions)
    w_hh = grouped[0].w_hh
    sizes = [(rows, input.shape[1], size) for size in (w_hh.shape[1], w_hh.shape[0] // gates.blocks)][
        : gates.states
    ]
    if hx is None:
        # Of the input, so that on a mesh with explicit axes its batch axis is sharded likewise.
        none = jnp.zeros_like(input[0, :, :1])
        hx = tuple(jnp.broadcast_to(none, size) for size in sizes)
    check_state(input, hx, sizes)
    input, hx, grouped = varying_alike((input, hx, grouped))
    kept = None if options.batch_sizes is None else jnp.asarray(is_step(options.batch_sizes))
    starts = [state.swapaxes(1, 2) for state in hx]  # (rows, features, N)
    keys = _keys(function, options, rng)

    output, lasts = input.swapaxes(1, 2), []  # output: (L, in, N), then (L, D * P, N)
    for layer in range(options.num_layers):
        if layer > 0:
            output = drop(output, options.dropout, options.training, rng=keys[layer])
        outputs = []
        for direction in range(directions):
            row = layer * directions + direction
            start = tuple(state[row] for state in starts)
            ys, last = recurrence(gates, direction == 1, output, start, grouped[row], kept)
            outputs.append(ys)
            lasts.append(last)
        output = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=1)

    hx = tuple(jnp.stack(states).swapaxes(1, 2) for states in zip(*lasts, strict=True))
    if options.batch_sizes is not None:
        return packed(output.swapaxes(1, 2), options.batch_sizes), hx
    if not is_batched:
        return output[:, :, 0], tuple(state[:, 0] for state in hx)
    return output.transpose(2, 0, 1) if options.batch_first else output.swapaxes(1, 2), hx


def _grouped(function: str, weights: Arrays, rows: int, bias: bool, proj_size: int) -> list[Weights]:
    """The weights of each layer and direction, by name."""
    each = 2 + 2 * bias + (proj_size > 0)
    if len(weights) != rows * each:
        raise ValueError(
            f"{function}: expected {rows * each} weights ({rows} layers and directions, {each} each), "
            f"got {len(weights)}"
        )
    grouped = []
    for row in range(rows):
        w_ih, w_hh, *more = weights[row * each : (row + 1) * each]
        b_ih, b_hh = more[:2] if bias else (None, None)
        grouped.append(Weights(w_ih, w_hh, b_ih, b_hh, more[-1] if proj_size > 0 else None))
    return grouped


def _keys(function: str, options: Options, rng: jax.Array | None) -> Sequence[jax.Array | None]:
    """A key for the input of each layer, where one is needed."""
    if not (options.training and 0 < options.dropout < 1 and options.num_layers > 1):
        return [None] * options.num_layers
    if rng is None:
        raise ValueError(
            f"{function} in training with 0 < dropout < 1 needs a random key.\n"
            f"    write: {function}(..., rng=key)\n"
            "    in a module: rng=self.next_key() if self.training else None"
        )
    return list(jax.random.split(rng, options.num_layers))
