"""The layers of a transformer: attention blocks and a feed-forward network, each with a residual.

Each block is normalised after its sum, as in "Attention Is All You Need", or before it with
``norm_first``. Torch's inference fast path has no counterpart: there is one path.
"""

from collections.abc import Callable
from typing import Any

import jax

from purestate._module import Module
from purestate.nn.activation import GELU
from purestate.nn.dropout import Dropout
from purestate.nn.functional._activation import gelu
from purestate.nn.functional._multi_head_checks import additive_mask
from purestate.nn.functional._rectifier import relu
from purestate.nn.linear import Linear
from purestate.nn.multihead_attention import MultiheadAttention
from purestate.nn.normalization import LayerNorm
from purestate.nn.rectifier import ReLU


__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]


Activation = str | Callable[[jax.Array], jax.Array]
Mask = jax.Array | None


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network. Torch's name: ``torch.nn.TransformerEncoderLayer``.

    Args:
        d_model: Features of the input, ``E``.
        nhead: Number of heads, a divisor of ``d_model``.
        dim_feedforward: Features between the two feed-forward maps.
        dropout: Probability of all dropouts, that of the attention weights included.
        activation: ``"relu"``, ``"gelu"`` or a function of one array.
        layer_norm_eps: ``eps`` of the normalisations.
        batch_first: Whether the batch is the first axis.
        norm_first: Whether to normalise before each block instead of after it.
        bias: Whether the linear maps and normalisations have biases.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        self_attn: The :class:`MultiheadAttention`.
        linear1: ``E`` to ``dim_feedforward``.
        linear2: ``dim_feedforward`` to ``E``.
        norm1: The :class:`LayerNorm` of the attention block.
        norm2: That of the feed-forward block.

    Shape:
        ``(S, N, E)``, ``(N, S, E)`` with ``batch_first``, or ``(S, E)``, to the same shape.

    Raises:
        RuntimeError: Another ``activation`` by name.
        MissingRngError: In a training call with dropout, without ``rng``.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        options = {"bias": bias, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, **options
        )
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        activation = _activation(activation)
        if activation is relu or isinstance(activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif activation is gelu or isinstance(activation, GELU):
            self.activation_relu_or_gelu = 2
        else:
            self.activation_relu_or_gelu = 0
        self.activation = activation

    def forward(
        self,
        src: jax.Array,
        src_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool = False,
    ) -> jax.Array:
        """The encoded sequence.

        Args:
            src: The sequence.
            src_mask: ``(S, S)`` or ``(N * nhead, S, S)``: True hides; numbers are added to scores.
            src_key_padding_mask: ``(N, S)`` or ``(S,)``: True hides a position; numbers are added.
            is_causal: A hint that ``src_mask`` is the causal mask, which must be given too.
        """
        names = ("src_key_padding_mask", "src_mask")
        padding = additive_mask(src_key_padding_mask, names[0], src.dtype, src_mask, names[1])
        mask = additive_mask(src_mask, names[1], src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x: jax.Array, mask: Mask, padding: Mask, is_causal: bool = False) -> jax.Array:
        return self.dropout1(_attended(self.self_attn, x, x, mask, padding, is_causal))

    def _ff_block(self, x: jax.Array) -> jax.Array:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to a memory and a feed-forward network.

    Torch's name: ``torch.nn.TransformerDecoderLayer``.

    Args:
        d_model: Features of target and memory, ``E``.
        nhead: Number of heads, a divisor of ``d_model``.
        dim_feedforward: Features between the two feed-forward maps.
        dropout: Probability of all dropouts, that of the attention weights included.
        activation: ``"relu"``, ``"gelu"`` or a function of one array.
        layer_norm_eps: ``eps`` of the normalisations.
        batch_first: Whether the batch is the first axis.
        norm_first: Whether to normalise before each block instead of after it.
        bias: Whether the linear maps and normalisations have biases.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        self_attn: The :class:`MultiheadAttention` of the target to itself.
        multihead_attn: That of the target to the memory.
        linear1: ``E`` to ``dim_feedforward``.
        linear2: ``dim_feedforward`` to ``E``.
        norm1: The :class:`LayerNorm` of the first block.
        norm2: That of the second.
        norm3: That of the feed-forward block.

    Shape:
        Target ``(T, N, E)`` and memory ``(S, N, E)`` to ``(T, N, E)``; the batch first with
        ``batch_first``; both without ``N`` for one example.

    Raises:
        RuntimeError: Another ``activation`` by name.
        MissingRngError: In a training call with dropout, without ``rng``.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        options = {"bias": bias, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, **options
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, batch_first=batch_first, **options
        )
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: jax.Array,
        memory: jax.Array,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """The decoded sequence.

        Args:
            tgt: The target sequence.
            memory: The sequence to attend to.
            tgt_mask: ``(T, T)`` or ``(N * nhead, T, T)``: True hides; numbers are added to scores.
            memory_mask: ``(T, S)`` or ``(N * nhead, T, S)``, likewise.
            tgt_key_padding_mask: ``(N, T)`` or ``(T,)``: True hides a position; numbers are added.
            memory_key_padding_mask: ``(N, S)`` or ``(S,)``, likewise.
            tgt_is_causal: A hint that ``tgt_mask`` is the causal mask, which must be given too.
            memory_is_causal: Likewise for ``memory_mask``.
        """
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x: jax.Array, mask: Mask, padding: Mask, is_causal: bool = False) -> jax.Array:
        return self.dropout1(_attended(self.self_attn, x, x, mask, padding, is_causal))

    def _mha_block(
        self, x: jax.Array, memory: jax.Array, mask: Mask, padding: Mask, is_causal: bool = False
    ) -> jax.Array:
        return self.dropout2(_attended(self.multihead_attn, x, memory, mask, padding, is_causal))

    def _ff_block(self, x: jax.Array) -> jax.Array:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _attended(
    attention: MultiheadAttention,
    x: jax.Array,
    memory: jax.Array,
    mask: Mask,
    padding: Mask,
    is_causal: bool,
) -> jax.Array:
    return attention(
        x,
        memory,
        memory,
        attn_mask=mask,
        key_padding_mask=padding,
        need_weights=False,
        is_causal=is_causal,
    )[0]


def _activation(activation: Activation) -> Callable[[jax.Array], jax.Array]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return relu if activation == "relu" else gelu
