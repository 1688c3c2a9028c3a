"""Activations that bend smoothly: exponentials, sigmoids and what is made of them.

Where a function is put together from two, the branch is chosen with ``jnp.where`` so that the
derivative at the joint is torch's, and the branch that is not taken computes on harmless values, so
that no NaN of it reaches a gradient. ``inplace`` is accepted where torch has it and changes nothing:
arrays never change in place.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from purestate.nn.functional._elementwise import absolute, as_float, check_kernel, elementwise
from purestate.nn.functional._options import axis


__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "logsigmoid",
    "mish",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softsign",
    "tanh",
]


@elementwise("elu_cpu", "inplace")
def elu(input: jax.Array, alpha: float = 1.0, inplace: bool = False) -> jax.Array:
    """``x`` above 0, ``alpha * (exp(x) - 1)`` below (``torch.nn.functional.elu``).

    Args:
        input: Any shape, floating point.
        alpha: Minus the limit at minus infinity.
        inplace: Accepted as torch does; arrays never change in place.

    Returns:
        The input's shape and dtype.
    """
    del inplace
    return _exponential_linear(input, alpha)


@elementwise("elu_cpu", "alpha", "inplace")
def celu(input: jax.Array, alpha: float = 1.0, inplace: bool = False) -> jax.Array:
    """``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below (``torch.nn.functional.celu``).

    Args:
        input: Any shape, floating point.
        alpha: Minus the limit at minus infinity, and the scale of what is below 0; a Python number.
        inplace: Accepted as torch does; arrays never change in place.

    Returns:
        The input's shape and dtype.

    Raises:
        RuntimeError: When ``alpha`` is 0.
    """
    del inplace
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _exponential_linear(input, alpha, rate=1 / alpha)


@elementwise("elu_cpu", "inplace")
def selu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``elu`` scaled so that mean 0 and variance 1 are kept (``torch.nn.functional.selu``)."""
    del inplace
    return _exponential_linear(input, 1.6732632423543772, scale=1.0507009873554805)


def _exponential_linear(
    input: jax.Array, alpha: float, scale: float = 1.0, rate: float = 1.0
) -> jax.Array:
    """``scale * x`` above 0, ``scale * alpha * (exp(rate * x) - 1)`` below.

    At 0 torch takes the slope from below, and no curvature.
    """
    is_below = input < 0
    below = jnp.where(is_below, input, 0)
    above = jnp.where(is_below, 0, input)
    # In the input's dtype, or it would be an array of float64 where x64 is on.
    sides = (jnp.asarray(side).astype(input.dtype) for side in (scale * alpha * rate, scale))
    slope = jnp.where(input <= 0, *sides)
    return jnp.where(is_below, scale * alpha * jnp.expm1(rate * below), slope * above)


@elementwise("GeluKernelImpl", "approximate")
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
    if approximate == "tanh":
        return jax.nn.gelu(input, approximate=True)
    # As torch writes it. The complement ``erfc(-x)`` keeps digits of a tail that torch rounds to
    # zero, and costs XLA on the CPU two and a half times as much.
    return input * (0.5 + 0.5 * lax.erf(input * math.sqrt(0.5)))


@elementwise("glu_cpu", "dim")
def glu(input: jax.Array, dim: int = -1) -> jax.Array:
    """The first half along an axis, gated by the second (``torch.nn.functional.glu``).

    Args:
        input: ``(*, 2 * N, *)``.
        dim: The axis to halve.

    Returns:
        ``a * sigmoid(b)``, ``(*, N, *)``, of the halves ``a`` and ``b``.

    Raises:
        RuntimeError: For a scalar, or an axis of odd size.
        IndexError: When ``dim`` is not an axis.
    """
    if input.ndim == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    dim = axis(dim, input.ndim)
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    value, gate = jnp.split(input, 2, dim)
    return value * jax.nn.sigmoid(gate)


@elementwise("silu_cpu", "inplace", complex=True)
def silu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * sigmoid(x)`` (``torch.nn.functional.silu``).

    Args:
        input: Any shape, floating point or complex.
        inplace: Accepted as torch does; arrays never change in place.

    Returns:
        The input's shape and dtype.
    """
    del inplace
    return input * jax.nn.sigmoid(input)


@elementwise("mish_cpu", "inplace")
def mish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * tanh(softplus(x))`` (``torch.nn.functional.mish``)."""
    del inplace
    return input * jnp.tanh(jax.nn.softplus(input))


@elementwise("softplus_cpu")
def softplus(input: jax.Array, beta: float = 1.0, threshold: float = 20.0) -> jax.Array:
    """``log(1 + exp(beta x)) / beta``, linear where ``beta x > threshold``.

    Torch's name: ``torch.nn.functional.softplus``.

    Args:
        input: Any shape, floating point.
        beta: The steepness of the bend.
        threshold: From which ``beta x`` on the output is the input.

    Returns:
        The input's shape and dtype.
    """
    scaled = input * beta
    linear = scaled > threshold
    return jnp.where(linear, input, _bent(jnp.where(linear, 0, input), beta))


@jax.custom_jvp
def _bent(input: jax.Array, beta: jax.typing.ArrayLike) -> jax.Array:
    return jnp.log1p(jnp.exp(input * beta)) / beta


@functools.partial(_bent.defjvp, symbolic_zeros=True)
def _bent_jvp(primals: Any, tangents: Any) -> Any:
    """Torch's slope, which does not divide by ``beta``: it is a number where ``beta`` is 0."""
    (input, beta), (d_input, d_beta) = primals, tangents
    output, slope = _bent(input, beta), jax.nn.sigmoid(input * beta)
    tangent = jnp.zeros_like(output)
    if not isinstance(d_input, SymbolicZero):
        tangent = tangent + slope * d_input
    if not isinstance(d_beta, SymbolicZero):
        tangent = tangent + (input * slope - output) / beta * d_beta
    return output, tangent


@elementwise("log_sigmoid_cpu")
def logsigmoid(input: jax.Array) -> jax.Array:
    """``log(1 / (1 + exp(-x)))``, computed stably (``torch.nn.functional.logsigmoid``)."""
    return jax.nn.log_sigmoid(input)


@jax.jit
def sigmoid(input: jax.Array) -> jax.Array:
    """``1 / (1 + exp(-x))`` (``torch.nn.functional.sigmoid``); integers become floats."""
    return _sigmoid(as_float(input))


@jax.jit
def tanh(input: jax.Array) -> jax.Array:
    """The hyperbolic tangent (``torch.nn.functional.tanh``); integers become floats."""
    return _tanh(as_float(input))


_sigmoid = elementwise("sigmoid_cpu", complex=True)(jax.nn.sigmoid)
_tanh = elementwise("tanh_cpu", complex=True)(jnp.tanh)


@jax.jit
def softsign(input: jax.Array) -> jax.Array:
    """``x / (1 + |x|)`` (``torch.nn.functional.softsign``); integers become floats.

    Raises:
        NotImplementedError: The input is of booleans.
    """
    if input.dtype == bool:
        check_kernel("abs_cpu", input)
    return input / (absolute(input) + 1)
