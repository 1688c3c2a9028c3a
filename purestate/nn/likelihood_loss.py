"""Losses of distributions as layers: how unlikely a target is under what the input describes."""

import jax

from purestate.nn._loss_bases import _Loss
from purestate.nn.functional._likelihood import gaussian_nll_loss, kl_div, poisson_nll_loss


__all__ = ["GaussianNLLLoss", "KLDivLoss", "PoissonNLLLoss"]


class GaussianNLLLoss(_Loss):
    """Of a target drawn from a Gaussian. Torch's name: ``torch.nn.GaussianNLLLoss``.

    Args:
        full: Add the constant term.
        eps: The smallest variance.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Means and samples ``(*)``, and variances in the same shape, without its last axis or with
        one axis of size 1, or one number, to a scalar, or to ``(*)`` with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction, or variances that are negative or do not
            fit.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: jax.Array, target: jax.Array, var: jax.Array | float) -> jax.Array:
        """The loss."""
        return gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class PoissonNLLLoss(_Loss):
    """Of a target drawn from a Poisson distribution. Torch's name: ``torch.nn.PoissonNLLLoss``.

    Args:
        log_input: Whether the input is the logarithm of the expected count, or the count itself.
        full: Add Stirling's approximation of the logarithm of the target's factorial.
        size_average: Deprecated in torch; warns.
        eps: Keeps the logarithm of an expected count of 0 finite.
        reduce: Deprecated in torch; warns.
        reduction: ``'mean'``, ``'sum'`` or ``'none'``.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class KLDivLoss(_Loss):
    """The divergence of two distributions. Torch's name: ``torch.nn.KLDivLoss``.

    Args:
        size_average: Deprecated in torch; warns.
        reduce: Deprecated in torch; warns.
        reduction: ``'batchmean'``, ``'sum'``, ``'none'``, or ``'mean'``, over all elements, which
            warns in a call.
        log_target: Whether the target is log-probabilities, as the input is.

    Shape:
        Two arrays of one shape to a scalar, or to that shape with ``'none'``.

    Raises:
        ValueError: In a call, for an unknown reduction.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: jax.Array, target: jax.Array) -> jax.Array:
        """The loss."""
        return kl_div(input, target, reduction=self.reduction, log_target=self.log_target)
