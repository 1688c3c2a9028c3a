"""The bilinear map: one number for each output out of every pair of entries of two vectors."""

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import cpp_type, plus
from purestate.nn.functional._options import axis


__all__ = ["bilinear"]


@jax.jit
def bilinear(
    input1: jax.Array, input2: jax.Array, weight: jax.Array, bias: jax.Array | None = None
) -> jax.Array:
    """``input1 @ weight[k] @ input2 + bias[k]`` for every output ``k``.

    The counterpart of ``torch.nn.functional.bilinear``.

    Args:
        input1: ``(*, in1_features)``.
        input2: ``(*, in2_features)``.
        weight: ``(out_features, in1_features, in2_features)``.
        bias: ``(out_features,)``; ``None`` adds nothing.

    Returns:
        ``(*, out_features)``, in the dtype of the inputs.

    Raises:
        RuntimeError: The sizes do not fit, or the dtypes differ.
        IndexError: An argument has too few axes.
    """
    _check_sizes(input1, input2, weight, bias)
    _check_dtypes(input1, input2, weight, bias)
    # (*, in1) x (out, in1, in2) -> (*, out, in2), and that x (*, in2) -> (*, out)
    half = lax.dot_general(input1, weight, (((input1.ndim - 1,), (1,)), ((), ())))
    output = jnp.einsum("...oj,...j->...o", half, input2)
    return output if bias is None else plus(output, bias)


def _check_sizes(
    input1: jax.Array, input2: jax.Array, weight: jax.Array, bias: jax.Array | None
) -> None:
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for place, (one, other) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if one != other:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {place}: got {one} and {other}"
            )
    for name, input, place in (("input1", input1, 1), ("input2", input2, 2)):
        size, expected = _size(input, -1), _size(weight, place)
        if size != expected:
            raise RuntimeError(
                f"bilinear(): {name} size does not match weight size: "
                f"got {size} but expected {expected}"
            )
    if weight.ndim > 3:
        raise RuntimeError("number of dimensions must match")
    if bias is not None and _size(bias, 0) != weight.shape[0]:
        raise RuntimeError(
            "bilinear(): bias size does not match weight size: "
            f"got {bias.shape[0]} but expected {weight.shape[0]}"
        )


def _size(array: jax.Array, dim: int) -> int:
    if array.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return array.shape[axis(dim, array.ndim)]


def _check_dtypes(
    input1: jax.Array, input2: jax.Array, weight: jax.Array, bias: jax.Array | None
) -> None:
    named = {"input1": input1, "input2": input2, "weight": weight}
    if bias is not None:
        named["bias"] = bias
    if len({array.dtype for array in named.values()}) > 1:
        listed = ", ".join(f"{name}: {cpp_type(array.dtype)}" for name, array in named.items())
        raise RuntimeError(f"All tensors must have the same dtype, got {listed}")
    if weight.dtype == bool:
        raise NotImplementedError("\"bmm\" not implemented for 'Bool'")
