"""A table of vectors, looked up by index.

``max_norm`` is torch's one layer option that writes a parameter in ``forward``, in training and in
evaluation. Here the write is a return value like that of a buffer: ``renormalized`` gives the layer
its new weight, and ``purestate.call`` returns the model with it.
"""

from typing import Any

import jax

from purestate._abstract import empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate._running import renew
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._embedding import embedding, embedding_renorm


__all__ = ["Embedding"]


def draw_rows(weight: Any, padding_idx: int | None) -> None:
    """Set how a table is drawn: a standard normal, the padding row zero."""
    init.normal_(weight)
    if padding_idx is not None:
        weight.data = weight.data.update(init=init.zero_row(init.normal(), padding_idx))


def renormalized(layer: Any, input: jax.Array) -> jax.Array:
    """The layer's new weight, whose rows asked for are no longer than ``max_norm``."""
    weight = embedding_renorm(layer.weight, input, layer.max_norm, layer.norm_type)
    renew(layer, "weight", weight)
    return weight


class Embedding(Module):
    """Look up rows of a table. Torch's name: ``torch.nn.Embedding``.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The size of a row.
        padding_idx: A row that is zero at first and gets no gradient; negative counts from the end.
        max_norm: Rows with a larger norm are scaled down to it when they are looked up, in the
            weight too, in training and in evaluation: a call gives the model a new weight.
            ``y, model = purestate.call(model, x)`` returns it and ``model(x)`` refuses to lose it.
            ``purestate.apply`` returns no parameters: the lookups see the scaled rows, and the
            weight is scaled on the next lookup unless it is frozen, and so among the buffers.
        norm_type: The ``p`` of that norm.
        scale_grad_by_freq: Divide a row's gradient by the number of times it was looked up.
        sparse: Accepted for torch's sake; gradients are always dense.
        _weight: The table itself, as ``from_pretrained`` passes it.
        _freeze: Whether it does not train.
        dtype: Dtype of the table; JAX's default float when None.

    Attributes:
        weight: ``(num_embeddings, embedding_dim)``, standard normal.

    Shape:
        Integers ``(*)`` to ``(*, embedding_dim)``, in the weight's dtype.

    Raises:
        AssertionError: When ``padding_idx`` is outside the table, or ``_weight`` has another shape.
        IndexError: In a call, for an index outside the table, where the indices are known; under
            ``jit`` such an index gives NaN.
    """

    weight: Any

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        dtype: Any = None,
    ):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not (-num_embeddings <= padding_idx < num_embeddings or padding_idx == 0):
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx = padding_idx + num_embeddings if padding_idx < 0 else padding_idx
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            table = empty(num_embeddings, embedding_dim, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)
        self.sparse = sparse

    @draws_again
    def reset_parameters(self) -> None:
        """Set how the table is drawn."""
        draw_rows(self.weight, self.padding_idx)

    def forward(self, input: jax.Array) -> jax.Array:
        """The rows at these indices."""
        return embedding(
            input,
            self.weight if self.max_norm is None else renormalized(self, input),
            self.padding_idx,
            scale_grad_by_freq=self.scale_grad_by_freq,
            sparse=self.sparse,
        )

    def extra_repr(self) -> str:
        """As torch prints it."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        if self.sparse is not False:
            text += ", sparse=True"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> "Embedding":
        """A layer with this table, which does not train unless ``freeze=False``.

        Args:
            embeddings: ``(num_embeddings, embedding_dim)``.
            freeze: Whether the table does not train.
            padding_idx: As in the constructor; the row is left as it is.
            max_norm: As in the constructor.
            norm_type: As in the constructor.
            scale_grad_by_freq: As in the constructor.
            sparse: As in the constructor.

        Raises:
            AssertionError: When the table is not two-dimensional.
        """
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )
