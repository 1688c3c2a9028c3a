"""One step of a recurrent network as a layer, for loops of one's own.

The weights are those of one layer in one direction, named without a layer: ``weight_ih``,
``weight_hh``, ``bias_ih``, ``bias_hh``, all uniform within ``1 / sqrt(hidden_size)``.
"""

import math
from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._recurrent_cells import (
    gru_cell,
    lstm_cell,
    rnn_relu_cell,
    rnn_tanh_cell,
)


__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """The constructor of every cell. Torch's name: ``torch.nn.RNNCellBase``.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the state.
        bias: Whether to have the two biases.
        num_chunks: How many blocks of ``hidden_size`` rows a weight has.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        weight_ih: ``(num_chunks * hidden_size, input_size)``.
        weight_hh: ``(num_chunks * hidden_size, hidden_size)``.
        bias_ih: ``(num_chunks * hidden_size,)`` or None.
        bias_hh: ``(num_chunks * hidden_size,)`` or None.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, dtype: Any = None
    ):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, dtype=dtype))
        if bias:
            self.bias_ih = Parameter(empty(rows, dtype=dtype))
            self.bias_hh = Parameter(empty(rows, dtype=dtype))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    @draws_again
    def reset_parameters(self) -> None:
        """Set how every parameter is drawn."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        """As torch prints it."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _weights(self) -> tuple[Any, ...]:
        """The parameters in the order of the functionals."""
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network. Torch's name: ``torch.nn.RNNCell``.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the state.
        bias: Whether to have the two biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        weight_ih: ``(hidden_size, input_size)``.
        weight_hh: ``(hidden_size, hidden_size)``.
        bias_ih: ``(hidden_size,)`` or None.
        bias_hh: ``(hidden_size,)`` or None.

    Shape:
        ``(N, input_size)`` or ``(input_size,)``, and a state of ``(N, hidden_size)`` or
        ``(hidden_size,)``, zeros if None, to the next state.

    Raises:
        ValueError: In a call, for an input or state of other axes.
        RuntimeError: In a call, when sizes or dtypes do not fit, or for another nonlinearity.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = None,
    ):
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: jax.Array, hx: jax.Array | None = None) -> jax.Array:
        """The next state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        step = rnn_tanh_cell if self.nonlinearity == "tanh" else rnn_relu_cell
        return step(input, hx, *self._weights())


class LSTMCell(RNNCellBase):
    """One step of an LSTM. Torch's name: ``torch.nn.LSTMCell``.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of ``h`` and of ``c``.
        bias: Whether to have the two biases.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        weight_ih: ``(4 * hidden_size, input_size)``: input, forget, cell and output gate.
        weight_hh: ``(4 * hidden_size, hidden_size)``.
        bias_ih: ``(4 * hidden_size,)`` or None.
        bias_hh: ``(4 * hidden_size,)`` or None.

    Shape:
        ``(N, input_size)`` or ``(input_size,)``, and ``(h, c)`` of ``(N, hidden_size)`` or
        ``(hidden_size,)`` each, zeros if None, to the next ``(h, c)``.

    Raises:
        ValueError: In a call, for an input or state of other axes.
        RuntimeError: In a call, when sizes or dtypes do not fit.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, num_chunks=4, dtype=dtype)

    def forward(
        self, input: jax.Array, hx: tuple[jax.Array, jax.Array] | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """The next ``(h, c)``."""
        return lstm_cell(input, hx, *self._weights())


class GRUCell(RNNCellBase):
    """One step of a GRU. Torch's name: ``torch.nn.GRUCell``.

    Args:
        input_size: Size of an input vector.
        hidden_size: Size of the state.
        bias: Whether to have the two biases.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        weight_ih: ``(3 * hidden_size, input_size)``: reset, update and new gate.
        weight_hh: ``(3 * hidden_size, hidden_size)``.
        bias_ih: ``(3 * hidden_size,)`` or None.
        bias_hh: ``(3 * hidden_size,)`` or None.

    Shape:
        As :class:`RNNCell`.

    Raises:
        ValueError: In a call, for an input or state of other axes.
        RuntimeError: In a call, when sizes or dtypes do not fit.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: jax.Array, hx: jax.Array | None = None) -> jax.Array:
        """The next state."""
        return gru_cell(input, hx, *self._weights())
