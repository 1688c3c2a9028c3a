"""Batch normalisation whose statistics are those of a whole group of devices.

Torch runs one process per device and names the group by a handle. Here one program runs over a mapped
axis, and the group is the axis's name: ``jax.shard_map`` over a mesh with an axis ``"data"`` and
``SyncBatchNorm(8, process_group="data")``.
"""

from typing import Any

import jax

from purestate._edit import edit
from purestate._lazy import LazyModuleMixin, become
from purestate._module import Module
from purestate._session import Open
from purestate.nn.batchnorm import _BatchNorm
from purestate.nn.functional._sync_batch_norm import sync_batch_norm


__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Normalise each channel over the batch of a whole group. Torch's name: ``torch.nn.SyncBatchNorm``.

    In training, inside of the mapped axis that ``process_group`` names, mean and variance are those
    of the group's whole batch, and so are the gradients. In evaluation nothing is exchanged.

    Args:
        num_features: The number of channels ``C``.
        eps: Added to the variance.
        momentum: Weight of the new value in the running statistics; None averages over all batches.
        affine: Whether to have a weight (and a bias) per channel.
        track_running_stats: Whether to keep running statistics; without, every call uses its batch.
        process_group: The name of the mapped axis, or a tuple of names. None is a group of one: the
            layer does what a BatchNorm does.
        dtype: Dtype of the parameters and statistics; JAX's default float when None.
        bias: Whether to have a bias, with ``affine``.

    Attributes:
        weight: ``(C,)`` or None, ones at first.
        bias: ``(C,)`` or None, zeros at first.
        running_mean: ``(C,)`` or None: a buffer, zeros at first.
        running_var: ``(C,)`` or None: a buffer, ones at first; holds the unbiased variance.
        num_batches_tracked: ``()`` or None: a buffer, the training calls so far; int64 in files.

    Shape:
        ``(N, C, *)`` to the same shape and dtype.

    Raises:
        ValueError: In a call, for an input of fewer than two axes or without channels, training with
            one value per channel in the group, or an eps that is negative, or zero in training.
        RuntimeError: In a call, when the sizes do not fit or the dtypes differ.
        NameError: In a call, training outside of the mapped axis.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, bias=bias)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The model with each of its BatchNorm layers as a SyncBatchNorm.

        Arrays, names, ties and modes stay; ``module`` itself stays as it is.

        Args:
            module: A model, or a Definition.
            process_group: The name of the mapped axis, or a tuple of names.

        Raises:
            ValueError: For a lazy BatchNorm that has no shapes yet.
        """

        def convert(root: Any) -> None:
            for path, layer in root.named_modules():
                if not isinstance(layer, _BatchNorm):
                    continue
                if isinstance(layer, LazyModuleMixin):
                    raise ValueError(
                        f"'{path}' is a {type(layer).__name__} and has no shapes yet.\n"
                        "    write: model = purestate.init(model, rng, *example_inputs)"
                    )
                become(layer, SyncBatchNorm)
                layer.process_group = process_group

        if isinstance(module, Module) and isinstance(module._life, Open):  # In a constructor.
            convert(module)
            return module
        return edit(module, convert)

    def _normalised(
        self, input: jax.Array, mean: Any, var: Any, from_batch: bool, momentum: Any
    ) -> tuple[jax.Array, Any, Any]:
        group = self.process_group
        if not self.training or not group:
            return super()._normalised(input, mean, var, from_batch, momentum)
        group = tuple(group) if isinstance(group, list | tuple) else group
        return sync_batch_norm(input, mean, var, self.weight, self.bias, momentum, self.eps, group)

    def _check_input_dim(self, input: jax.Array) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")
