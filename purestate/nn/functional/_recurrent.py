"""Recurrent networks over sequences: LSTM, GRU, and the plain ones with tanh or relu.

Torch keeps these functions in ``torch`` itself (``torch.lstm``); here they stand with the others. They
share all options and differ in what a step computes, which is in ``_gates.py``. How layers and
directions are put together is in ``_recurrent_network.py``.
"""

from collections.abc import Sequence
from typing import Any

import jax

from purestate.nn.functional import _gates
from purestate.nn.functional._gates import Gates
from purestate.nn.functional._packed import BatchSizes
from purestate.nn.functional._recurrent_network import Options, network


__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]


def lstm(
    input: jax.Array,
    hx: tuple[jax.Array, jax.Array] | None,
    weights: Sequence[jax.Array],
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    batch_sizes: BatchSizes | None = None,
    proj_size: int = 0,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Run a stack of LSTM layers over a sequence: what ``torch.nn.LSTM`` computes.

    With ``D`` directions (1 or 2), hidden size ``H`` and ``P = proj_size or H``.

    Args:
        input: ``(L, N, in)``, ``(N, L, in)`` with ``batch_first``, or ``(L, in)`` without a batch;
            with ``batch_sizes`` packed rows, ``(sum(batch_sizes), in)``.
        hx: The state to start from: ``h`` of ``(D * num_layers, N, P)`` and ``c`` of
            ``(D * num_layers, N, H)``, without ``N`` if the input has no batch; zeros if ``None``.
        weights: For each layer, and in it for each direction: ``w_ih`` of ``(4 H, in)``, ``w_hh``
            of ``(4 H, P)``, with ``bias`` also ``b_ih`` and ``b_hh`` of ``(4 H,)``, and with
            ``proj_size`` also ``w_hr`` of ``(P, H)``: torch's ``_flat_weights``.
        num_layers: Layers, each reading the outputs of the one below.
        bias: Whether there are biases among the weights.
        dropout: Probability with which an output is zeroed between layers, in training.
        training: Whether to drop.
        bidirectional: Whether to read the sequence backwards as well.
        batch_first: Whether the batch is the first axis of input and output.
        batch_sizes: How many sequences have each step, of a packed input; Python ints.
        proj_size: The size that the hidden state is projected to; 0 does not.
        rng: A JAX key; needed in training with ``0 < dropout < 1`` and more than one layer.

    Returns:
        The output, like the input but of size ``D * P``, and the state ``(h, c)`` after the
        last step; in the input's dtype.

    Raises:
        ValueError: The input has other axes, the number of weights is wrong, or ``rng`` is missing.
        TypeError: The state is one array.
        RuntimeError: An empty sequence, or sizes or dtypes that do not fit.
    """
    if hasattr(hx, "ndim"):
        raise TypeError("lstm: expected hx to be the tuple (h, c), got one array")
    if hx is not None and len(hx) != 2:
        raise RuntimeError("lstm expects two hidden states")
    options = (num_layers, bias, dropout, training, bidirectional, batch_first, batch_sizes)
    output, (h, c) = network(
        "lstm", _gates.LSTM, input, hx, tuple(weights), Options(*options, proj_size), rng
    )
    return output, (h, c)


def gru(
    input: jax.Array,
    hx: jax.Array | None,
    weights: Sequence[jax.Array],
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    batch_sizes: BatchSizes | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Run a stack of GRU layers over a sequence: what ``torch.nn.GRU`` computes.

    Arguments and errors as :func:`lstm`, but a weight has three row blocks, reset, update and new
    gate, there is no projection, and the state is ``h`` alone.
    """
    options = (num_layers, bias, dropout, training, bidirectional, batch_first, batch_sizes)
    return _of_one_state("gru", _gates.GRU, input, hx, weights, options, rng)


def rnn_tanh(
    input: jax.Array,
    hx: jax.Array | None,
    weights: Sequence[jax.Array],
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    batch_sizes: BatchSizes | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Run a stack of tanh layers over a sequence: what ``torch.nn.RNN`` computes.

    Arguments and errors as :func:`gru`, but a weight has one row block.
    """
    options = (num_layers, bias, dropout, training, bidirectional, batch_first, batch_sizes)
    return _of_one_state("rnn_tanh", _gates.TANH, input, hx, weights, options, rng)


def rnn_relu(
    input: jax.Array,
    hx: jax.Array | None,
    weights: Sequence[jax.Array],
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    batch_sizes: BatchSizes | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """:func:`rnn_tanh` with the positive part in place of tanh; derivative 0 at 0."""
    options = (num_layers, bias, dropout, training, bidirectional, batch_first, batch_sizes)
    return _of_one_state("rnn_relu", _gates.RELU, input, hx, weights, options, rng)


def _of_one_state(
    function: str,
    gates: Gates,
    input: jax.Array,
    hx: jax.Array | None,
    weights: Sequence[jax.Array],
    options: tuple[Any, ...],
    rng: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """The network whose state is ``h`` alone."""
    state = None if hx is None else (hx,)
    output, (h,) = network(function, gates, input, state, tuple(weights), Options(*options), rng)
    return output, h
