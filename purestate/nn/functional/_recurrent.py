"""Long short-term memory: one ``lax.scan`` per layer and direction.

What the input adds to the gates does not depend on the state, so it is computed for all steps at
once, before the scan. The four gates stay four arrays all the way: taking them as slices of one
array keeps XLA from fusing what follows, at nearly three times the cost of the elementwise part.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dropout import dropout as drop
from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._options import listed


State = tuple[jax.Array, jax.Array]

GATES = 4
"""Input, forget, cell, output: the row blocks of a weight, in torch's order."""


@functools.partial(
    jax.jit,
    static_argnames=(
        "num_layers",
        "bias",
        "dropout",
        "training",
        "bidirectional",
        "batch_first",
        "proj_size",
    ),
)
def lstm(
    input: jax.Array,
    hx: State | None,
    weights: Sequence[jax.Array],
    *,
    num_layers: int = 1,
    bias: bool = True,
    dropout: float = 0.0,
    training: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
    proj_size: int = 0,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, State]:
    """Run a stack of LSTM layers over a sequence: what ``torch.nn.LSTM`` computes.

    With ``D`` directions (1 or 2), hidden size ``H`` and ``P = proj_size or H``.

    Args:
        input: ``(L, N, in)``, ``(N, L, in)`` with ``batch_first``, or ``(L, in)`` without a batch.
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
        proj_size: The size that the hidden state is projected to; 0 does not.
        rng: A JAX key; needed in training with ``0 < dropout < 1`` and more than one layer.

    Returns:
        The output, like the input but of size ``D * P``, and the state ``(h, c)`` after the
        last step; in the input's dtype.

    Raises:
        ValueError: The input has other axes, the number of weights is wrong, or ``rng`` is missing.
        RuntimeError: An empty sequence, or sizes or dtypes that do not fit.
    """
    directions = 2 if bidirectional else 1
    each = 2 + 2 * bias + (proj_size > 0)
    if len(weights) != num_layers * directions * each:
        raise ValueError(
            f"lstm: expected {num_layers * directions * each} weights ({num_layers} layers, "
            f"{directions} directions, {each} each), got {len(weights)}"
        )
    if input.ndim not in (2, 3):
        raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.ndim}D instead")
    is_batched = input.ndim == 3
    if hx is not None:
        _check_axes(hx, is_batched)
    if not is_batched:
        input = input[:, None]
        hx = None if hx is None else (hx[0][:, None], hx[1][:, None])
    elif batch_first:
        input = input.swapaxes(0, 1)
    if input.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    _check_weights(input, weights, bias, num_layers, directions, proj_size)
    hx = _state(input, hx, num_layers * directions, weights[1].shape)
    keys: Sequence[jax.Array | None] = [None] * num_layers
    if training and 0 < dropout < 1 and num_layers > 1:
        if rng is None:
            raise ValueError(
                "lstm in training with 0 < dropout < 1 needs a random key.\n"
                "    write: lstm(..., rng=key), in a module rng=self.next_key()"
            )
        keys = list(jax.random.split(rng, num_layers))

    output, last_h, last_c = input, [], []  # output: (L, N, in), then (L, N, D * P)
    for layer in range(num_layers):
        if layer > 0:
            output = drop(output, dropout, training, rng=keys[layer])
        outputs = []
        for direction in range(directions):
            row = layer * directions + direction
            ys, (h, c) = _scanned(
                output,
                (hx[0][row], hx[1][row]),
                weights[row * each : (row + 1) * each],
                bias,
                direction == 1,
            )
            outputs.append(ys)
            last_h.append(h)
            last_c.append(c)
        output = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)

    h, c = jnp.stack(last_h), jnp.stack(last_c)
    if not is_batched:
        return output[:, 0], (h[:, 0], c[:, 0])
    return output.swapaxes(0, 1) if batch_first else output, (h, c)


def _check_axes(hx: State, is_batched: bool) -> None:
    given, wanted = ("batched 3-D", 3) if is_batched else ("unbatched 2-D", 2)
    if hx[0].ndim != wanted or hx[1].ndim != wanted:
        raise RuntimeError(
            f"For {given} input, hx and cx should also be {wanted}-D but got "
            f"({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
        )


