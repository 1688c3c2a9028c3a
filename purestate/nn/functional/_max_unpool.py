"""Undo maximum pooling as far as it goes: each maximum back at its position, zeros elsewhere.

Windows that overlap can name one position twice. As in torch, the last value written stays (all are
the same maximum, if they come from pooling), and the gradient at the position goes to each of them.
So the value comes from a scatter that writes and the derivative from one that adds, joined by
``graft``.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._graft import graft
from purestate.nn.functional._known import known
from purestate.nn.functional._options import IntOrInts, listed, per_axis


__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]


def max_unpool1d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> jax.Array:
    """Maxima back at their positions along one axis.

    The counterpart of ``torch.nn.functional.max_unpool1d``. Arguments and errors as in
    ``max_unpool2d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch.
        indices: Positions in ``L_out``, in the input's shape.
        kernel_size: Size of the window that was pooled.
        stride: Step of the window; its own size by default.
        padding: What was added at both ends.
        output_size: ``(L_out,)`` or the whole shape of the output.

    Returns:
        ``(N, C, L_out)``, or ``(C, L_out)`` without a batch.
    """
    return _call(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> jax.Array:
    """Maxima back at their positions over two axes.

    The counterpart of ``torch.nn.functional.max_unpool2d``. Positions are checked where their
    values are known; under a transformation that hides them (``jit``, ``vmap``) a value whose
    position is outside of the output is left out.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point.
        indices: ``row * W_out + column`` of each entry, as ``max_pool2d`` returns them: integers of
            32 or 64 bits in the input's shape.
        kernel_size: Size of the window that was pooled, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: What was added at both ends, one int or one per axis.
        output_size: ``(H_out, W_out)`` or the whole shape of the output, less than a stride away
            from ``(size - 1) * stride + kernel_size - 2 * padding``, the default.

    Returns:
        ``(N, C, H_out, W_out)``, or ``(C, H_out, W_out)`` without a batch; in the input's dtype.

    Raises:
        ValueError: The output size is too far from the default, or negative.
        RuntimeError: A position is outside of the output, or shapes or dtypes do not fit.
        NotImplementedError: The input is of integers.
    """
    return _call(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: jax.Array,
    indices: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> jax.Array:
    """Maxima back at their positions over three axes.

    The counterpart of ``torch.nn.functional.max_unpool3d``. Arguments and errors as in
    ``max_unpool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch.
        indices: ``(plane * H_out + row) * W_out + column`` of each entry, in the input's shape.
        kernel_size: Size of the window that was pooled, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: What was added at both ends, one int or one per axis.
        output_size: ``(D_out, H_out, W_out)`` or the whole shape of the output.

    Returns:
        ``(N, C, D_out, H_out, W_out)``, or without ``N``.
    """
    return _call(3, input, indices, kernel_size, stride, padding, output_size)


def _call(n, input, indices, kernel_size, stride, padding, output_size):
    kernel = per_axis(kernel_size, n)
    steps = kernel if stride is None else per_axis(stride, n)
    pads = per_axis(padding, n)
    sizes = _sizes(input, kernel, steps, pads, output_size)
    _check(n, input, indices, steps, pads)
    if known(indices) and 0 not in sizes:  # Torch has nowhere to write, and does not look.
        _check_positions(indices, sizes)
    return _unpool(input, indices, sizes=sizes)


@functools.partial(jax.jit, static_argnames="sizes")
def _unpool(input: jax.Array, indices: jax.Array, *, sizes: tuple[int, ...]) -> jax.Array:
    lead = input.shape[: input.ndim - len(sizes)]
    planes = (-1, math.prod(input.shape[len(lead) :]))

    def back(method: str, values: jax.Array) -> jax.Array:
        def plane(values: jax.Array, positions: jax.Array) -> jax.Array:
            empty = jnp.zeros(math.prod(sizes), values.dtype)
            write = getattr(empty.at[positions], method)
            return write(values, mode="drop", wrap_negative_indices=False)

        return jax.vmap(plane)(values.reshape(planes), indices.reshape(planes))

    if not input.size or 0 in sizes:
        return jnp.zeros((*lead, *sizes), input.dtype)
    output = graft(back("set", jax.lax.stop_gradient(input)), back("add", input))
    return output.reshape(*lead, *sizes)


def _sizes(
    input: jax.Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_size: Sequence[int] | None,
) -> tuple[int, ...]:
    """The sizes of the output: the default ones, or the wanted ones if they are near enough."""
    n = len(kernel)
    default = [(input.shape[d - n] - 1) * stride[d] + kernel[d] - 2 * padding[d] for d in range(n)]
    if output_size is None:
        sizes = default
    else:
        sizes = output_size[2:] if len(output_size) == n + 2 else output_size
        if len(sizes) != n:
            raise ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, "
                f"but it has a length of '{len(sizes)}'"
            )
        for d in range(n):
            low, high = default[d] - stride[d], default[d] + stride[d]
            if not low < sizes[d] < high:
                raise ValueError(
                    f'invalid output_size "{sizes}" (dim {d} must be between {low} and {high})'
                )
    for d, size in enumerate(sizes):
        if size < 0:
            raise ValueError(
                "max_unpooling: output_size must contain non-negative spatial dimensions, "
                f"but got output_size[{d}]={size}"
            )
    return tuple(int(size) for size in sizes)


def _check(
    n: int,
    input: jax.Array,
    indices: jax.Array,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> None:
    of = max(n, 2)  # torch unpools one axis as two, the second of size one
    one = (1,) if n == 1 else ()
    shape = (*input.shape, *one)
    if indices.dtype not in (jnp.int32, jnp.int64):
        got = "" if n == 3 else f" but got: {scalar_type(indices.dtype)}"
        raise RuntimeError(f"elements in indices should be type int64{got}")
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to max_unpooling{of}d should be a {of + 1}d or {of + 2}d Tensor, "
            f"but got a tensor with {len(shape)} dimensions."
        )
    if n == 3:
        for name, option in (("stride", stride), ("padding", padding)):
            if len(option) != 3:
                raise RuntimeError(
                    "There should be exactly three elements (depth, height, width) in "
                    f"{name}, but got: {len(option)} elements."
                )
    if indices.shape != input.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({listed(shape)}) "
            f"but got indices tensor with shape: {listed((*indices.shape, *one))}"
        )
    if 0 in shape[1:]:
        raise RuntimeError(
            f"max_unpooling{of}d_forward_out_cpu(): Expected input to have non-zero size for "
            f"non-batch dimensions, but got {listed(shape)} with dimension {shape.index(0, 1)} "
            "being empty."
        )
    if n == 3 and min(stride) <= 0:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {listed(stride)}")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise NotImplementedError(
            f"\"max_unpool{of}d\" not implemented for '{scalar_type(input.dtype)}'"
        )


def _check_positions(indices: jax.Array, sizes: tuple[int, ...]) -> None:
    positions = np.asarray(indices)
    wrong = positions[(positions < 0) | (positions >= math.prod(sizes))]
    if wrong.size:
        volume = "x".join(map(str, sizes if len(sizes) > 1 else (*sizes, 1)))
        raise RuntimeError(
            f"Found an invalid max index: {wrong.flat[0]} (output volumes are of size {volume})"
        )
