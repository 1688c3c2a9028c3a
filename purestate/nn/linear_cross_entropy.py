"""Cross entropy with the linear map to its logits inside, as a layer."""

import math
from typing import Any

import jax

from purestate.nn._loss_bases import _WeightedLoss
from purestate.nn.functional._linear_cross_entropy import linear_cross_entropy
from purestate.nn.functional._linear_cross_entropy_options import (
    LinearCrossEntropyOptions as LinearCrossEntropyOptions,
)
from purestate.nn.linear import Linear


__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of a linear map of the input. Torch's name: ``torch.nn.LinearCrossEntropyLoss``.

    Args:
        in_features: Size of the last axis of the input.
        num_classes: The number of classes, ``C``.
        out_features: The axes of the loss beyond the batch.
        bias: Whether the linear map adds a bias.
        dtype: Dtype of the linear map; JAX's default float when None.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.
        weight: ``(C,)``: the weight of each class; a buffer.
        ignore_index: A target class that does not count; -100 when None. Not for probabilities.
        label_smoothing: How much of the target is spread over all classes, in [0, 1].
        options: Go through the batch in chunks, so that all logits never exist at once.

    Attributes:
        linear: :class:`Linear` with ``num_classes * prod(out_features)`` outputs.

    Shape:
        Inputs ``(N, in_features)`` or ``(in_features,)``, and classes ``(N, *out_features)`` or
        ``()`` or probabilities ``(N, C, *out_features)`` or ``(C,)``, to a scalar, or to the shape
        of the classes with ``'none'``.

    Raises:
        RuntimeError: For a weight of another size or a smoothing outside of [0, 1]; in a call, when
            sizes do not fit.
        ValueError: In a call, for an unknown reduction or batches of different sizes.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ):
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if label_smoothing < 0 or label_smoothing > 1.0:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight=weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        outputs = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, outputs, bias=bias, dtype=dtype)
        self.options = options

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        shape = (self.num_classes, *self.out_features)
        linear_bias = self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if linear_bias is None else linear_bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
