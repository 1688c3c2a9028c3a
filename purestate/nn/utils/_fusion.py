"""Folding a batch normalisation in evaluation mode into the layer before it.

In evaluation a BatchNorm is an affine map with fixed numbers, and so is what a convolution or a Linear
ends with: one layer with other weights computes both.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from purestate._edit import edit
from purestate._parameter import Parameter
from purestate.nn.functional._shapes import broadcast


__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what ``bn`` after ``conv`` does.

    Torch's name: ``torch.nn.utils.fuse_conv_bn_eval``.

    Args:
        conv: A convolution in evaluation mode.
        bn: A BatchNorm in evaluation mode, with running statistics.
        transpose: Whether it is a transposed convolution.

    Returns:
        A layer like ``conv``, always with a bias. A bias that ``conv`` has not does not train, as in
        torch.

    Raises:
        AssertionError: In training mode, or without running statistics.
    """
    _check(conv, bn)
    _check_statistics(bn)
    numbers = _numbers(bn)
    return _with(conv, *fuse_conv_bn_weights(conv.weight, conv.bias, *numbers, transpose=transpose))


def fuse_conv_bn_weights(
    conv_w: jax.Array,
    conv_b: jax.Array | None,
    bn_rm: jax.Array,
    bn_rv: jax.Array,
    bn_eps: float,
    bn_w: jax.Array | None,
    bn_b: jax.Array | None,
    transpose: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Weight and bias of :func:`fuse_conv_bn_eval`.

    Torch's name: ``torch.nn.utils.fuse_conv_bn_weights``.

    Args:
        conv_w: ``(C_out, C_in, *)``, or ``(C_in, C_out, *)`` with ``transpose``.
        conv_b: ``(C_out,)`` or None.
        bn_rm: ``(C_out,)``: the running mean.
        bn_rv: ``(C_out,)``: the running variance.
        bn_eps: Added to the variance.
        bn_w: ``(C_out,)`` or None.
        bn_b: ``(C_out,)`` or None.
        transpose: Whether the output channels are the second axis of the weight.

    Returns:
        ``(weight, bias)`` in the dtypes of ``conv_w`` and ``conv_b``.
    """
    shape = [-1] + [1] * (conv_w.ndim - 1)
    if transpose:
        shape[:2] = [1, -1]
    scale, bias = _scale_and_bias(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    scale = scale.reshape(shape)
    broadcast(conv_w.shape, scale.shape)  # The channels of a transposed weight are those of a group.
    return (conv_w * scale).astype(conv_w.dtype), bias


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A Linear that does what ``bn`` after ``linear`` does.

    Torch's name: ``torch.nn.utils.fuse_linear_bn_eval``.

    Args:
        linear: A Linear in evaluation mode.
        bn: A BatchNorm in evaluation mode, with running statistics, over as many features as
            ``linear`` gives, or over one.

    Returns:
        A layer like ``linear``, always with a bias. A bias that ``linear`` has not does not train, as
        in torch.

    Raises:
        AssertionError: In training mode, for other features, or without running statistics.
    """
    _check(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    _check_statistics(bn)
    return _with(linear, *fuse_linear_bn_weights(linear.weight, linear.bias, *_numbers(bn)))


def fuse_linear_bn_weights(
    linear_w: jax.Array,
    linear_b: jax.Array | None,
    bn_rm: jax.Array,
    bn_rv: jax.Array,
    bn_eps: float,
    bn_w: jax.Array | None,
    bn_b: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Weight and bias of :func:`fuse_linear_bn_eval`.

    Torch's name: ``torch.nn.utils.fuse_linear_bn_weights``; that one needs ``bn_w`` and ``bn_b``.

    Args:
        linear_w: ``(out_features, in_features)``.
        linear_b: ``(out_features,)`` or None.
        bn_rm: The running mean.
        bn_rv: The running variance.
        bn_eps: Added to the variance.
        bn_w: The weight of the normalisation, or None.
        bn_b: Its bias, or None.

    Returns:
        ``(weight, bias)`` in the dtypes of ``linear_w`` and ``linear_b``.
    """
    scale, bias = _scale_and_bias(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return linear_w * scale[:, None].astype(linear_w.dtype), bias


def _scale_and_bias(
    weight: jax.Array,
    bias: jax.Array | None,
    mean: jax.Array,
    var: jax.Array,
    eps: float,
    scale: jax.Array | None,
    shift: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """What the weight is multiplied by, and the bias that takes its place."""
    dtype = weight.dtype if bias is None else bias.dtype
    bias = jnp.zeros_like(mean) if bias is None else bias
    factor = lax.rsqrt(var + eps)
    factor = factor if scale is None else factor * scale
    moved = (bias - mean) * factor
    return factor, (moved if shift is None else moved + shift).astype(dtype)


def _numbers(bn: Any) -> tuple[Any, ...]:
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _check(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def _check_statistics(bn: Any) -> None:
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def _with(layer: Any, weight: jax.Array, bias: jax.Array) -> Any:
    """The layer with these arrays, which train as the ones they take the place of."""

    def change(opened: Any) -> None:
        trains = opened.bias is not None and opened.bias.requires_grad
        opened.weight = Parameter(weight, opened.weight.requires_grad)
        opened.bias = Parameter(bias, trains)

    return edit(layer, change)
