"""Dropout: zero a random part of the input, scale the rest to keep its mean.

Torch draws from a global generator; here the key is an argument, ``rng``. It is needed only when
something is random: in training with ``0 < p < 1``. ``p = 0``, ``p = 1`` and evaluation are exact.
The variants differ in what is dropped together (elements, channels) and in what a dropped value
becomes (zero, or the negative saturation of SELU).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._warning import warn
from purestate.nn.functional._elementwise import check_kernel
from purestate.nn.functional._operands import check_cast


__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Zero each element with probability ``p`` (``torch.nn.functional.dropout``).

    Args:
        input: Any shape, floating point.
        p: The probability to drop; a Python number.
        training: False returns the input.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training with ``0 < p < 1``.

    Returns:
        The input's shape and dtype; what is kept is divided by ``1 - p``.

    Raises:
        ValueError: For ``p`` outside of ``[0, 1]``, or without ``rng`` where it is needed.
    """
    del inplace
    return _drop("dropout", input, p, training, rng, input.shape)


def dropout1d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Zero whole channels of ``(N, C, L)`` or ``(C, L)`` (``torch.nn.functional.dropout1d``).

    Args:
        input: ``(N, C, L)`` or ``(C, L)``, floating point.
        p: The probability to drop a channel; a Python number.
        training: False returns the input.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training with ``0 < p < 1``.

    Returns:
        The input's shape and dtype; what is kept is divided by ``1 - p``.

    Raises:
        RuntimeError: For another number of axes.
        ValueError: As :func:`dropout`.
    """
    del inplace
    _check_probability(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            "dropout1d: Expected 2D or 3D input, but received a "
            f"{input.ndim}D input. Note that dropout1d exists to provide channel-wise dropout on "
            "inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension "
            "(i.e. 2D or 3D inputs)."
        )
    return _drop("dropout1d", input, p, training, rng, (*input.shape[:-1], 1))


def dropout2d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Zero whole channels of ``(N, C, H, W)`` (``torch.nn.functional.dropout2d``).

    As in torch, the first two axes are batch and channel whatever the number of axes, and another
    number than four warns.

    Args:
        input: ``(N, C, H, W)``, floating point.
        p: The probability to drop a channel; a Python number.
        training: False returns the input.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training with ``0 < p < 1``.

    Returns:
        The input's shape and dtype; what is kept is divided by ``1 - p``.

    Raises:
        ValueError: As :func:`dropout`.
        RuntimeError: In training, for fewer than two axes.
    """
    del inplace
    _check_probability(p)
    if input.ndim not in (3, 4):
        warn(_deprecated(2, input.ndim))
    if input.ndim == 3:
        warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout "
            "behavior, please switch to using dropout1d instead.",
        )
    return _drop_features("dropout2d", input, p, training, rng)


def dropout3d(
    input: jax.Array,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Zero whole channels of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    The counterpart of ``torch.nn.functional.dropout3d``. As in torch, an input without five axes has
    no batch, and one with neither four nor five warns.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``, floating point.
        p: The probability to drop a channel; a Python number.
        training: False returns the input.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training with ``0 < p < 1``.

    Returns:
        The input's shape and dtype; what is kept is divided by ``1 - p``.

    Raises:
        ValueError: As :func:`dropout`.
        RuntimeError: In training, for a scalar.
    """
    del inplace
    _check_probability(p)
    if input.ndim not in (4, 5):
        warn(_deprecated(3, input.ndim))
    return _drop_features("dropout3d", input, p, training, rng, leading=1 + (input.ndim == 5))


def alpha_dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Dropout that keeps the mean and variance of SELU (``torch.nn.functional.alpha_dropout``).

    Klambauer et al., 2017.

    Args:
        input: Any shape, floating point.
        p: The probability to drop an element; a Python number.
        training: False returns the input.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training with ``0 < p < 1``.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: As :func:`dropout`.
    """
    del inplace
    return _drop("alpha_dropout", input, p, training, rng, input.shape, alpha=True)


def feature_alpha_dropout(
    input: jax.Array,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """``alpha_dropout`` of whole channels (``torch.nn.functional.feature_alpha_dropout``)."""
    del inplace
    return _drop_features("feature_alpha_dropout", input, p, training, rng, alpha=True)


def _check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _deprecated(n: int, ndim: int) -> str:
    return (
        f"dropout{n}d: Received a {ndim}-D input to dropout{n}d, which is deprecated and will result "
        "in an error in a future release. To retain the behavior and silence this warning, please use "
        f"dropout instead. Note that dropout{n}d exists to provide channel-wise dropout on inputs with "
        f"{n} spatial dimensions, a channel dimension, and an optional batch dimension "
        f"(i.e. {n + 1}D or {n + 2}D inputs)."
    )


def _drop_features(
    name: str,
    input: jax.Array,
    p: float,
    training: bool,
    rng: Any,
    alpha: bool = False,
    leading: int = 2,
) -> jax.Array:
    """Drop what lies behind the leading axes, batch and channel, together."""
    _check_probability(p)
    if training and 0 < p < 1 and input.size and input.ndim < leading:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = input.shape[:leading] + (1,) * (input.ndim - leading)
    return _drop(name, input, p, training, rng, shape, alpha)


def _drop(
    name: str,
    input: jax.Array,
    p: float,
    training: bool,
    rng: Any,
    shape: tuple[int, ...],
    alpha: bool = False,
) -> jax.Array:
    _check_probability(p)
    if not training or p == 0 or input.size == 0:
        return input
    if p == 1:
        return input * jnp.zeros((), input.dtype)
    _check_dtype(input, alpha)
    if rng is None:
        raise ValueError(
            f"{name} in training with 0 < p < 1 needs a random key.\n"
            f"    write: {name}(x, p, training, rng=key)\n"
            "    in a module: rng=self.next_key() if self.training else None"
        )
    return _masked(input, rng, float(p), shape, alpha)


def _check_dtype(input: jax.Array, alpha: bool) -> None:
    """Torch writes the noise, a float, into an array of the input's dtype."""
    if jnp.issubdtype(input.dtype, jnp.complexfloating):
        check_kernel("bernoulli_scalar_cpu_", input)
    # The noise of alpha dropout has been counted from truth values to integers by then.
    counted = alpha and input.dtype == bool
    check_cast(jnp.float32, jnp.int64 if counted else input.dtype)


_SATURATION = -1.7580993408473766
"""``-scale * alpha`` of SELU: what a dropped value becomes in alpha dropout."""


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _masked(
    input: jax.Array, rng: jax.Array, p: float, shape: tuple[int, ...], alpha: bool
) -> jax.Array:
    """The input times the noise, as torch has it: a NaN stays NaN, and an infinity becomes NaN."""
    # A Python float would draw other numbers where x64 is on.
    kept = jax.random.bernoulli(rng, np.float32(1 - p), shape).astype(input.dtype)
    if not alpha:
        return input * (kept / jnp.asarray(1 - p, input.dtype))
    # The affine map that brings mean 0 and variance 1 back after the replacement.
    a = ((1 - p) * (1 + p * _SATURATION**2)) ** -0.5
    b = -a * _SATURATION * p
    shift = (1 - kept) * jnp.asarray(a * _SATURATION, input.dtype) + jnp.asarray(b, input.dtype)
    return input * (kept * jnp.asarray(a, input.dtype)) + shift
