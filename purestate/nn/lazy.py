"""The lazy layers: each is an eager layer without the size that its first input gives.

``purestate.init(model, rng, *example_inputs)`` finds the sizes and turns each into its eager class
(``purestate._lazy``). A layer of your own is made lazy by :class:`LazyModuleMixin`.
"""

from typing import Any

import jax

from purestate._abstract import empty
from purestate._lazy import LazyModuleMixin as LazyModuleMixin
from purestate._parameter import UninitializedBuffer, UninitializedParameter
from purestate.nn import init
from purestate.nn._construction import draws_again
from purestate.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, _NormBase
from purestate.nn.conv import Conv1d, Conv2d, Conv3d, _ConvNd
from purestate.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from purestate.nn.functional._options import IntOrInts
from purestate.nn.functional._shapes import shown
from purestate.nn.instancenorm import (
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _InstanceNorm,
)
from purestate.nn.linear import Linear


__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyLinear(LazyModuleMixin, Linear):
    """A :class:`Linear` whose ``in_features`` is the last axis of its input.

    Torch's name: ``torch.nn.LazyLinear``.

    Args:
        out_features: Size of the last axis of the output.
        bias: Whether to add a bias.
        dtype: Dtype of weight and bias; JAX's default float when None.
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, dtype: Any = None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    @draws_again
    def reset_parameters(self) -> None:
        """Set how weight and bias are drawn, once they have shapes."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: jax.Array) -> None:
        """Take ``in_features`` from the input."""
        size = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features = size
            self.weight.materialize((self.out_features, size))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:  # The parameters came from a file.
            if size != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {size} is not equal to in_features from "
                    f"self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = size


