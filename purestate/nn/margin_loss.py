"""Losses of classes by margin as layers. Their class weights are buffers."""

from typing import Any

import jax

from purestate.nn._loss_bases import _Loss, _WeightedLoss
from purestate.nn.functional._margin import (
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)


__all__ = ["MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "SoftMarginLoss"]


class MultiMarginLoss(_WeightedLoss):
    """A margin between one class and the others. Torch's name: ``torch.nn.MultiMarginLoss``.

    Args:
        p: 1 or 2: what the missing margin is raised to.
        margin: The difference that is large enough.
        weight: ``(C,)``: the weight of each class; a buffer.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Scores ``(N, C)`` or ``(C,)`` and classes ``(N,)`` or ``()`` to a scalar, or to the shape of
        the classes with ``'none'``.

    Raises:
        ValueError: For another ``p`` or a weight that has not one axis; in a call, for an unknown
            reduction.
        RuntimeError: In a call, when sizes do not fit.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead"
            )
        self.p = p
        self.margin = margin

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class MultiLabelMarginLoss(_Loss):
    """A margin of 1 between some classes and the others.

    Torch's name: ``torch.nn.MultiLabelMarginLoss``.

    Args:
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Scores ``(N, C)`` or ``(C,)`` and classes in the same shape, with -1 after the last one, to
        a scalar, or to ``(N,)`` or ``()`` with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, when sizes do not fit.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy of the logits of each class, averaged over the classes.

    Torch's name: ``torch.nn.MultiLabelSoftMarginLoss``.

    Args:
        weight: ``(C,)``: the weight of each class; a buffer.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays ``(N, C)`` to a scalar, or to ``(N,)`` with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """The logistic loss of two classes, 1 and -1. Torch's name: ``torch.nn.SoftMarginLoss``.

    Args:
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, when the target does not broadcast to the input.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return soft_margin_loss(input, target, reduction=self.reduction)
