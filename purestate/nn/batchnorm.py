"""Batch normalisation: the layers whose ``forward`` has new state to return.

In training a call normalises by the statistics of its batch and assigns the moved running
statistics and the counter to the module's buffers; ``purestate.call`` returns the model that has
them. In evaluation it normalises by the running statistics and changes nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._abstract import AbstractArray, empty
from purestate._module import Module
from purestate._parameter import Parameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.functional._norm import batch_norm


__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


class _NormBase(Module):
    """What batch and instance normalisation share: parameters, statistics, and how they load."""

    _version = 2

    num_batches_tracked: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = Parameter(empty(num_features, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        tracked = {
            "running_mean": empty(num_features, dtype=dtype, init=init.zeros()),
            "running_var": empty(num_features, dtype=dtype, init=init.ones()),
            "num_batches_tracked": empty(dtype="int64", init=init.zeros()),
        }
        for name, value in tracked.items():
            self.register_buffer(name, value if track_running_stats else None)
        self.reset_parameters()

    @draws_again
    def reset_running_stats(self) -> None:
        """Set the running mean and the counter to zero and the running variance to one."""
        if self.track_running_stats:
            self.running_mean = empty(
                self.running_mean.shape, dtype=self.running_mean.dtype, init=init.zeros()
            )
            self.running_var = empty(
                self.running_var.shape, dtype=self.running_var.dtype, init=init.ones()
            )
            self.num_batches_tracked = empty(dtype="int64", init=init.zeros())

    @draws_again
    def reset_parameters(self) -> None:
        """Reset the running statistics; set the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def upgrade_state_dict(self, state: dict[str, Any], version: int | None) -> dict[str, Any]:
        """Entries older than version 2 have no counter: they get the one the module has now."""
        name = "num_batches_tracked"
        if not self.track_running_stats or name in state or (version is not None and version >= 2):
            return state
        count = self.num_batches_tracked
        if count is None or isinstance(count, AbstractArray):
            count = np.zeros((), np.int64)
        return {**state, name: count}

    def extra_repr(self) -> str:
        """As torch prints it."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _check_input_dim(self, input: jax.Array) -> None:
        raise NotImplementedError


class _BatchNorm(_NormBase):
    def forward(self, input: jax.Array) -> jax.Array:
        """The normalised input; in training, with new running statistics for the call to return."""
        self._check_input_dim(input)
        tracking = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if tracking and self.num_batches_tracked is not None:
            count = self.num_batches_tracked + 1
            self.num_batches_tracked = count
            if self.momentum is None:  # The average over all batches so far.
                momentum = 1.0 / count.astype(jnp.result_type(float))
        mean, var = self.running_mean, self.running_var
        if self.training and not tracking:
            mean = var = None
        from_batch = self.training or (mean is None and var is None)
        output, mean, var = self._normalised(input, mean, var, from_batch, momentum)
        if tracking and mean is not None:
            self.running_mean = mean
            self.running_var = var
        return output

    def _normalised(
        self, input: jax.Array, mean: Any, var: Any, from_batch: bool, momentum: Any
    ) -> tuple[jax.Array, Any, Any]:
        """The output and the moved statistics; what ``SyncBatchNorm`` computes over a group."""
        return batch_norm(input, mean, var, self.weight, self.bias, from_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over the batch and one axis. Torch's name: ``torch.nn.BatchNorm1d``.

    Args:
        num_features: The number of channels ``C``.
        eps: Added to the variance.
        momentum: Weight of the new value in the running statistics; None averages over all batches.
        affine: Whether to have a weight (and a bias) per channel.
        track_running_stats: Whether to keep running statistics; without, every call uses its batch.
        dtype: Dtype of the parameters and statistics; JAX's default float when None.
        bias: Whether to have a bias, with ``affine``.

    Attributes:
        weight: ``(C,)`` or None, ones at first.
        bias: ``(C,)`` or None, zeros at first.
        running_mean: ``(C,)`` or None: a buffer, zeros at first.
        running_var: ``(C,)`` or None: a buffer, ones at first; holds the unbiased variance.
        num_batches_tracked: ``()`` or None: a buffer, the training calls so far; int64 in files.

    Shape:
        ``(N, C)`` or ``(N, C, L)`` to the same shape and dtype.

    Raises:
        ValueError: In a call, for an input with other axes, training with one value per channel, or an
            eps that is negative, or zero in training.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
    """

    def _check_input_dim(self, input: jax.Array) -> None:
        if input.ndim not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.ndim}D input)")


class BatchNorm2d(_BatchNorm):
    """Normalise each channel over the batch and two axes. Torch's name: ``torch.nn.BatchNorm2d``.

    Arguments, attributes and errors as :class:`BatchNorm1d`.

    Shape:
        ``(N, C, H, W)`` to the same shape and dtype.
    """

    def _check_input_dim(self, input: jax.Array) -> None:
        if input.ndim != 4:
            raise ValueError(f"expected 4D input (got {input.ndim}D input)")


class BatchNorm3d(_BatchNorm):
    """Normalise each channel over the batch and three axes. Torch's name: ``torch.nn.BatchNorm3d``.

    Arguments, attributes and errors as :class:`BatchNorm1d`.

    Shape:
        ``(N, C, D, H, W)`` to the same shape and dtype.
    """

    def _check_input_dim(self, input: jax.Array) -> None:
        if input.ndim != 5:
            raise ValueError(f"expected 5D input (got {input.ndim}D input)")