class _LazyConvBase(LazyModuleMixin, _ConvNd):
    """What the lazy convolutions share: ``in_channels`` is the channel axis of the input."""

    def _wait(self, out_channels: int, bias: bool, dtype: Any) -> None:
        """Put parameters without shapes; the eager constructor was given no channels and no bias."""
        self.weight = UninitializedParameter(dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    @draws_again
    def reset_parameters(self) -> None:
        """Set how weight and bias are drawn, once they have shapes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: jax.Array, *args: Any, **kwargs: Any) -> None:
        """Take ``in_channels`` from the input."""
        del args, kwargs
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._channels_of(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.transposed:
            channels = self.in_channels, self.out_channels // self.groups
        else:
            channels = self.out_channels, self.in_channels // self.groups
        self.weight.materialize((*channels, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _channels_of(self, input: jax.Array) -> int:
        unbatched = len(self.kernel_size) + 1
        if input.ndim not in (unbatched, unbatched + 1):
            raise RuntimeError(
                f"Expected {unbatched}D (unbatched) or {unbatched + 1}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {shown(input.shape)}"
            )
        return input.shape[-unbatched]


class _LazyConv(_LazyConvBase):
    def __init__(
        self,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: str | IntOrInts = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        eager: Any = super().__init__
        eager(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, dtype)
        self._wait(out_channels, bias, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A :class:`Conv1d` whose ``in_channels`` is that of its input.

    Torch's name: ``torch.nn.LazyConv1d``.

    Arguments as :class:`LazyConv2d`.
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A :class:`Conv2d` whose ``in_channels`` is that of its input.

    Torch's name: ``torch.nn.LazyConv2d``.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one per axis.
        stride: Step of the kernel, one int or one per axis.
        padding: As :class:`Conv2d`.
        dilation: Distance between the taps of the kernel, one int or one per axis.
        groups: Number of blocks that the channels are split into.
        bias: Whether to add a bias.
        padding_mode: ``'zeros'``, ``'reflect'``, ``'replicate'`` or ``'circular'``.
        dtype: Dtype of weight and bias; JAX's default float when None.
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A :class:`Conv3d` whose ``in_channels`` is that of its input.

    Torch's name: ``torch.nn.LazyConv3d``.

    Arguments as :class:`LazyConv2d`.
    """

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvBase):
    def __init__(
        self,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ):
        eager: Any = super().__init__
        options = (groups, False, dilation, padding_mode, dtype)
        eager(0, 0, kernel_size, stride, padding, output_padding, *options)
        self._wait(out_channels, bias, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A :class:`ConvTranspose1d` with the channels of its input.

    Torch's name: ``torch.nn.LazyConvTranspose1d``.

    Arguments as :class:`LazyConvTranspose2d`.
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A :class:`ConvTranspose2d` with the channels of its input.

    Torch's name: ``torch.nn.LazyConvTranspose2d``.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one per axis.
        stride: Step of the kernel in the output, one int or one per axis.
        padding: Entries left out at both ends of the output, one int or one per axis.
        output_padding: Entries added at the end of the output, one int or one per axis.
        groups: Number of blocks that the channels are split into.
        bias: Whether to add a bias.
        dilation: Distance between the taps of the kernel, one int or one per axis.
        padding_mode: ``'zeros'``, the only one there is.
        dtype: Dtype of weight and bias; JAX's default float when None.
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A :class:`ConvTranspose3d` with the channels of its input.

    Torch's name: ``torch.nn.LazyConvTranspose3d``.

    Arguments as :class:`LazyConvTranspose2d`.
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _NormBase):
    """What the lazy norms share: ``num_features`` is the second axis of the input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(0, eps, momentum, False, False, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(dtype=dtype)
            self.running_var = UninitializedBuffer(dtype=dtype)
            self.num_batches_tracked = empty(dtype="int64", init=init.zeros())

    @draws_again
    def reset_parameters(self) -> None:
        """Reset statistics and parameters, once they have shapes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: jax.Array) -> None:
        """Take ``num_features`` from the input."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for array in (self.weight, self.bias, self.running_mean, self.running_var):
            if array is not None:
                array.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, _BatchNorm):
    """A :class:`BatchNorm1d` with the channels of its input.

    Torch's name: ``torch.nn.LazyBatchNorm1d``.

    Args:
        eps: Added to the variance.
        momentum: Weight of the new value in the running statistics; None averages over all batches.
        affine: Whether to have a weight (and a bias) per channel.
        track_running_stats: Whether to keep running statistics; without, every call uses its batch.
        dtype: Dtype of the parameters and statistics; JAX's default float when None.
        bias: Whether to have a bias, with ``affine``.
    """

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNorm, _BatchNorm):
    """A :class:`BatchNorm2d` with the channels of its input.

    Torch's name: ``torch.nn.LazyBatchNorm2d``.

    Arguments as :class:`LazyBatchNorm1d`.
    """

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNorm, _BatchNorm):
    """A :class:`BatchNorm3d` with the channels of its input.

    Torch's name: ``torch.nn.LazyBatchNorm3d``.

    Arguments as :class:`LazyBatchNorm1d`.
    """

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class LazyInstanceNorm1d(_LazyNorm, _InstanceNorm):
    """An :class:`InstanceNorm1d` with the channels of its input.

    Torch's name: ``torch.nn.LazyInstanceNorm1d``.

    Arguments as :class:`LazyBatchNorm1d`. As in torch ``affine`` and ``track_running_stats`` are True
    here by default, and the channels are the second axis of the input, with or without a batch.
    """

    cls_to_become = InstanceNorm1d
    _unbatched = InstanceNorm1d._unbatched


class LazyInstanceNorm2d(_LazyNorm, _InstanceNorm):
    """An :class:`InstanceNorm2d` with the channels of its input.

    Torch's name: ``torch.nn.LazyInstanceNorm2d``.

    Arguments as :class:`LazyInstanceNorm1d`.
    """

    cls_to_become = InstanceNorm2d
    _unbatched = InstanceNorm2d._unbatched


class LazyInstanceNorm3d(_LazyNorm, _InstanceNorm):
    """An :class:`InstanceNorm3d` with the channels of its input.

    Torch's name: ``torch.nn.LazyInstanceNorm3d``.

    Arguments as :class:`LazyInstanceNorm1d`.
    """

    cls_to_become = InstanceNorm3d
    _unbatched = InstanceNorm3d._unbatched
