"""Losses as layers. Their class weights are buffers, and so part of a ``state_dict``, as in torch."""

import warnings
from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)


class _Loss(Module):
    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = _legacy_reduction(size_average, reduce)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


def _legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that torch's two deprecated arguments stand for."""
    if reduce is not None and not reduce:
        reduction = "none"
    else:
        reduction = "sum" if size_average is not None and not size_average else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
        stacklevel=5,
    )
    return reduction


class L1Loss(_Loss):
    """Absolute differences. Torch's name: ``torch.nn.L1Loss``.

    Arguments, shapes and errors as :class:`MSELoss`.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """Squared differences. Torch's name: ``torch.nn.MSELoss``.

    Args:
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return mse_loss(input, target, reduction=self.reduction)


class NLLLoss(_WeightedLoss):
    """Negative log likelihood of the target classes. Torch's name: ``torch.nn.NLLLoss``.

    Args:
        weight: ``(C,)``: the weight of each class; a buffer.
        size_average: Deprecated in torch; warns.
        ignore_index: A target that does not count.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Log-probabilities ``(N, C, *)`` or ``(C,)`` and classes ``(N, *)`` or ``()`` to a scalar, or
        to the shape of the classes with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction or batches of different sizes.
        RuntimeError: In a call, when other sizes do not fit.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits. Torch's name: ``torch.nn.CrossEntropyLoss``.

    Args:
        weight: ``(C,)``: the weight of each class; a buffer.
        size_average: Deprecated in torch; warns.
        ignore_index: A target class that does not count.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.
        label_smoothing: How much of the target is spread over all classes, in [0, 1].

    Shape:
        Logits ``(N, C, *)`` or ``(C,)``, and classes ``(N, *)`` or ``()`` or probabilities like the
        logits, to a scalar, or to the shape of the classes with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction or batches of different sizes.
        RuntimeError: In a call, when other sizes do not fit.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities. Torch's name: ``torch.nn.BCELoss``.

    Args:
        weight: Multiplies the loss of each element; broadcasts to the input; a buffer.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction or shapes that differ.
    """

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits. Torch's name: ``torch.nn.BCEWithLogitsLoss``.

    Args:
        weight: Multiplies the loss of each element; broadcasts to the input; a buffer.
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.
        pos_weight: Weight of the positive targets; broadcasts to the input; a buffer.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction or shapes that differ.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Any = None,
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )
