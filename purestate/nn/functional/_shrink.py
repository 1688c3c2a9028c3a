"""Activations that shrink: small values to zero, or every value by a smooth share of itself."""

import functools

import jax
import jax.numpy as jnp

from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._elementwise import as_float, check_kernel, elementwise
from purestate.nn.functional._operands import check_subtraction


__all__ = ["hardshrink", "softshrink", "tanhshrink"]


@elementwise("hardshrink_cpu")
def hardshrink(input: jax.Array, lambd: float = 0.5) -> jax.Array:
    """``x`` outside of ``[-lambd, lambd]``, 0 inside (``torch.nn.functional.hardshrink``)."""
    is_small = (input >= -lambd) & (input <= lambd)
    return jnp.where(is_small, 0, input)


@functools.partial(jax.jit, static_argnames="lambd")
def softshrink(input: jax.Array, lambd: float = 0.5) -> jax.Array:
    """``x`` moved towards 0 by ``lambd``, and not past it (``torch.nn.functional.softshrink``).

    Args:
        input: Any shape, floating point.
        lambd: The distance; not negative.

    Raises:
        RuntimeError: For a negative or infinite ``lambd``.
    """
    check_kernel("softshrink_check", input)
    largest = float(jnp.finfo(input.dtype).max)
    if not 0 <= lambd <= largest:
        raise RuntimeError(
            f"lambda must be in range [0, {largest:g}] for input dtype {scalar_type(input.dtype)}, "
            f"but found {lambd:g}"
        )
    x = widen(input)
    is_small = (x >= -lambd) & (x <= lambd)
    return jnp.where(is_small, 0, x - lambd * jnp.sign(x)).astype(input.dtype)


@jax.jit
def tanhshrink(input: jax.Array) -> jax.Array:
    """``x - tanh(x)`` (``torch.nn.functional.tanhshrink``); integers become floats.

    Raises:
        RuntimeError: The input is of booleans.
    """
    check_subtraction(input)
    return input - jnp.tanh(as_float(input))
