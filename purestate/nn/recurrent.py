"""Recurrent layers: parameters named by layer and direction, and the checks of a call.

``weight_ih_l0``, ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0``, then the same with ``_reverse``
and for the next layers; a projection adds ``weight_hr_l0``. All are uniform within
``1 / sqrt(hidden_size)``. A layer takes an array or a packed sequence (``nn.utils.rnn``) and returns
the same kind.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate._warning import warn
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._recurrent import gru, lstm, rnn_relu, rnn_tanh
from purestate.nn.utils.rnn import PackedSequence


__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]


_BLOCKS = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""How many blocks of ``hidden_size`` rows a weight has, by mode."""


class RNNBase(Module):
    """The constructor of every recurrent layer. Torch's name: ``torch.nn.RNNBase``.

    Args:
        mode: ``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``.
        input_size: Size of an input vector.
        hidden_size: Size of the state.
        num_layers: Layers, each reading the outputs of the one below.
        bias: Whether to have the two biases.
        batch_first: Whether the batch is the first axis of input and output.
        dropout: Probability with which an output is zeroed between layers, in training.
        bidirectional: Whether to read the sequence backwards as well.
        proj_size: Project the hidden state to this size; 0 does not.
        dtype: Dtype of the parameters; JAX's default float when None.

    Raises:
        ValueError: For a mode, size or probability out of its range.
        TypeError: For an option of the wrong type.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        dtype: Any = None,
    ):
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_dropout(dropout)
        self._check_sizes()
        if mode not in _BLOCKS:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        rows = _BLOCKS[mode] * hidden_size
        self._all_weights: list[list[str]] = []
        width = proj_size if proj_size > 0 else hidden_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 2 if bidirectional else 1]:
                inputs = input_size if layer == 0 else width * (2 if bidirectional else 1)
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih_l{layer}{suffix}": (rows, inputs),
                    f"weight_hh_l{layer}{suffix}": (rows, width),
                }
                if bias:
                    shapes[f"bias_ih_l{layer}{suffix}"] = (rows,)
                    shapes[f"bias_hh_l{layer}{suffix}"] = (rows,)
                if proj_size > 0:
                    shapes[f"weight_hr_l{layer}{suffix}"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name, Parameter(empty(shape, dtype=dtype)))
                self._all_weights.append(list(shapes))
        self.reset_parameters()

    def _check_dropout(self, dropout: Any) -> None:
        is_number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
        if not is_number or not 0 <= self.dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if self.dropout > 0 and self.num_layers == 1:
            warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
                f"expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
            )

    def _check_sizes(self) -> None:
        for name, cls in (
            ("bias", bool),
            ("batch_first", bool),
            ("input_size", int),
            ("hidden_size", int),
            ("num_layers", None),
        ):
            value = getattr(self, name)
            if cls is not None and not isinstance(value, cls):
                got = type(value).__name__
                raise TypeError(f"{name} should be of type {cls.__name__}, got: {got}")
            if cls is not bool and value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    @draws_again
    def reset_parameters(self) -> None:
        """Set how every parameter is drawn."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing: there is no memory to lay out. Torch's code calls it before a forward pass."""

    def _run(self, function: Callable[..., Any], input: Any, hx: Any, **more: Any) -> tuple[Any, Any]:
        """Call a functional on an array or on a packed sequence."""
        is_packed = isinstance(input, PackedSequence)
        data = input.data if is_packed else input
        self._check_dtype(data)
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        if is_packed:
            more["batch_sizes"] = input.batch_sizes
            hx = _permuted(hx, input.sorted_indices)
        output, hidden = function(
            data,
            hx,
            [weight for weights in self.all_weights for weight in weights],
            num_layers=self.num_layers,
            bias=self.bias,
            # Without dropout both modes are one and the same compiled function.
            dropout=self.dropout if drops else 0.0,
            training=drops,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
            rng=self.next_key() if drops and self.dropout < 1 else None,
            **more,
        )
        if is_packed:
            return input._replace(data=output), _permuted(hidden, input.unsorted_indices)
        return output, hidden

    def _check_dtype(self, input: jax.Array) -> None:
        dtype = self.weight_ih_l0.dtype
        if input.dtype != dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). "
                f'Convert input: input.astype("{dtype}"), or convert model: '
                f'bridge.to(model, dtype="{input.dtype}")'
            )

    def extra_repr(self) -> str:
        """As torch prints it."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text


def _permuted(hx: Any, order: Any) -> Any:
    """The sequences of a state, ``(rows, N, features)`` each, in another order.

    A state of another size stays as it is, for the check that follows.
    """
    if order is None:
        return hx
    fits = all(state.ndim == 3 and state.shape[1] == len(order) for state in jax.tree.leaves(hx))
    return jax.tree.map(lambda state: state[:, order], hx) if fits else hx


def _check_no_projection(proj_size: Any) -> None:
    if proj_size is not None:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """A plain recurrent network over a sequence. Torch's name: ``torch.nn.RNN``.

    Each step is ``h = tanh(w_ih @ x + b_ih + w_hh @ h + b_hh)``. With ``D`` directions (1 or 2).

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the state, ``H``.
        num_layers: Layers, each reading the outputs of the one below.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: Whether to have the two biases.
        batch_first: Whether the batch is the first axis of input and output.
        dropout: Probability with which an output is zeroed between layers, in training.
        bidirectional: Whether to read the sequence backwards as well.
        proj_size: Refused, as torch does.
        dtype: Dtype of the parameters; JAX's default float when None.

    Shape:
        input: ``(L, N, input_size)``, ``(N, L, input_size)`` with ``batch_first``,
        ``(L, input_size)``, or a packed sequence. ``hx``: None for zeros, or
        ``(D * num_layers, N, H)``, without ``N`` for one sequence. Returns ``(output, h)`` with an
        output like the input, of size ``D * H``.

    Raises:
        ValueError: For a size or probability out of its range, another nonlinearity, or a projection;
            in a call, for an input of another dtype than the weights or with other axes.
        TypeError: For an option of the wrong type.
        RuntimeError: In a call, when the sizes do not fit.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: None = None,
        dtype: Any = None,
    ):
        _check_no_projection(proj_size)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: jax.Array | None = None) -> tuple[Any, jax.Array]:
        """``(output, h)``."""
        return self._run(rnn_tanh if self.mode == "RNN_TANH" else rnn_relu, input, hx)


