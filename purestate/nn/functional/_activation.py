"""Activations: elementwise functions, and softmax along one axis.

Each public function is its own jitted body. Where a function has a kink, the branch is chosen with
``jnp.where`` so that the derivative there is torch's (``relu'(0) = 0``), in every order and mode.
``inplace`` is accepted where torch has it and changes nothing: arrays never change in place.
"""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnames="inplace")
def relu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``max(x, 0)``, any shape (``torch.nn.functional.relu``); derivative 0 at 0."""
    del inplace
    # NaN is not greater than zero and must still come through.
    return jnp.where(input <= 0, jnp.zeros((), input.dtype), input)


@functools.partial(jax.jit, static_argnames=("min_val", "max_val", "inplace"))
def hardtanh(
    input: jax.Array, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> jax.Array:
    """``x`` clipped to ``[min_val, max_val]`` (``torch.nn.functional.hardtanh``).

    Raises:
        ValueError: When ``min_val`` is greater than ``max_val``.
    """
    del inplace
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    low, high = jnp.asarray(min_val, input.dtype), jnp.asarray(max_val, input.dtype)
    return jnp.where(input <= low, low, jnp.where(input >= high, high, input))


@functools.partial(jax.jit, static_argnames="inplace")
def relu6(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``min(max(x, 0), 6)`` (``torch.nn.functional.relu6``); derivative 0 at both ends."""
    return hardtanh(input, 0.0, 6.0, inplace)


@functools.partial(jax.jit, static_argnames=("inplace",))
def leaky_relu(input: jax.Array, negative_slope: float = 0.01, inplace: bool = False) -> jax.Array:
    """``x`` above 0, ``negative_slope * x`` below (``torch.nn.functional.leaky_relu``)."""
    del inplace
    return jnp.where(input > 0, input, input * jnp.asarray(negative_slope, input.dtype))


@jax.jit
def prelu(input: jax.Array, weight: jax.Array) -> jax.Array:
    """``leaky_relu`` with a learned slope (``torch.nn.functional.prelu``).

    Args:
        input: ``(N, C, *)``, or any shape with one slope.
        weight: ``(C,)``, ``(1,)`` or ``()``.

    Raises:
        RuntimeError: When the number of slopes is neither 1 nor the number of channels.
    """
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.size != 1:
        if input.ndim == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim >= 2 else 1
        if channels != weight.size:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.size} and channel size = {channels}."
            )
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    else:
        weight = weight.reshape(())
    return jnp.where(input > 0, input, weight * input)


@functools.partial(jax.jit, static_argnames="approximate")
def gelu(input: jax.Array, approximate: str = "none") -> jax.Array:
    """``x * Phi(x)``, exact or by tanh (``torch.nn.functional.gelu``).

    Args:
        input: Any shape.
        approximate: ``"none"`` for the error function, ``"tanh"`` for the approximation.

    Raises:
        RuntimeError: For another ``approximate``.
    """
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return jax.nn.gelu(input, approximate=approximate == "tanh")


@functools.partial(jax.jit, static_argnames="inplace")
def silu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * sigmoid(x)`` (``torch.nn.functional.silu``)."""
    del inplace
    return input * jax.nn.sigmoid(input)


@jax.jit
def sigmoid(input: jax.Array) -> jax.Array:
    """``1 / (1 + exp(-x))`` (``torch.nn.functional.sigmoid``)."""
    return jax.nn.sigmoid(input)


@jax.jit
def tanh(input: jax.Array) -> jax.Array:
    """The hyperbolic tangent (``torch.nn.functional.tanh``)."""
    return jnp.tanh(input)


@functools.partial(jax.jit, static_argnames="inplace")
def hardsigmoid(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x / 6 + 1 / 2`` clipped to ``[0, 1]`` (``torch.nn.functional.hardsigmoid``)."""
    del inplace
    one, zero = jnp.ones((), input.dtype), jnp.zeros((), input.dtype)
    return jnp.where(input <= -3, zero, jnp.where(input >= 3, one, input / 6 + 0.5))


@functools.partial(jax.jit, static_argnames="inplace")
def hardswish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * hardsigmoid(x)`` (``torch.nn.functional.hardswish``)."""
    del inplace
    middle = input * (input + 3) / 6
    return jnp.where(input <= -3, jnp.zeros((), input.dtype), jnp.where(input < 3, middle, input))


@functools.partial(jax.jit, static_argnames="inplace")
def elu(input: jax.Array, alpha: float = 1.0, inplace: bool = False) -> jax.Array:
    """``x`` above 0, ``alpha * (exp(x) - 1)`` below (``torch.nn.functional.elu``)."""
    del inplace
    below = jnp.where(input > 0, jnp.zeros((), input.dtype), input)
    return jnp.where(input > 0, input, jnp.asarray(alpha, input.dtype) * jnp.expm1(below))


@functools.partial(jax.jit, static_argnames=())
def softplus(input: jax.Array, beta: float = 1.0, threshold: float = 20.0) -> jax.Array:
    """``log(1 + exp(beta x)) / beta``, linear where ``beta x > threshold``.

    Torch's name: ``torch.nn.functional.softplus``.
    """
    factor = jnp.asarray(beta, input.dtype)
    scaled = input * factor
    linear = scaled > threshold
    bounded = jnp.where(linear, jnp.zeros((), input.dtype), scaled)
    return jnp.where(linear, input, jnp.log1p(jnp.exp(bounded)) / factor)


@functools.partial(jax.jit, static_argnames="inplace")
def mish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * tanh(softplus(x))`` (``torch.nn.functional.mish``)."""
    del inplace
    return input * jnp.tanh(jax.nn.softplus(input))


def softmax(
    input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> jax.Array:
    """``exp(x) / sum(exp(x))`` along ``dim`` (``torch.nn.functional.softmax``).

    Args:
        input: Any shape.
        dim: The axis. None picks 0 for 0, 1 and 3 axes and 1 otherwise, with torch's warning.
        dtype: Cast to it first.

    Raises:
        IndexError: When ``dim`` is not an axis.
    """
    axis = _axis("softmax", input, dim, _stacklevel)
    return _softmax(input, axis, None if dtype is None else jnp.dtype(dtype).name)


def log_softmax(
    input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> jax.Array:
    """``log(softmax(x))`` along ``dim``, computed stably (``torch.nn.functional.log_softmax``).

    See :func:`softmax` for the arguments.
    """
    axis = _axis("log_softmax", input, dim, _stacklevel)
    return _log_softmax(input, axis, None if dtype is None else jnp.dtype(dtype).name)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _softmax(input: jax.Array, axis: int, dtype: str | None) -> jax.Array:
    input = input if dtype is None else input.astype(dtype)
    return jax.nn.softmax(input, axis=axis) if input.ndim else jnp.ones_like(input)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _log_softmax(input: jax.Array, axis: int, dtype: str | None) -> jax.Array:
    input = input if dtype is None else input.astype(dtype)
    return jax.nn.log_softmax(input, axis=axis) if input.ndim else jnp.zeros_like(input)


def _axis(name: str, input: jax.Array, dim: int | None, stacklevel: int) -> int:
    if dim is None:
        warnings.warn(
            f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
            "dim=X as an argument.",
            stacklevel=stacklevel,
        )
        return 0 if input.ndim in (0, 1, 3) else 1
    axes = max(input.ndim, 1)
    if not -axes <= dim < axes:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-axes}, {axes - 1}], but got {dim})"
        )
    return dim
