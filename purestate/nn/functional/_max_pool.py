"""Maximum pooling: the first largest entry of every window.

The taps of a window are compared one after the other and a tap replaces the best so far only if it
is larger, or NaN. That is torch's own loop: of equal entries the first wins, and with it gets the
whole gradient; a NaN always wins. Positions are carried along the same way when they are asked for.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from purestate.nn.functional._elementwise import check_kernel
from purestate.nn.functional._options import IntOrInts, ints, listed
from purestate.nn.functional._windows import Axis, output_size, padded, taps, windows


__all__ = [
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
]


Pooled = jax.Array | tuple[jax.Array, jax.Array]


def max_pool1d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest entry of every window along one axis.

    The counterpart of ``torch.nn.functional.max_pool1d``. Options and results as in ``max_pool2d``.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` without a batch.
        kernel_size: Size of the window.
        stride: Step of the window; its own size by default.
        padding: Entries of minus infinity at both ends, at most half the window.
        dilation: Distance between the entries of a window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        return_indices: Return positions too.

    Returns:
        ``(N, C, L_out)`` (no ``N`` without a batch), or the pair of it and the positions in ``L``.

    Raises:
        RuntimeError: The window does not fit, or an option is out of its range.
        NotImplementedError: Integers without ``return_indices``, as in torch.
    """
    return _call(
        1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=return_indices
    )


