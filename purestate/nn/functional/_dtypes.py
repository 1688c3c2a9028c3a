"""Dtypes as torch's functionals treat them.

Torch never promotes: two arguments of different dtype are an error, and the error names the dtype
twice over, as a scalar type (``Float``) or as a C++ type (``float``). Half types are the one case
where the arithmetic is wider than the result: reductions run in float32 and the result is cast back
(``widen``). The gradient of a broadcast is a reduction, too (``plus``,
``spread``).
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


_SCALAR_TYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}

_CPP_TYPES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}


def scalar_type(dtype: DTypeLike) -> str:
    """Torch's scalar type for a dtype: ``Float`` for float32."""
    name = jnp.dtype(dtype).name
    return _SCALAR_TYPES.get(name, name)


def cpp_type(dtype: DTypeLike) -> str:
    """The C++ type that torch's errors print for a dtype: ``float`` for float32."""
    name = jnp.dtype(dtype).name
    return _CPP_TYPES.get(name, name)


def is_half(dtype: DTypeLike) -> bool:
    """Whether a dtype is a 16-bit floating type."""
    return jnp.dtype(dtype) in (jnp.dtype(jnp.float16), jnp.dtype(jnp.bfloat16))


def widen(array: jax.Array) -> jax.Array:
    """The array in the dtype that torch computes reductions in: float32 for half types."""
    return array.astype(jnp.float32) if is_half(array.dtype) else array


def plus(output: jax.Array, bias: jax.Array) -> jax.Array:
    """``output + bias`` for a bias that broadcasts; halves are added in float32.

    As torch does, whose products add the bias before they round; and see :func:`spread`.
    """
    if not is_half(output.dtype):
        return output + bias
    return (widen(output) + widen(bias)).astype(output.dtype)


def spread(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """A half array broadcast to a shape; another one as it is, to be broadcast where it is used.

    The gradient is a sum over all that the array was spread to. JAX sums in the array's dtype, and
    in bfloat16 such a sum stops at 256 ones; torch sums in float32 and rounds once. The casts cost
    nothing forward.
    """
    if not is_half(array.dtype) or array.shape == shape:
        return array
    return jnp.broadcast_to(widen(array), shape).astype(array.dtype)
