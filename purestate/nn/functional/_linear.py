"""The linear map, as one product.

On one CPU device leading axes are flattened before it. The result is the same, but the derived gradient
of the weight is then a plain matrix product too. Elsewhere they stay, and with them their sharding.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import cpp_type, plus, scalar_type
from purestate.nn.functional._forms import merging_pays
from purestate.nn.functional._options import listed


__all__ = ["linear"]


@jax.jit
def linear(input: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Multiply by a weight and add a bias: ``input @ weight.T + bias``.

    The counterpart of ``torch.nn.functional.linear``.

    Args:
        input: ``(*, in_features)``.
        weight: ``(out_features, in_features)``, or ``(in_features,)`` for a single output.
        bias: ``(out_features,)``, or anything that broadcasts to the output; ``None`` adds nothing.
            For a weight with one axis torch refuses most of them.

    Returns:
        ``(*, out_features)``, without the last axis if the weight has one axis; the inputs' dtype.

    Raises:
        RuntimeError: The sizes do not fit, or the dtypes differ.
    """
    _check(input, weight, bias)
    merged = merging_pays()
    left = input.reshape(math.prod(input.shape[:-1]), input.shape[-1]) if merged else input
    # (*, in) x (out, in) -> (*, out), or (*, in) x (in,) -> (*,)
    output = lax.dot_general(left, weight, (((left.ndim - 1,), (weight.ndim - 1,)), ((), ())))
    output = output.reshape(*input.shape[:-1], *weight.shape[:-1]) if merged else output
    return output if bias is None else plus(output, bias)


def _check(input: jax.Array, weight: jax.Array, bias: jax.Array | None) -> None:
    if input.ndim == 0 or weight.ndim == 0:
        raise RuntimeError(
            "both arguments to linear need to be at least 1D, "
            f"but they are {input.ndim}D and {weight.ndim}D"
        )
    if weight.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {weight.ndim}D")
    # Torch adds the bias in one product of matrices, where there is one.
    if bias is not None and bias.dtype == input.dtype:
        _check_matrix(input, weight, bias)
    rows, features = math.prod(input.shape[:-1]), input.shape[-1]
    if features != weight.shape[-1]:
        _raise_mismatch(input, weight, rows)
    if input.dtype != weight.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, "
            f"but got: {cpp_type(input.dtype)} != {cpp_type(weight.dtype)}"
        )
    if bias is not None:
        _check_bias(input, weight, bias, rows)


def _check_matrix(input: jax.Array, weight: jax.Array, bias: jax.Array) -> None:
    if weight.ndim == 1 and (input.ndim == 2 or bias.ndim == 1):
        raise RuntimeError("mat2 must be a matrix, got 1-D tensor")


def _raise_mismatch(input: jax.Array, weight: jax.Array, rows: int) -> None:
    features = input.shape[-1]
    if weight.ndim == 2:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({rows}x{features} and {weight.shape[1]}x{weight.shape[0]})"
        )
    if input.ndim == 1:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{features}] and src [{weight.shape[0]}] "
            f"to have the same number of elements, but got {features} and {weight.shape[0]} "
            "elements respectively"
        )
    raise RuntimeError(
        f"size mismatch, got input ({rows}), mat ({rows}x{features}), vec ({weight.shape[0]})"
    )


def _check_bias(input: jax.Array, weight: jax.Array, bias: jax.Array, rows: int) -> None:
    if bias.dtype != input.dtype:
        raise RuntimeError(
            "self and mat2 must have the same dtype, "
            f"but got {scalar_type(bias.dtype)} and {scalar_type(weight.dtype)}"
        )
    if weight.ndim == 2 and bias.ndim == 1 and bias.shape[0] not in (1, weight.shape[0]):
        out = weight.shape[0]
        raise RuntimeError(
            f"The expanded size of the tensor ({out}) must match the existing size "
            f"({bias.shape[0]}) at non-singleton dimension 1.  "
            f"Target sizes: [{rows}, {out}].  Tensor sizes: [{bias.shape[0]}]"
        )
    output = (*input.shape[:-1], *weight.shape[:-1])
    try:
        broadcast = jnp.broadcast_shapes(output, bias.shape)
    except ValueError:
        broadcast = bias.shape
    if broadcast != output:
        raise RuntimeError(
            f"output with shape {listed(output)} doesn't match the broadcast shape {listed(broadcast)}"
        )