def max_pool1d_with_indices(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """``max_pool1d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.max_pool1d_with_indices``.
    """
    del return_indices
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest entry of every window over two axes.

    The counterpart of ``torch.nn.functional.max_pool2d``.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` without a batch; floating-point or integer.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Entries of minus infinity at both ends, at most half the window.
        dilation: Distance between the entries of a window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        return_indices: Return positions too.

    Returns:
        ``(N, C, H_out, W_out)`` (no ``N`` without a batch) in the input's dtype, or the pair of it
        and the positions: ``row * W + column`` in the default integer dtype.

    Raises:
        RuntimeError: The window does not fit, or an option is out of its range.
        NotImplementedError: The input is of booleans or complex numbers.
    """
    return _call(
        2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=return_indices
    )


def max_pool2d_with_indices(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """``max_pool2d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.max_pool2d_with_indices``.
    """
    del return_indices
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest entry of every window over three axes.

    The counterpart of ``torch.nn.functional.max_pool3d``. Options and results as in ``max_pool2d``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(C, D, H, W)`` without a batch.
        kernel_size: Size of the window, one int or one per axis.
        stride: Step of the window; its own size by default.
        padding: Entries of minus infinity at both ends, at most half the window.
        dilation: Distance between the entries of a window.
        ceil_mode: Count the last window that starts inside although it ends outside.
        return_indices: Return positions too.

    Returns:
        ``(N, C, D_out, H_out, W_out)`` (no ``N`` without a batch), or the pair of it and the
        positions: ``(plane * H + row) * W + column``.
    """
    return _call(
        3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=return_indices
    )


def max_pool3d_with_indices(
    input: jax.Array,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """``max_pool3d`` with positions, whatever ``return_indices`` says.

    The counterpart of ``torch.nn.functional.max_pool3d_with_indices``.
    """
    del return_indices
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _call(n, input, kernel_size, stride, padding, dilation, ceil_mode, *, return_indices) -> Pooled:
    return _max_pool(
        input,
        n=n,
        kernel=ints(kernel_size),
        stride=() if stride is None else ints(stride),
        padding=ints(padding),
        dilation=ints(dilation),
        ceil_mode=bool(ceil_mode),
        return_indices=bool(return_indices),
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        "n",
        "kernel",
        "stride",
        "padding",
        "dilation",
        "ceil_mode",
        "return_indices",
    ),
)
def _max_pool(
    input: jax.Array,
    *,
    n: int,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    return_indices: bool,
) -> Pooled:
    if n == 1 and not return_indices:
        _check_plain(input, kernel, stride, padding, dilation, ceil_mode)
    axes = windows(f"max_pool{n}d", input.shape, kernel, stride, padding, dilation, ceil_mode, n)
    if n == 1 and not return_indices:
        check_kernel("max_pool1d_impl", input)
    elif input.dtype == bool or jnp.iscomplexobj(input):
        check_kernel(f"max_pool{max(n, 2)}d", input)
    best = padded(input, axes, _lowest(input.dtype))
    positions = _positions(axes) if return_indices else None
    for place in reversed(range(input.ndim - n, input.ndim)):
        axis = axes[place - input.ndim]
        best, positions = _along(best, positions, place, axis)
    if positions is None:
        return best
    # Windows of one entry compare nothing, and so no batch or channel has met the positions yet.
    return best, jnp.broadcast_to(positions, best.shape)


def _along(
    x: jax.Array, positions: jax.Array | None, place: int, axis: Axis
) -> tuple[jax.Array, jax.Array | None]:
    """The best entry of every window along one axis, and where it came from."""
    best, *others = taps(x, place, axis)
    if positions is None:
        for position, tap in enumerate(others, 1):
            best = jnp.where(_is_better(tap, best, position, place, axis), tap, best)
        return best, None
    whole = positions.reshape((1,) * (x.ndim - positions.ndim) + positions.shape)
    where, *other_positions = taps(whole, place, axis)
    for position, (tap, origin) in enumerate(zip(others, other_positions, strict=True), 1):
        better = _is_better(tap, best, position, place, axis)
        best, where = jnp.where(better, tap, best), jnp.where(better, origin, where)
    return best, where


def _is_better(tap: jax.Array, best: jax.Array, position: int, place: int, axis: Axis) -> jax.Array:
    """Where the tap at a position in the windows wins against what came before it.

    The first entry of the input in a window wins against padding, even if it is minus infinity.
    """
    better = (tap > best) | (tap != tap)
    # The windows that begin so far before the input that this is their first entry of it.
    first, end = (
        max(0, -(-(axis.padding - reach * axis.dilation) // axis.stride))
        for reach in (position, position - 1)
    )
    if first >= end:
        return better
    # Of a stored mask XLA would make a loop of its own, in the gradient.
    window = lax.broadcasted_iota(jnp.int32, tap.shape, place)
    return better | ((first <= window) & (window < end))


def _positions(axes: tuple[Axis, ...]) -> jax.Array:
    """The flat position of every entry of the padded axes; -1 in the padding, which never wins."""
    sizes = [axis.size for axis in axes]
    numbers = jnp.arange(np.prod(sizes, dtype=int)).reshape(sizes)
    return padded(numbers, axes, jnp.asarray(-1, numbers.dtype))


def _lowest(dtype: jnp.dtype) -> jax.Array:
    lowest = -jnp.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min
    return jnp.asarray(lowest, dtype)


def _check_plain(
    input: jax.Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> None:
    """Torch pools one axis without positions in a function of its own, with its own texts."""
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got:{listed(input.shape)}"
        )
    for option, value, kinds in (
        ("kernel_size", kernel, "an int, list of ints or tuple of ints"),
        ("stride", stride or kernel, "None, an int, list of ints, or tuple of ints"),
        ("padding", padding, "an int, list of ints, or tuple of ints"),
        ("dilation", dilation, "an int, list of ints or tuple of ints"),
    ):
        if len(value) != 1:
            raise RuntimeError(
                f"max_pool1d() {option} must be {kinds} of size 1 but got size {len(value)}"
            )
    (size,), (step,), (pad,), (gap,) = kernel, stride or kernel, padding, dilation
    for option, value in (("kernel_size", size), ("stride", step)):
        if value <= 0:
            raise RuntimeError(f"max_pool1d() {option} must be greater than zero, but got {value}")
    if pad < 0:
        raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {pad}")
    if gap <= 0:
        raise RuntimeError(f"max_pool1d() dilation must be greater than zero, but got {gap}")
    if pad > ((size - 1) * gap + 1) / 2:
        raise RuntimeError(
            "max_pool1d() padding should be at most half of kernel size, "
            f"but got padding={pad} and kernel_size={size}"
        )
    count = output_size(input.shape[-1], size, step, pad, gap, ceil_mode)
    if count <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {count}")