class GRU(RNNBase):
    """Gated recurrent units over a sequence. Torch's name: ``torch.nn.GRU``.

    The three row blocks of a weight are the reset, update and new gate.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the state, ``H``.
        num_layers: Layers, each reading the outputs of the one below.
        bias: Whether to have the two biases.
        batch_first: Whether the batch is the first axis of input and output.
        dropout: Probability with which an output is zeroed between layers, in training.
        bidirectional: Whether to read the sequence backwards as well.
        proj_size: Refused, as torch does.
        dtype: Dtype of the parameters; JAX's default float when None.

    Shape:
        As :class:`RNN`.

    Raises:
        ValueError: For a size or probability out of its range, or a projection; in a call, for an
            input of another dtype than the weights or with other axes.
        TypeError: For an option of the wrong type.
        RuntimeError: In a call, when the sizes do not fit.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: None = None,
        dtype: Any = None,
    ):
        _check_no_projection(proj_size)
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            dtype=dtype,
        )

    def forward(self, input: Any, hx: jax.Array | None = None) -> tuple[Any, jax.Array]:
        """``(output, h)``."""
        return self._run(gru, input, hx)


class LSTM(RNNBase):
    """Long short-term memory over a sequence. Torch's name: ``torch.nn.LSTM``.

    With ``D`` directions (1 or 2), ``H = hidden_size`` and ``P = proj_size or H``. The four row
    blocks of a weight are the input, forget, cell and output gates.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the cell state.
        num_layers: Layers, each reading the outputs of the one below.
        bias: Whether to have the two biases.
        batch_first: Whether the batch is the first axis of input and output.
        dropout: Probability with which an output is zeroed between layers, in training.
        bidirectional: Whether to read the sequence backwards as well.
        proj_size: Project the hidden state to this size; 0 does not.
        dtype: Dtype of the parameters; JAX's default float when None.

    Shape:
        input: ``(L, N, input_size)``, ``(N, L, input_size)`` with ``batch_first``,
        ``(L, input_size)``, or a packed sequence. ``hx``: None for zeros, or ``(h, c)`` of shapes
        ``(D * num_layers, N, P)`` and ``(D * num_layers, N, H)``, both without ``N`` for one
        sequence. Returns ``(output, (h, c))`` with an output like the input, of size ``D * P``.

    Raises:
        ValueError: For a size or probability out of its range; in a call, for an input of another
            dtype than the weights or with other axes.
        TypeError: For an option of the wrong type.
        RuntimeError: In a call, when the sizes do not fit.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        dtype: Any = None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            dtype,
        )

    def forward(
        self, input: Any, hx: tuple[jax.Array, jax.Array] | None = None
    ) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        """``(output, (h, c))``."""
        return self._run(lstm, input, hx, proj_size=self.proj_size)
