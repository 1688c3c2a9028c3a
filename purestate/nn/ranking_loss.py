"""Losses of comparisons as layers: of pairs that belong together or not, of two scores, of triples."""

from collections.abc import Callable

import jax

from purestate.nn._loss_bases import _Loss
from purestate.nn.distance import PairwiseDistance
from purestate.nn.functional._ranking import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)


__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _MarginLoss(_Loss):
    """A loss with a margin of 0 by default."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """The cosine of two vectors. Torch's name: ``torch.nn.CosineEmbeddingLoss``.

    Args:
        margin: The cosine below which vectors are far enough apart.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays ``(N, D)`` or ``(D,)``, and 1 for pairs that belong together or -1 for those that
        do not, ``(N,)`` or ``()``, to a scalar, or to the shape of the latter with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, when shapes do not fit.
    """

    def forward(self, input1: jax.Array, input2: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class HingeEmbeddingLoss(_MarginLoss):
    """The distance of a pair. Torch's name: ``torch.nn.HingeEmbeddingLoss``.

    Args:
        margin: The distance that is far enough.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Distances, and 1 for pairs that belong together or -1 for those that do not, in one shape,
        to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """Which of two scores should be higher. Torch's name: ``torch.nn.MarginRankingLoss``.

    Args:
        margin: The difference that is large enough.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays of scores, and 1 where the first or -1 where the second should be higher, in one
        shape, to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, when shapes do not fit.
    """

    def forward(self, input1: jax.Array, input2: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """How much closer the positive is than the negative. Torch's name: ``torch.nn.TripletMarginLoss``.

    Args:
        margin: How much it should be; above 0.
        p: The ``p`` of the norm.
        eps: Is added to the differences.
        swap: Take the distance of positive and negative where it is the smaller one.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Three arrays ``(N, D)`` or ``(D,)`` to a scalar, or to ``(N,)`` or ``()`` with ``'none'``.

    Raises:
        ValueError: For a margin that is not positive; in a call, for an unknown reduction.
        RuntimeError: In a call, when shapes do not fit.
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        _check_margin("TripletMarginLoss", margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: jax.Array, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """The loss."""
        return triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """:class:`TripletMarginLoss` with a distance of one's own.

    Torch's name: ``torch.nn.TripletMarginWithDistanceLoss``.

    Args:
        distance_function: From two arrays to their distances: a function, or a module, which may
            have parameters; a :class:`PairwiseDistance` for None.
        margin: How much closer the positive should be; above 0.
        swap: Take the distance of positive and negative where it is the smaller one.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Three arrays that the distance takes, with the same number of axes, to a scalar, or to the
        shape of the distances with ``'none'``.

    Raises:
        ValueError: For a margin that is not positive; in a call, for an unknown reduction.
        RuntimeError: In a call, when shapes do not fit.
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        super().__init__(None, None, reduction)
        _check_margin("TripletMarginWithDistanceLoss", margin)
        self.distance_function = (
            distance_function if distance_function is not None else PairwiseDistance()
        )
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: jax.Array, positive: jax.Array, negative: jax.Array) -> jax.Array:
        """The loss."""
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def _check_margin(name: str, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"{name}: expected margin to be greater than 0, got {margin} instead")
