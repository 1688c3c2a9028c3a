"""What functions of each element share: torch's dtypes, its rounding of halves, its ``|x|``.

Torch computes an activation of a 16-bit array in float32 and rounds once, at the end; its gradient
likewise. So the bodies of the activations see float32 or wider, and :func:`elementwise` does the
rest: the refusal of the dtypes that torch has no kernel for, the widening, the rounding, the jit.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from purestate.nn.functional._dtypes import scalar_type, widen


Function = TypeVar("Function", bound=Callable[..., Any])


def elementwise(kernel: str, *options: str, complex: bool = False) -> Callable[[Function], Function]:
    """Make an activation, jitted, out of its mathematics in float32 or wider.

    Args:
        kernel: Torch's kernel, which its error names when it refuses a dtype.
        *options: The options to compile for, by name; others may be traced.
        complex: Whether torch has the kernel for complex numbers too.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def activation(input: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
            check_kernel(kernel, input, complex)
            return function(widen(input), *args, **kwargs).astype(input.dtype)

        return cast(Function, jax.jit(activation, static_argnames=options))

    return decorate


def check_kernel(kernel: str, input: jax.Array, complex: bool = False) -> None:
    """Torch has its kernels for floating-point numbers, some for complex ones too.

    Raises:
        NotImplementedError: The input is of another dtype.
    """
    if not jnp.issubdtype(input.dtype, jnp.inexact if complex else jnp.floating):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")


def as_float(input: jax.Array) -> jax.Array:
    """Integers and booleans in the default float, as torch promotes them; others as they are."""
    if jnp.issubdtype(input.dtype, jnp.inexact):
        return input
    return input.astype(jax.dtypes.canonicalize_dtype(float))


def absolute(x: jax.Array) -> jax.Array:
    """``|x|`` with torch's derivative at 0 and NaN, which is 0; that of ``jnp.abs`` is 1 and NaN."""
    if not jnp.isrealobj(x):
        return jnp.abs(x)
    return x * jnp.where(jnp.isnan(x), 0, jnp.sign(x))
