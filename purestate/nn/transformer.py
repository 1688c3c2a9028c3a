"""Stacks of transformer layers, and the transformer of "Attention Is All You Need" made of two.

A stack copies the layer that it is given. Torch's copies start with equal numbers; so do these if
the layer has values. If it has none yet, each copy is drawn by its own name, like any other layer.

A causal mask is recognised where its values are known, as torch does it; where they are not, under
``jit``, the mask is added like any other. The result is the same, and ``is_causal=True`` says it
either way. Nested tensors have no counterpart.
"""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._module import Module
from purestate._scan import DEEP, in_turn
from purestate._warning import warn
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.container import ModuleList
from purestate.nn.functional._known import known
from purestate.nn.functional._multi_head_checks import additive_mask
from purestate.nn.functional._rectifier import relu
from purestate.nn.normalization import LayerNorm
from purestate.nn.transformer_layers import (
    Activation,
    Mask,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)


__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]


class TransformerEncoder(Module):
    """A stack of encoder layers. Torch's name: ``torch.nn.TransformerEncoder``.

    Args:
        encoder_layer: The layer, which is copied ``num_layers`` times.
        num_layers: The number of layers.
        norm: A module for the end of the stack, or None.
        enable_nested_tensor: Accepted and stored, with torch's warning; there are no nested tensors.
        mask_check: Accepted and stored.

    Attributes:
        layers: The :class:`ModuleList` of the layers.
        norm: As given.

    Shape:
        As the layer's.
    """

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        reason = _why_not_nested(encoder_layer)
        if enable_nested_tensor and reason:
            warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}",
            )
            self.use_nested_tensor = False

    def forward(
        self,
        src: jax.Array,
        mask: Mask = None,
        src_key_padding_mask: Mask = None,
        is_causal: bool | None = None,
    ) -> jax.Array:
        """The sequence through all layers.

        Args:
            src: The sequence.
            mask: ``src_mask`` of the layers.
            src_key_padding_mask: As the layers'.
            is_causal: A hint that ``mask`` is the causal mask; None looks, where values are known.
        """
        names = ("src_key_padding_mask", "mask")
        padding = additive_mask(src_key_padding_mask, names[0], src.dtype, mask, names[1])
        mask = additive_mask(mask, names[1], src.dtype)
        length = _length(src, self.layers[0].self_attn.batch_first)
        is_causal = _is_causal(mask, is_causal, length)
        options = {"src_mask": mask, "is_causal": is_causal, "src_key_padding_mask": padding}
        output = in_turn(list(self.layers), src, (), options, least=DEEP)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """A stack of decoder layers. Torch's name: ``torch.nn.TransformerDecoder``.

    Args:
        decoder_layer: The layer, which is copied ``num_layers`` times.
        num_layers: The number of layers.
        norm: A module for the end of the stack, or None.

    Attributes:
        layers: The :class:`ModuleList` of the layers.
        norm: As given.

    Shape:
        As the layer's.
    """

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: jax.Array,
        memory: jax.Array,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """The target through all layers.

        The arguments are the layers'; ``tgt_is_causal=None`` looks at ``tgt_mask``, where its
        values are known.
        """
        length = _length(tgt, self.layers[0].self_attn.batch_first)
        tgt_is_causal = _is_causal(tgt_mask, tgt_is_causal, length)
        options = {
            "tgt_mask": tgt_mask,
            "memory_mask": memory_mask,
            "tgt_key_padding_mask": tgt_key_padding_mask,
            "memory_key_padding_mask": memory_key_padding_mask,
            "tgt_is_causal": tgt_is_causal,
            "memory_is_causal": memory_is_causal,
        }
        output = in_turn(list(self.layers), tgt, (memory,), options, least=DEEP)
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder. Torch's name: ``torch.nn.Transformer``.

    Args:
        d_model: Features of both sequences, ``E``.
        nhead: Number of heads, a divisor of ``d_model``.
        num_encoder_layers: Layers of the encoder.
        num_decoder_layers: Layers of the decoder.
        dim_feedforward: Features between the two feed-forward maps of a layer.
        dropout: Probability of all dropouts.
        activation: ``"relu"``, ``"gelu"`` or a function of one array.
        custom_encoder: A module to use as the encoder.
        custom_decoder: A module to use as the decoder.
        layer_norm_eps: ``eps`` of the normalisations.
        batch_first: Whether the batch is the first axis.
        norm_first: Whether to normalise before each block instead of after it.
        bias: Whether the linear maps and normalisations have biases.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        encoder: The :class:`TransformerEncoder`, with a :class:`LayerNorm` at its end.
        decoder: The :class:`TransformerDecoder`, likewise.

    Shape:
        Source ``(S, N, E)`` and target ``(T, N, E)`` to ``(T, N, E)``; the batch first with
        ``batch_first``; both without ``N`` for one example.

    Raises:
        RuntimeError: In a call, when batches or features differ.
        MissingRngError: In a training call with dropout, without ``rng``.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ):
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        order = (batch_first, norm_first, bias, dtype)
        norm = {"eps": layer_norm_eps, "bias": bias, "dtype": dtype}
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(*layer, *order),
                num_encoder_layers,
                LayerNorm(d_model, **norm),
            )
        self.encoder = custom_encoder
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(*layer, *order),
                num_decoder_layers,
                LayerNorm(d_model, **norm),
            )
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    @draws_again
    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: Any = None) -> jax.Array:
        """The causal mask ``(sz, sz)``: -inf above the diagonal, else 0.

        Its values are known under ``jit`` too.
        """
        with jax.ensure_compile_time_eval():
            return jnp.asarray(_causal_mask(sz, jnp.result_type(float) if dtype is None else dtype))

    def forward(
        self,
        src: jax.Array,
        tgt: jax.Array,
        src_mask: Mask = None,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> jax.Array:
        """The decoded target; masks as in the encoder and the decoder."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )


def _copies(layer: Any, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


def _why_not_nested(layer: Any) -> str:
    """Why torch would not use nested tensors with this layer, in its words; empty if it would."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = {
        "norm_first was True": layer.norm_first,
        "self_attn.batch_first was not True"
        "(use batch_first for better inference performance)": not attention.batch_first,
        "self_attn._qkv_same_embed_dim was not True": not attention._qkv_same_embed_dim,
        "self_attn was passed bias=False": attention.in_proj_bias is None,
        "activation_relu_or_gelu was not True": not layer.activation_relu_or_gelu,
        "norm1.eps was not equal to encoder_layer.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        "self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((f"encoder_layer.{text}" for text, holds in reasons.items() if holds), "")


def _length(sequence: jax.Array, batch_first: bool) -> int:
    return sequence.shape[1 if sequence.ndim == 3 and batch_first else 0]


def _causal_mask(size: int, dtype: Any) -> np.ndarray:
    return np.triu(np.full((size, size), -np.inf).astype(dtype), 1)


def _is_causal(mask: Mask, hint: bool | None, size: int) -> bool:
    """The hint, or without one whether the mask is known to be the causal one."""
    if hint is not None or mask is None:
        return bool(hint)
    if mask.shape != (size, size) or not known(mask):
        return False
    return np.array_equal(np.asarray(mask), _causal_mask(size, mask.dtype))
