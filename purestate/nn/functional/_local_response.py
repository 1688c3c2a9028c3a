"""Normalisation across channels: each entry is divided by a power of its neighbours' mean square.

The neighbours of a channel are those within a window of ``size`` channels. ``local_response_norm``
centres the window. ``cross_map_lrn``, the computation of ``CrossMapLRN2d``, keeps two properties of
torch's implementation that a trained model may depend on: the first channel, once in the window, never
leaves it, and the gradient is not the derivative of the output but torch's own formula, whose window
is centred one channel lower.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._avg_pool import avg_pool2d, avg_pool3d
from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._options import listed
from purestate.nn.functional._pad import pad


__all__ = ["local_response_norm"]


@functools.partial(jax.jit, static_argnames=("size", "alpha", "beta", "k"))
def local_response_norm(
    input: jax.Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> jax.Array:
    """Divide by ``(k + alpha * mean of the squares of size neighbouring channels) ** beta``.

    The counterpart of ``torch.nn.functional.local_response_norm``. Channels outside count as zeros.

    Args:
        input: ``(N, C, *)`` with at least three axes; floating-point.
        size: The number of neighbours, the channel itself included.
        alpha: Multiplies the mean square.
        beta: The exponent.
        k: Added before the power.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: The input has fewer than three axes.
        RuntimeError: ``size`` is not positive.
    """
    if input.ndim < 3:
        raise ValueError(
            "Expected 3D or higher dimensionality                          "
            f"input (got {input.ndim} dimensions)"
        )
    if not input.size:
        return input
    before, after = size // 2, (size - 1) // 2
    square = input * input
    if input.ndim == 3:
        square = pad(square[:, None], (0, 0, before, after))
        mean = avg_pool2d(square, (size, 1), stride=1)
    else:
        batch, channels, height = input.shape[:3]
        square = pad(square.reshape(batch, 1, channels, height, -1), (0, 0, 0, 0, before, after))
        mean = avg_pool3d(square, (size, 1, 1), stride=1)
    return input / (mean.reshape(input.shape) * alpha + k) ** beta


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3, 4))
@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def cross_map_lrn(input: jax.Array, size: int, alpha: float, beta: float, k: float) -> jax.Array:
    """``input * (k + alpha / size * sum of the squares of the neighbouring channels) ** -beta``.

    What ``torch.nn.CrossMapLRN2d`` computes, gradient included.

    Args:
        input: ``(N, C, H, W)``.
        size: The number of neighbours, the channel itself included.
        alpha: Multiplies the mean square.
        beta: The exponent.
        k: Added before the power.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: The input has other axes.
        IndexError: The input has no channels.
        RuntimeError: The input is not floating-point.
    """
    if input.ndim != 4:
        raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
    if input.shape[1] == 0:
        raise IndexError(
            f"select(): index 0 out of range for tensor of size {listed(input.shape)} at dimension 1"
        )
    if not jnp.issubdtype(input.dtype, jnp.inexact):
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {scalar_type(input.dtype)}"
        )
    return input * _scale(input, size, alpha, k) ** -beta


@cross_map_lrn.defjvp
def _cross_map_lrn_jvp(
    size: int, alpha: float, beta: float, k: float, primals: tuple, tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    (x,), (dx,) = primals, tangents
    scale = _scale(x, size, alpha, k)
    output = x * scale**-beta
    # The transpose of torch's backward: its window reaches from c - first to c + size - 1 - first.
    channels, first = x.shape[1], int(size - (size - 1) / 2)
    offset = np.subtract.outer(np.arange(channels), np.arange(channels)) + first
    spread = _mixed((offset >= 0) & (offset < size), x * dx)
    return output, dx * scale**-beta - 2 * alpha * beta / size * output / scale * spread


def _scale(x: jax.Array, size: int, alpha: float, k: float) -> jax.Array:
    channels, reach = x.shape[1], int((size - 1) / 2 + 1)
    distance = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
    window = distance < reach
    window[reach:, 0] = True
    return _mixed(window, x * x) * (alpha / size) + k


def _mixed(window: np.ndarray, x: jax.Array) -> jax.Array:
    """The sum over the channels in each channel's window: ``window[to, from]``."""
    return jnp.einsum("dc,nc...->nd...", jnp.asarray(window, x.dtype), x)
