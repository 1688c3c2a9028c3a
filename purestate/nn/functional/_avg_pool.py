"""Average pooling: the sum of every window over a divisor that does not depend on the data.

What counts as the window's size at the border is torch's rule: with ``count_include_pad`` the part
inside the padded input (but not what only a ceiling adds), without it the part inside the input.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._elementwise import check_kernel
from purestate.nn.functional._options import IntOrInts, ints
from purestate.nn.functional._windows import Axis, padded, taps, windows


__all__ = ["avg_pool1d", "avg_pool2d", "avg_pool3d"]


def avg_pool1d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> jax.Array:
    """The mean of every window along one axis.

    The counterpart of ``torch.nn.functional.avg_pool1d``. Options as in ``avg_pool2d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch.
        kernel_size: Size of the window.
        stride: Step of the window; its own size by default.
        padding: Zeros at both ends, at most half the window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        count_include_pad: Count the padding in the mean.

    Returns:
        ``(N, C, L_out)``, or ``(C, L_out)`` without a batch.
    """
    return _call(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """The mean of every window over two axes.

    The counterpart of ``torch.nn.functional.avg_pool2d``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Zeros at both ends, at most half the window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        count_include_pad: Count the padding in the mean.
        divisor_override: Divide by this number everywhere.

    Returns:
        ``(N, C, H_out, W_out)`` (no ``N`` without a batch) in the input's dtype; half types are
        summed in float32, integers are divided towards zero.

    Raises:
        RuntimeError: The window does not fit, or an option is out of its range.
        NotImplementedError: The dtype is neither floating-point nor int32 or int64.
    """
    return _call(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """The mean of every window over three axes.

    The counterpart of ``torch.nn.functional.avg_pool3d``. Options and errors as in ``avg_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Zeros at both ends, at most half the window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        count_include_pad: Count the padding in the mean.
        divisor_override: Divide by this number everywhere.

    Returns:
        ``(N, C, D_out, H_out, W_out)`` (no ``N`` without a batch).
    """
    return _call(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _call(n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    return _avg_pool(
        input,
        n=n,
        kernel=ints(kernel_size),
        stride=() if stride is None else ints(stride),
        padding=ints(padding),
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
        divisor=divisor_override,
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        "n",
        "kernel",
        "stride",
        "padding",
        "ceil_mode",
        "count_include_pad",
        "divisor",
    ),
)
def _avg_pool(
    input: jax.Array,
    *,
    n: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> jax.Array:
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    axes = windows(f"avg_pool{n}d", input.shape, kernel, stride, padding, (1,), ceil_mode, n)
    if input.dtype not in (jnp.int32, jnp.int64):
        check_kernel("avg_pool3d_out_frame" if n == 3 else "avg_pool2d", input)
    total = widen(input)
    total = padded(total, axes, jnp.zeros((), total.dtype))
    for place in reversed(range(input.ndim - n, input.ndim)):
        total = functools.reduce(lax.add, taps(total, place, axes[place - input.ndim]))
    counts = np.asarray(divisor) if divisor is not None else _counts(axes, count_include_pad)
    mean = lax.div(total, jnp.broadcast_to(jnp.asarray(counts, total.dtype), total.shape))
    return mean.astype(input.dtype)


def _counts(axes: tuple[Axis, ...], count_include_pad: bool) -> np.ndarray:
    """The divisor of every window; one number if it is the same for all."""
    along = []
    for axis in axes:
        start = np.arange(axis.output) * axis.stride - axis.padding
        end = np.minimum(start + axis.kernel, axis.size + axis.padding)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, axis.size)
        along.append(np.maximum(end - start, 1))
    if all(len(set(counts.tolist())) == 1 for counts in along):
        return np.asarray(math.prod(int(counts[0]) for counts in along))
    return functools.reduce(np.multiply, np.ix_(*along))
