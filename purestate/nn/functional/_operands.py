"""What torch's operators refuse and JAX's accept, in torch's words.

JAX subtracts booleans, orders complex numbers and takes the mean of integers. A loss that torch
composes of its operators raises the errors of those operators.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from purestate.nn.functional._dtypes import scalar_type


def check_subtraction(*operands: jax.Array) -> None:
    """A difference of two arrays, or of a number and an array.

    Raises:
        RuntimeError: One of them is of booleans.
    """
    booleans = sum(operand.dtype == jnp.bool_ for operand in operands)
    if booleans == 2:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if booleans:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )


def check_negation(operand: jax.Array) -> None:
    """A minus before an array.

    Raises:
        RuntimeError: It is of booleans.
    """
    if operand.dtype == jnp.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        )


def check_clamp(dtype: DTypeLike) -> None:
    """A bound on numbers.

    Raises:
        NotImplementedError: Complex numbers have no order.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise NotImplementedError("clamp is not supported for complex types")


def check_comparison(kernel: str, operand: jax.Array) -> None:
    """A comparison with a number.

    Raises:
        NotImplementedError: Complex numbers have no order.
    """
    if jnp.iscomplexobj(operand):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(operand.dtype)}'")


def check_mean(dtype: DTypeLike) -> None:
    """A mean.

    Raises:
        RuntimeError: The dtype is not floating-point or complex.
    """
    if not jnp.issubdtype(dtype, jnp.inexact):
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {scalar_type(dtype)}"
        )


def check_cast(
    dtype: DTypeLike, desired: DTypeLike, name: Callable[[DTypeLike], str] = scalar_type
) -> None:
    """A result that torch writes into an array of another dtype: a float into no integer.

    Args:
        dtype: The dtype of the result.
        desired: The dtype of the array.
        name: How torch spells the array's dtype in this place.

    Raises:
        RuntimeError: The array's kind of number is too narrow.
    """
    for kind in (jnp.complexfloating, jnp.inexact):
        if jnp.issubdtype(dtype, kind) and not jnp.issubdtype(desired, kind):
            raise RuntimeError(
                f"result type {scalar_type(dtype)} can't be cast to the desired output type "
                f"{name(desired)}"
            )
