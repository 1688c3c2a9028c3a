"""Sums, means and maxima over bags of rows of a table."""

from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn._construction import draws_again
from purestate.nn.embedding import draw_rows, renormalized
from purestate.nn.functional._embedding_bag import embedding_bag


__all__ = ["EmbeddingBag"]


class EmbeddingBag(Module):
    """Look up rows of a table and reduce them bag by bag. Torch's name: ``torch.nn.EmbeddingBag``.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The size of a row.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up, in the
            weight too: a call gives the model a new weight, as that of :class:`Embedding` does.
        norm_type: The ``p`` of that norm.
        scale_grad_by_freq: Divide a row's gradient by the number of times it was looked up. Not
            for ``'max'``.
        mode: ``'sum'``, ``'mean'`` or ``'max'``.
        sparse: Accepted for torch's sake, not with ``'max'``; gradients are always dense.
        _weight: The table itself, as ``from_pretrained`` passes it.
        include_last_offset: Whether a last offset says where the last bag ends.
        padding_idx: A row that is zero at first and that no bag contains; negative counts from the
            end.
        dtype: Dtype of the table; JAX's default float when None.

    Attributes:
        weight: ``(num_embeddings, embedding_dim)``, standard normal.

    Shape:
        Integers ``(B, N)``, or ``(N,)`` with offsets ``(B,)``, to ``(B, embedding_dim)`` in the
        weight's dtype.

    Raises:
        AssertionError: When ``padding_idx`` is outside the table, or ``_weight`` has another shape.
        ValueError: In a call, for shapes, modes and options that do not fit together.
        RuntimeError: In a call, for an index outside the table, where the indices are known; under
            ``jit`` such an index gives NaN.
    """

    weight: Any

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if padding_idx is not None:
            if not (-num_embeddings <= padding_idx < num_embeddings or padding_idx == 0):
                raise AssertionError("padding_idx must be within num_embeddings")
            padding_idx = padding_idx + num_embeddings if padding_idx < 0 else padding_idx
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, dtype=dtype))
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            # from_pretrained passes a parameter, which knows whether it trains.
            self.weight = Parameter(_weight, getattr(_weight, "requires_grad", True))
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    @draws_again
    def reset_parameters(self) -> None:
        """Set how the table is drawn."""
        draw_rows(self.weight, self.padding_idx)

    def forward(
        self,
        input: jax.Array,
        offsets: jax.Array | None = None,
        per_sample_weights: jax.Array | None = None,
    ) -> jax.Array:
        """The reduced rows of each bag."""
        return embedding_bag(
            input,
            self.weight if self.max_norm is None else renormalized(self, input),
            offsets,
            scale_grad_by_freq=self.scale_grad_by_freq,
            mode=self.mode,
            sparse=self.sparse,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        """As torch prints it."""
        text = f"{self.num_embeddings!r}, {self.embedding_dim!r}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm!r}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type!r}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq!r}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx!r}"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> "EmbeddingBag":
        """A layer with this table, which does not train unless ``freeze=False``.

        Args:
            embeddings: ``(num_embeddings, embedding_dim)``.
            freeze: Whether the table does not train.
            max_norm: As in the constructor.
            norm_type: As in the constructor.
            scale_grad_by_freq: As in the constructor.
            mode: As in the constructor.
            sparse: As in the constructor.
            include_last_offset: As in the constructor.
            padding_idx: As in the constructor; the row is left as it is.

        Raises:
            AssertionError: When the table is not two-dimensional.
        """
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=Parameter(embeddings, requires_grad=not freeze),
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
