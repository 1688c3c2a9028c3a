"""Activations made of straight pieces: ReLU and its kin, and the clipped lines.

At a joint the derivative is that of the piece torch counts the joint to (``relu'(0) = 0``), and the
pieces are chosen with ``jnp.where``, so that it is so in every order and mode. Hardswish is no line
in its middle, but has the joints. ``inplace`` is accepted where torch has it and changes nothing:
arrays never change in place.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._elementwise import check_kernel, elementwise
from purestate.nn.functional._operands import check_clamp


__all__ = [
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "threshold",
]


@functools.partial(jax.jit, static_argnames="inplace")
def relu(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``max(x, 0)``, any shape (``torch.nn.functional.relu``); derivative 0 at 0.

    Integers are fine; booleans and complex numbers are refused.
    """
    del inplace
    if input.dtype == bool:
        raise RuntimeError("Boolean inputs not supported for relu")
    check_clamp(input.dtype)
    # NaN is not greater than zero and must still come through.
    return jnp.where(input <= 0, jnp.zeros((), input.dtype), input)


@functools.partial(jax.jit, static_argnames=("min_val", "max_val", "inplace"))
def hardtanh(
    input: jax.Array, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> jax.Array:
    """``x`` clipped to ``[min_val, max_val]`` (``torch.nn.functional.hardtanh``).

    Of integers, which are fine, the ends are truncated to integers.

    Raises:
        ValueError: When ``min_val`` is greater than ``max_val``.
        RuntimeError: For booleans, and for unsigned integers with a negative end.
    """
    del inplace
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype == bool:
        raise RuntimeError("Bool inputs not supported for hardtanh")
    check_clamp(input.dtype)
    if jnp.issubdtype(input.dtype, jnp.unsignedinteger) and min_val <= -1:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    low, high = _bound(min_val, input), _bound(max_val, input)
    x = widen(input)
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x)).astype(input.dtype)


@functools.partial(jax.jit, static_argnames="inplace")
def relu6(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``min(max(x, 0), 6)`` (``torch.nn.functional.relu6``); derivative 0 at both ends."""
    return hardtanh(input, 0.0, 6.0, inplace)


@functools.partial(jax.jit, static_argnames=("threshold", "value", "inplace"))
def threshold(input: jax.Array, threshold: float, value: float, inplace: bool = False) -> jax.Array:
    """``x`` where it is above ``threshold``, ``value`` elsewhere (``torch.nn.functional.threshold``).

    Of integers, which are fine, both numbers are truncated to integers. NaN stays.
    """
    del inplace
    if not jnp.issubdtype(input.dtype, jnp.integer):
        check_kernel("threshold_cpu", input)
    x = widen(input)
    replaced = x <= _bound(threshold, input)
    return jnp.where(replaced, _bound(value, input), x).astype(input.dtype)


def _bound(value: float, input: jax.Array) -> float:
    """What torch makes of a number beside an input: of integers, it is truncated to their type."""
    if not jnp.issubdtype(input.dtype, jnp.integer):
        return value
    limits = jnp.iinfo(input.dtype)
    lowest = limits.min or -limits.max  # A negative number wraps around to an unsigned one.
    if not lowest <= value <= limits.max:
        name = "int" if limits.bits == 32 else f"{input.dtype.name}_t"
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")
    whole = math.trunc(value)
    return whole if limits.min else whole % 2**limits.bits


@elementwise("leaky_relu_cpu", "inplace")
def leaky_relu(input: jax.Array, negative_slope: float = 0.01, inplace: bool = False) -> jax.Array:
    """``x`` above 0, ``negative_slope * x`` below (``torch.nn.functional.leaky_relu``)."""
    del inplace
    return jnp.where(input > 0, input, input * negative_slope)


def rrelu(
    input: jax.Array,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """``leaky_relu`` with a random slope for each element (``torch.nn.functional.rrelu``).

    Args:
        input: Any shape, floating point.
        lower: The least slope; a Python number.
        upper: The greatest slope; a Python number.
        training: Draw the slopes uniformly; False takes the mean of the two for all.
        inplace: Accepted as torch does; arrays never change in place.
        rng: A JAX key, needed in training unless the two slopes are one.

    Raises:
        RuntimeError: The bounds are not finite or not in order.
        ValueError: Without ``rng`` where it is needed.
    """
    del inplace
    for name, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound:g}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    check_kernel("rrelu_with_noise_out_cpu", input)
    if rng is None and lower < upper and input.size:
        raise ValueError(
            "rrelu in training needs a random key.\n"
            "    write: rrelu(x, lower, upper, training, rng=key)\n"
            "    in a module: rng=self.next_key() if self.training else None"
        )
    return _rrelu(input, rng, lower, upper)


@jax.jit
def _rrelu(input: jax.Array, rng: jax.Array | None, lower: float, upper: float) -> jax.Array:
    x = widen(input)
    slope = lower if rng is None else jax.random.uniform(rng, x.shape, x.dtype, lower, upper)
    return jnp.where(x <= 0, x * slope, x).astype(input.dtype)


@jax.jit
def prelu(input: jax.Array, weight: jax.Array) -> jax.Array:
    """``leaky_relu`` with a learned slope (``torch.nn.functional.prelu``).

    Args:
        input: ``(N, C, *)``, or any shape with one slope; floating point.
        weight: ``(C,)``, ``(1,)`` or ``()``; the input's dtype.

    Raises:
        RuntimeError: When the number of slopes is neither 1 nor the number of channels, or the
            dtypes differ.
    """
    if input.dtype != weight.dtype:
        raise RuntimeError(
            "prelu: Type promoting not supported. "
            f"Got {scalar_type(input.dtype)} and {scalar_type(weight.dtype)}"
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
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    check_kernel("prelu_cpu", input)
    per_channel = (
        weight.reshape(-1, *(1,) * (input.ndim - 2)) if weight.size != 1 else weight.reshape(())
    )
    x, slope = widen(input), widen(per_channel)
    is_above = x > 0
    # An infinite input above 0 must not reach the gradient of the slope.
    return jnp.where(is_above, x, slope * jnp.where(is_above, 0, x)).astype(input.dtype)


@elementwise("hardsigmoid_cpu", "inplace")
def hardsigmoid(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x / 6 + 1 / 2`` clipped to ``[0, 1]`` (``torch.nn.functional.hardsigmoid``)."""
    del inplace
    line = input / 6 + 0.5
    clipped = jnp.clip(lax.stop_gradient(line), 0, 1)
    return jnp.where((input > -3) & (input < 3), line, clipped)


@elementwise("hardswish_cpu", "inplace")
def hardswish(input: jax.Array, inplace: bool = False) -> jax.Array:
    """``x * hardsigmoid(x)`` (``torch.nn.functional.hardswish``)."""
    del inplace
    is_inside = (input > -3) & (input < 3)
    middle = jnp.where(is_inside, input, 0)
    # ``input * 0``: torch's product, NaN at minus infinity.
    outside = jnp.where(input <= -3, input * 0, input)
    return jnp.where(is_inside, middle * (middle + 3) / 6, outside)
