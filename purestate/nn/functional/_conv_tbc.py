"""Convolution over time of sequences laid out time first: ``conv1d`` in another order of axes."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._conv import conv1d
from purestate.nn.functional._dtypes import plus, scalar_type


__all__ = ["conv_tbc"]


@functools.partial(jax.jit, static_argnames=("pad",))
def conv_tbc(input: jax.Array, weight: jax.Array, bias: jax.Array, pad: int = 0) -> jax.Array:
    """Convolve over time (``torch.nn.functional.conv_tbc``).

    Args:
        input: ``(T, N, in_channels)``.
        weight: ``(K, in_channels, out_channels)``.
        bias: ``(out_channels,)``.
        pad: Zeros at both ends of time; negative takes that much away.

    Returns:
        ``(T + 2 pad - K + 1, N, out_channels)`` in the input's dtype.

    Raises:
        RuntimeError: Shapes or dtypes that do not fit.
    """
    _check(input, weight, bias, pad)
    steps = input.shape[0] + 2 * pad - weight.shape[0] + 1
    if 0 in (steps, input.shape[1], weight.shape[2]):
        return jnp.zeros((steps, input.shape[1], weight.shape[2]), input.dtype)
    padded = lax.pad(input, input.dtype.type(0), ((pad, pad, 0), (0, 0, 0), (0, 0, 0)))
    # (N, C, T), (O, C, K) -> (N, O, T)
    output = conv1d(padded.transpose(1, 2, 0), weight.transpose(2, 1, 0)).transpose(2, 0, 1)
    return plus(output, bias.astype(input.dtype))


def _check(input: jax.Array, weight: jax.Array, bias: jax.Array, pad: int) -> None:
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    steps = input.shape[0] + 2 * pad - weight.shape[0] + 1
    if steps < 0:
        sizes = [steps, input.shape[1], weight.shape[2]]
        raise RuntimeError(f"Trying to create tensor with negative dimension {steps}: {sizes}")
    if input.dtype != weight.dtype:
        raise RuntimeError(
            "self and mat2 must have the same dtype, "
            f"but got {scalar_type(input.dtype)} and {scalar_type(weight.dtype)}"
        )
