"""Instance normalisation: each channel of each example by its own mean and variance.

Without running statistics, which is the default, the layers do the same in training and in
evaluation. With them a training call assigns the moved statistics to the module's buffers, and
evaluation normalises by these. The counter ``num_batches_tracked`` is there, as in torch, and never
moves.
"""

from typing import Any

import jax

from purestate._warning import warn
from purestate.nn.batchnorm import _NormBase
from purestate.nn.functional._norm import instance_norm


__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    _unbatched: int
    """The axes of an input without ``N``."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, bias=bias)

    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input; with tracking, in training, new statistics for the call to return."""
        self._check_input_dim(input)
        self._check_channels(input)
        batched = input.ndim > self._unbatched
        own = self.training or not self.track_running_stats
        output, mean, var = instance_norm(
            input if batched else input[None],
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            own,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        if own and mean is not None:
            self.running_mean = mean
            self.running_var = var
        return output if batched else output[0]

    def upgrade_state_dict(self, state: dict[str, Any], version: int | None) -> dict[str, Any]:
        """Entries without a version may hold statistics that a layer without tracking refuses."""
        names = [name for name in ("running_mean", "running_var") if name in state]
        if version is None and names and not self.track_running_stats:
            cls = type(self).__name__
            listed = " and ".join(f'"{name}"' for name in names)
            raise RuntimeError(
                f"Unexpected running stats buffer(s) {listed} for {cls} with "
                "track_running_stats=False. If state_dict is a checkpoint saved before 0.4.0, this "
                f"may be expected because {cls} does not track running stats by default since 0.4.0. "
                "Please remove these keys from state_dict. If the running stats are actually needed, "
                f"instead set track_running_stats=True in {cls} to enable them. See the documentation "
                f"of {cls} for details."
            )
        return super().upgrade_state_dict(state, version)

    def _check_input_dim(self, input: jax.Array) -> None:
        axes = self._unbatched
        if input.ndim not in (axes, axes + 1):
            raise ValueError(f"expected {axes}D or {axes + 1}D input (got {input.ndim}D input)")

    def _check_channels(self, input: jax.Array) -> None:
        axis = input.ndim - self._unbatched
        if input.shape[axis] == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={axis} to match num_features "
                f"({self.num_features}), but got: {input.shape[axis]}."
            )
        warn(
            f"input's size at dim={axis} does not match num_features. "
            "You can silence this warning by not passing in num_features, "
            "which is not used because affine=False",
        )


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each example over one axis.

    Torch's name: ``torch.nn.InstanceNorm1d``.

    Args:
        num_features: The number of channels ``C``.
        eps: Added to the variance.
        momentum: Weight of the new value in the running statistics; None leaves them as they are.
        affine: Whether to have a weight (and a bias) per channel.
        track_running_stats: Whether to keep running statistics and to use them in evaluation.
        dtype: Dtype of the parameters and statistics; JAX's default float when None.
        bias: Whether to have a bias, with ``affine``.

    Attributes:
        weight: ``(C,)`` or None, ones at first.
        bias: ``(C,)`` or None, zeros at first.
        running_mean: ``(C,)`` or None: a buffer, zeros at first.
        running_var: ``(C,)`` or None: a buffer, ones at first; holds the unbiased variance.
        num_batches_tracked: ``()`` or None: a buffer that stays 0.

    Shape:
        ``(N, C, L)`` or ``(C, L)`` to the same shape and dtype.

    Raises:
        ValueError: In a call, for an input with other axes, with one value per channel, or (with
            ``affine``) with other channels; without ``affine`` other channels are a warning. For a
            negative eps.
        RuntimeError: In a call, when the sizes of the statistics do not fit or the dtypes differ.
    """

    _unbatched = 2


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each example over two axes.

    Torch's name: ``torch.nn.InstanceNorm2d``.

    Arguments, attributes and errors as :class:`InstanceNorm1d`.

    Shape:
        ``(N, C, H, W)`` or ``(C, H, W)`` to the same shape and dtype.
    """

    _unbatched = 3


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each example over three axes.

    Torch's name: ``torch.nn.InstanceNorm3d``.

    Arguments, attributes and errors as :class:`InstanceNorm1d`.

    Shape:
        ``(N, C, D, H, W)`` or ``(C, D, H, W)`` to the same shape and dtype.
    """

    _unbatched = 4
