"""Matrix products of groups of rows, each with a matrix of its own (mixtures of experts).

Which axis is cut into groups follows from the number of axes of the operands: the rows of ``mat_a``,
the columns of ``mat_b``, or what is contracted. How long a group is depends on values, which no shape
can: each group goes through all of the axis, masked. ``lax.ragged_dot`` would not have to, on a TPU,
but it has no second derivative, no ``vmap``, and none of the third kind's gradients.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from purestate.nn.functional._dtypes import cpp_type, scalar_type
from purestate.nn.functional._varying import varying_alike


__all__ = ["grouped_mm"]

_DTYPES = (jnp.float32, jnp.bfloat16, jnp.float16)


@functools.partial(jax.jit, static_argnames=("out_dtype",))
def grouped_mm(
    mat_a: jax.Array,
    mat_b: jax.Array,
    *,
    offs: jax.Array | None = None,
    bias: jax.Array | None = None,
    out_dtype: DTypeLike | None = None,
) -> jax.Array:
    """Multiply group by group (``torch.nn.functional.grouped_mm``).

    ``offs[i]`` is where group ``i`` ends; it begins where the one before it ends. What lies past
    the last offset is in no group: it gives zeros, where torch leaves its memory as it was. Sizes
    may be any; torch wants rows of a multiple of 16 bytes.

    Args:
        mat_a: ``(M, K)`` or ``(G, M, K)``; float32, bfloat16 or float16.
        mat_b: ``(K, N)`` or ``(G, K, N)`` in the same dtype.
        offs: ``(G,)``, int32 in rising order: the ends of the groups of ``M`` (2-D by 3-D), ``N``
            (3-D by 2-D) or ``K`` (2-D by 2-D). None for 3-D by 3-D.
        bias: Only None, as in torch.
        out_dtype: The dtype of ``mat_a``, or None for it.

    Returns:
        ``(M, N)`` where one operand is 2-D, ``(G, M, N)`` otherwise.

    Raises:
        RuntimeError: Shapes, dtypes or options that do not fit.
    """
    _check(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return mat_a @ mat_b
    if mat_b.ndim == 3:
        return _rows(mat_a, mat_b, offs)
    if mat_a.ndim == 3:
        return _rows(mat_b.T, mat_a.transpose(0, 2, 1), offs).T

    def contracted(group: jax.Array) -> jax.Array:
        return jnp.where(group, mat_a, 0) @ jnp.where(group[:, None], mat_b, 0)

    return lax.map(contracted, _groups(offs, mat_b.shape[0]))


def _groups(offs: jax.Array, length: int) -> jax.Array:
    """Which places each group holds, ``(G, length)``."""
    place, starts = jnp.arange(length), jnp.pad(offs[:-1], (1, 0))
    return (starts[:, None] <= place) & (place < offs[:, None])


def _rows(rows: jax.Array, matrices: jax.Array, offs: jax.Array) -> jax.Array:
    """``(M, K)`` by ``(G, K, N)``: each row by the matrix of its group."""

    def step(output: jax.Array, group: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        matrix, is_here = group[0], group[1][:, None]
        # Masked on both sides: what is not finite elsewhere reaches neither values nor gradients.
        return jnp.where(is_here, jnp.where(is_here, rows, 0) @ matrix, output), None

    nothing = jnp.zeros((rows.shape[0], matrices.shape[2]), rows.dtype)
    groups = _groups(offs, rows.shape[0])
    # Rows are used in every step: a sum over members, in the gradient, is wanted once.
    nothing, rows, matrices, groups = varying_alike((nothing, rows, matrices, groups))
    return lax.scan(step, nothing, (matrices, groups))[0]


def _check(mat_a, mat_b, offs, bias, out_dtype) -> None:
    for name, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.dtype not in _DTYPES:
            raise RuntimeError(
                f"Expected {name} to be Float32, BFloat16 or Float16 matrix, "
                f"got {scalar_type(matrix.dtype)}"
            )
    for name, matrix in (("mat_a", mat_a), ("mat_b", mat_b)):
        if matrix.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    is_flat = mat_a.ndim == 2 or mat_b.ndim == 2
    if is_flat != (offs is not None):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if offs is not None and offs.ndim != 1:
        raise RuntimeError("offs has to be 1D")
    if offs is not None and offs.dtype != jnp.int32:
        raise RuntimeError("Offsets have to be int32")
    if offs is None and mat_a.shape[0] != mat_b.shape[0]:
        raise RuntimeError("batched dimension has to match")
    for matrix in (mat_a, mat_b):
        if offs is not None and matrix.ndim == 3 and matrix.shape[0] != offs.shape[0]:
            raise RuntimeError("matrix batch sizes have to match")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and jnp.dtype(out_dtype) != mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if mat_a.dtype != mat_b.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, "
            f"but got: {cpp_type(mat_a.dtype)} != {cpp_type(mat_b.dtype)}"
        )
