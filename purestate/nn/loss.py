"""Losses of numbers and of classes as layers.

Their class weights are buffers, and so part of a ``state_dict``, as in torch.
"""

from typing import Any

import jax

from purestate._warning import warn
from purestate.nn._loss_bases import _Loss, _WeightedLoss
from purestate.nn.functional._loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    nll_loss,
)
from purestate.nn.functional._regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss


__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "NLLLoss2d",
    "SmoothL1Loss",
]


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


class SmoothL1Loss(_Loss):
    """Squared differences near zero, absolute ones beyond. Torch's name: ``torch.nn.SmoothL1Loss``.

    Args:
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.
        beta: Where the parabola ends; its slope is 1 there. 0 is :class:`L1Loss`.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, for a negative beta.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared differences near zero, absolute ones beyond. Torch's name: ``torch.nn.HuberLoss``.

    Args:
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.
        delta: Where the parabola ends, and its slope there.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        TypeError: If ``delta`` is not a number.
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, for a delta that is not positive.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        if not isinstance(delta, float | int):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return huber_loss(input, target, reduction=self.reduction, delta=self.delta)


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


class NLLLoss2d(NLLLoss):
    """Torch's old name of :class:`NLLLoss`, ``torch.nn.NLLLoss2d``; warns.

    Arguments, shapes and errors as :class:`NLLLoss`.
    """

    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement "
            "and see https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details.",
            FutureWarning,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


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