def _check_weights(
    input: jax.Array,
    weights: Sequence[jax.Array],
    bias: bool,
    num_layers: int,
    directions: int,
    proj_size: int,
) -> None:
    """Every weight against the sizes that the first two imply."""
    if weights[0].ndim == 2 and input.shape[2] != weights[0].shape[1]:
        raise RuntimeError(
            "input.size(-1) must be equal to input_size. "
            f"Expected {weights[0].shape[1]}, got {input.shape[2]}"
        )
    hidden = weights[1].shape[0] // GATES
    width = proj_size if proj_size > 0 else hidden
    place = 0
    for row in range(num_layers * directions):
        size = input.shape[2] if row < directions else directions * width
        shapes = [(GATES * hidden, size), (GATES * hidden, width)]
        shapes += [(GATES * hidden,)] * 2 if bias else []
        shapes += [(proj_size, hidden)] if proj_size > 0 else []
        for shape in shapes:
            if weights[place].shape != shape:
                raise RuntimeError(
                    f"lstm: expected weights[{place}] of size {listed(shape)}, "
                    f"got {listed(weights[place].shape)}"
                )
            if weights[place].dtype != input.dtype:
                raise RuntimeError(
                    "mat1 and mat2 must have the same dtype, but got "
                    f"{scalar_type(input.dtype)} and {scalar_type(weights[place].dtype)}"
                )
            place += 1


def _state(input: jax.Array, hx: State | None, rows: int, shape: Sequence[int]) -> State:
    """The state to start from, checked; ``shape`` is that of ``w_hh``, ``(4 H, P)``."""
    batch = input.shape[1]
    h, c = (rows, batch, shape[1]), (rows, batch, shape[0] // GATES)
    if hx is None:
        return jnp.zeros(h, input.dtype), jnp.zeros(c, input.dtype)
    for place, (state, expected) in enumerate(zip(hx, (h, c), strict=True)):
        if state.shape != expected:
            raise RuntimeError(f"Expected hidden[{place}] size {expected}, got {list(state.shape)}")
        if state.dtype != input.dtype:
            raise RuntimeError(
                "Input and hidden tensors are not the same dtype, found input tensor with "
                f"{scalar_type(input.dtype)} and hidden tensor with {scalar_type(state.dtype)}"
            )
    return hx


def _scanned(
    xs: jax.Array, start: State, weights: Sequence[jax.Array], bias: bool, is_reverse: bool
) -> tuple[jax.Array, State]:
    """One layer in one direction: ``(L, N, in)`` to ``(L, N, P)`` and the last state."""
    length, batch, size = xs.shape
    hidden = weights[1].shape[0] // GATES
    w_ih = weights[0].reshape(GATES, hidden, size)  # (4, H, in)
    w_hh = weights[1].reshape(GATES, hidden, weights[1].shape[1])  # (4, H, P)
    w_hr = weights[-1] if len(weights) % 2 else None  # (P, H)
    flat = xs.reshape(length * batch, size)
    inputs = [flat @ w_ih[gate].T for gate in range(GATES)]
    if bias:
        b = (weights[2] + weights[3]).reshape(GATES, hidden)  # (4, H)
        inputs = [values + b[gate] for gate, values in enumerate(inputs)]

    def step(state: State, inputs: Sequence[jax.Array]) -> tuple[State, jax.Array]:
        h, c = state  # (N, P), (N, H)
        i, f, g, o = (values + h @ w_hh[gate].T for gate, values in enumerate(inputs))
        c = lax.logistic(f) * c + lax.logistic(i) * jnp.tanh(g)
        h = lax.logistic(o) * jnp.tanh(c)
        if w_hr is not None:
            h = h @ w_hr.T
        return (h, c), h

    gates = [values.reshape(length, batch, hidden) for values in inputs]
    last, ys = lax.scan(step, start, gates, reverse=is_reverse)
    return ys, last
