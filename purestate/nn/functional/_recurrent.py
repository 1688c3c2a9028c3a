"""Recurrent networks over sequences: LSTM, GRU, and the plain ones with tanh or relu.

Torch keeps these functions in ``torch`` itself (``torch.lstm``); here they stand with the others. They
share all options and differ in what a step computes, which is in ``_gates.py``. How layers and
directions are put together is in ``_recurrent_network.py``.
"""

from collections.abc import Sequence

import jax

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
        RuntimeError: An empty sequence, or sizes or dtypes that do not fit.
    """
    if hx is not None and len(hx) != 2:
        raise RuntimeError("lstm expects two hidden states")
    output, (h, c) = network(
        "lstm",
        input,
        hx,
        tuple(weights),
        Options(
            num_layers,
            bias,
            dropout,
            training,
            bidirectional,
            batch_first,
            batch_sizes,
            proj_size=proj_size,
        ),
        rng,
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
    output, (h,) = network(
        "gru",
        input,
        None if hx is None else (hx,),
        tuple(weights),
        Options(
            num_layers,
            bias,
            dropout,
            training,
            bidirectional,
            batch_first,
            batch_sizes,
            proj_size=0,
        ),
        rng,
    )
    return output, h


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
    output, (h,) = network(
        "rnn_tanh",
        input,
        None if hx is None else (hx,),
        tuple(weights),
        Options(
            num_layers,
            bias,
            dropout,
            training,
            bidirectional,
            batch_first,
            batch_sizes,
            proj_size=0,
        ),
        rng,
    )
    return output, h


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
    output, (h,) = network(
        "rnn_relu",
        input,
        None if hx is None else (hx,),
        tuple(weights),
        Options(
            num_layers,
            bias,
            dropout,
            training,
            bidirectional,
            batch_first,
            batch_sizes,
            proj_size=0,
        ),
        rng,
    )
    return output, h
