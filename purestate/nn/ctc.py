"""The loss of a sequence whose labels are not aligned to it."""

import jax

from purestate.nn._loss_bases import _Loss
from purestate.nn.functional._ctc import ctc_loss


__all__ = ["CTCLoss"]


class CTCLoss(_Loss):
    """Connectionist temporal classification. Torch's name: ``torch.nn.CTCLoss``.

    Args:
        blank: The class that stands for no label.
        reduction: ``'mean'`` (each loss over the length of its target, and the mean of these),
            ``'sum'`` or ``'none'``.
        zero_infinity: Whether the loss and the gradient of a target that is too long for its input
            are zero; infinity and NaN otherwise.

    Shape:
        Log-probabilities ``(T, N, C)``, targets ``(N, S)`` or ``(sum of target lengths,)``, and two
        sets of ``N`` lengths, arrays or tuples of ints, to a scalar, or to ``(N,)`` with ``'none'``.
        One example is ``(T, C)`` and ``(S,)`` with lengths ``()`` or ``(1,)``.

    Raises:
        ValueError: In a call, for an unknown reduction.
        RuntimeError: In a call, when sizes or lengths do not fit.
        NotImplementedError: In a call, for log-probabilities that are neither float32 nor float64.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self,
        log_probs: jax.Array,
        targets: jax.Array,
        input_lengths: jax.Array,
        target_lengths: jax.Array,
    ) -> jax.Array:
        """The loss."""
        return ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
