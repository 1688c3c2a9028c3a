"""Power-average pooling: the p-norm of every window.

It is made of average pooling, as in torch: the mean of the p-th powers, times the size of the
window, to the power ``1 / p``. With that come two of torch's habits: a window that a ceiling lets
reach outside counts as if it were whole, and negative entries keep their sign under the power (for
an odd ``p`` a sum can be negative, and its root is NaN). For an infinite ``p`` the norm is the
largest or the smallest absolute value.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from purestate.nn.functional._avg_pool import avg_pool1d, avg_pool2d, avg_pool3d
from purestate.nn.functional._elementwise import absolute
from purestate.nn.functional._max_pool import max_pool1d, max_pool2d, max_pool3d
from purestate.nn.functional._options import IntOrInts, expanded, ints, per_axis


__all__ = ["lp_pool1d", "lp_pool2d", "lp_pool3d"]


def lp_pool1d(
    input: jax.Array,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> jax.Array:
    """The p-norm of every window along one axis.

    The counterpart of ``torch.nn.functional.lp_pool1d``. Options and errors as in ``lp_pool2d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch.
        norm_type: The ``p`` of the norm.
        kernel_size: Size of the window.
        stride: Step of the window; its own size by default.
        ceil_mode: Count the last window that starts inside although it ends outside.

    Returns:
        ``(N, C, L_out)``, or ``(C, L_out)`` without a batch.
    """
    return _call(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: jax.Array,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> jax.Array:
    """The p-norm of every window over two axes.

    The counterpart of ``torch.nn.functional.lp_pool2d``. Where the sum of the powers is zero, so is
    the gradient.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch.
        norm_type: The ``p`` of the norm, a Python number; infinite ones too.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        ceil_mode: Count the last window that starts inside although it ends outside.

    Returns:
        ``(N, C, H_out, W_out)``, or ``(C, H_out, W_out)`` without a batch; in the input's dtype.

    Raises:
        RuntimeError: The window does not fit, or an option is out of its range.
        ValueError: ``kernel_size`` has another number of entries.
        ZeroDivisionError: ``norm_type`` is zero.
    """
    return _call(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: jax.Array,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> jax.Array:
    """The p-norm of every window over three axes.

    The counterpart of ``torch.nn.functional.lp_pool3d``. Options and errors as in ``lp_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch.
        norm_type: The ``p`` of the norm.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        ceil_mode: Count the last window that starts inside although it ends outside.

    Returns:
        ``(N, C, D_out, H_out, W_out)``, or without ``N``.
    """
    return _call(3, input, norm_type, kernel_size, stride, ceil_mode)


def _call(n, input, norm_type, kernel_size, stride, ceil_mode):
    kernel = ints(kernel_size)
    if n > 1 and len(per_axis(kernel_size, n)) != n:
        problem = "too many values" if len(kernel) > n else "not enough values"
        got = "" if len(kernel) > n else f", got {len(kernel)}"
        raise ValueError(f"{problem} to unpack (expected {n}{got})")
    return _lp_pool(
        input,
        n=n,
        p=norm_type,
        kernel=kernel,
        stride=kernel if stride is None else ints(stride),
        ceil_mode=bool(ceil_mode),
    )


@functools.partial(jax.jit, static_argnames=("n", "p", "kernel", "stride", "ceil_mode"))
def _lp_pool(
    input: jax.Array,
    *,
    n: int,
    p: float,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    ceil_mode: bool,
) -> jax.Array:
    largest: Any = (max_pool1d, max_pool2d, max_pool3d)[n - 1]
    mean = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]
    if math.isinf(p):
        size = absolute(input)
        if p > 0:
            return largest(size, kernel, stride, 0, 1, ceil_mode)
        return -largest(-size, kernel, stride, 0, 1, ceil_mode)
    # An integer power is a product: exact, and faster.
    powers = input ** (int(p) if float(p).is_integer() else p)
    count = math.prod(expanded(kernel, n))
    total = mean(powers, kernel, stride, 0, ceil_mode) * count
    root = 1.0 / p
    # The root has an infinite slope at zero, where torch sets the gradient to zero.
    somewhere = jnp.where(total == 0, 1, total)
    return jnp.where(total == 0, 0.0 if p > 0 else jnp.inf, somewhere**root)
