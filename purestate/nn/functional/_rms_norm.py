"""Normalisation by the root of the mean square: no mean is subtracted, no bias is added.

As in torch, and unlike the other norms, the arguments may differ in dtype: the arithmetic is that of
the input (float32 for half types), promoted by the weight, and the output is cast to the input's dtype.
"""

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._norm_checks import check_rms


__all__ = ["rms_norm"]


def rms_norm(
    input: jax.Array,
    normalized_shape: Sequence[int],
    weight: jax.Array | None = None,
    eps: float | None = None,
) -> jax.Array:
    """Divide by the root mean square over the last axes.

    The counterpart of ``torch.nn.functional.rms_norm``.

    Args:
        input: ``(*, *normalized_shape)``; floating-point or complex.
        normalized_shape: The sizes of the axes that share a mean square.
        weight: ``normalized_shape`` or ``None``: multiplies the normalised input.
        eps: Added to the mean square; the machine epsilon of the arithmetic when None.

    Returns:
        The input's shape and dtype.

    Raises:
        RuntimeError: Sizes that do not fit.
        ValueError: The input has fewer axes than ``normalized_shape``.
        TypeError: ``normalized_shape`` is not a sequence.
        NotImplementedError: The input is of integers.
    """
    if not isinstance(normalized_shape, Sequence):
        raise TypeError(
            "rms_norm(): argument 'normalized_shape' (position 2) must be tuple of ints, "
            f"not {type(normalized_shape).__name__}"
        )
    shape = tuple(map(operator.index, normalized_shape))
    return _rms_norm(input, weight, shape=shape, eps=eps)


@functools.partial(jax.jit, static_argnames=("shape", "eps"))
def _rms_norm(
    input: jax.Array, weight: jax.Array | None, *, shape: tuple[int, ...], eps: float | None
) -> jax.Array:
    check_rms(input, weight, shape)
    x = widen(input)
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    square = jnp.square(x).mean(axes, keepdims=True)
    x = x * lax.rsqrt(square + jnp.asarray(eps, square.dtype))
    if weight is not None:
        x = x * weight
    return x.astype(input.dtype)
