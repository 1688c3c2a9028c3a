"""Multi-head attention as a layer: its parameters, and one call of the functional."""

from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._multi_head import multi_head_attention_forward
from purestate.nn.functional._multi_head_checks import check_ranks
from purestate.nn.linear import Linear


__all__ = ["MultiheadAttention"]


class NonDynamicallyQuantizableLinear(Linear):
    """A ``Linear`` under the name that torch prints for ``out_proj``."""


class MultiheadAttention(Module):
    """Attention in parallel heads. Torch's name: ``torch.nn.MultiheadAttention``.

    Args:
        embed_dim: Features of the query and of the output, ``E``.
        num_heads: Number of heads, a divisor of ``embed_dim``.
        dropout: Probability to drop an attention weight in training.
        bias: Whether the projections have biases.
        add_bias_kv: Whether to learn one more key and value.
        add_zero_attn: Whether to add a key and a value of zeros.
        kdim: Features of the key; ``embed_dim`` when None.
        vdim: Features of the value; ``embed_dim`` when None.
        batch_first: Whether the batch is the first axis of query, key, value and output.
        dtype: Dtype of the parameters; JAX's default float when None.

    Attributes:
        in_proj_weight: ``(3 * E, E)``: the projections of query, key and value; None with another
            ``kdim`` or ``vdim``.
        q_proj_weight: ``(E, E)`` with another ``kdim`` or ``vdim``, else None.
        k_proj_weight: ``(E, kdim)`` or None, likewise.
        v_proj_weight: ``(E, vdim)`` or None, likewise.
        in_proj_bias: ``(3 * E,)`` or None, zeros at first.
        out_proj: The ``Linear`` that follows the heads; its bias is zero at first.
        bias_k: ``(1, 1, E)`` or None: the learned key.
        bias_v: ``(1, 1, E)`` or None: its value.

    Shape:
        Query ``(L, N, E)``, key ``(S, N, kdim)`` and value ``(S, N, vdim)`` to ``(L, N, E)``; the
        first two axes exchanged with ``batch_first``; all without ``N`` for one example.

    Raises:
        ValueError: A size that is not positive.
        AssertionError: Heads that do not divide ``embed_dim``; in a call, sizes that do not fit.
        RuntimeError: In a call, a mask of the wrong size, or ``is_causal`` without a mask.
        MissingRngError: In a training call with dropout, without ``rng``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: Any = None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0,"
                f" got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def register(name: str, wanted: bool, *shape: int) -> None:
            self.register_parameter(name, Parameter(empty(*shape, dtype=dtype)) if wanted else None)

        # Torch's order of registration, which is that of the state_dict.
        if self._qkv_same_embed_dim:
            register("in_proj_weight", True, 3 * embed_dim, embed_dim)
        register("q_proj_weight", not self._qkv_same_embed_dim, embed_dim, embed_dim)
        register("k_proj_weight", not self._qkv_same_embed_dim, embed_dim, self.kdim)
        register("v_proj_weight", not self._qkv_same_embed_dim, embed_dim, self.vdim)
        if not self._qkv_same_embed_dim:
            register("in_proj_weight", False)
        register("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        if add_bias_kv:
            register("bias_k", True, 1, 1, embed_dim)
            register("bias_v", True, 1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    @draws_again
    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        key_padding_mask: jax.Array | None = None,
        need_weights: bool = True,
        attn_mask: jax.Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Attend.

        Pass one array as query, key and value (or as key and value) where they are the same: the
        projection is then one product.

        Args:
            query: ``(L, N, E)``, or as the class says.
            key: ``(S, N, kdim)``.
            value: ``(S, N, vdim)``.
            key_padding_mask: ``(N, S)`` or ``(S,)``: True hides a key; numbers are added to its
                scores.
            need_weights: Whether to return the attention weights; without is faster.
            attn_mask: ``(L, S)`` or ``(N * num_heads, L, S)``: True hides; numbers are added.
            average_attn_weights: Whether to return the mean of the weights over the heads.
            is_causal: A hint that ``attn_mask`` is the causal mask, which must be given too.

        Returns:
            The output and the weights after dropout: ``(N, L, S)``, ``(N, num_heads, L, S)`` when
            they are not averaged, either without ``N`` for one example, None when not needed.
        """
        # Before a key is asked for: the wrong input is the error, with a key and without.
        check_ranks(query, key, value, key_padding_mask, attn_mask, self.num_heads)
        draws = self.training and 0 < self.dropout < 1
        return multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first and query.ndim == 3,
            rng=self.next_key() if draws else None,
        )
