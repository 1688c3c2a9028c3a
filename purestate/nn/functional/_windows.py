"""Sliding windows over the last axes, one axis at a time.

A maximum or a sum over a window is the maximum or sum over its columns, taken over its rows. So
pooling goes through the axes one by one, last first, and on each axis combines the window's *taps*:
strided slices of the padded array, one for each position in the window. This is plain slicing, so
every derivative follows by itself, with dilation too, which XLA's own window reduction lacks.

The size rules and their errors are torch's and shared by maximum and average pooling.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
from jax import lax

from purestate.nn.functional._options import expanded, listed


_COUNTS = ("one int", "two ints", "three ints")


class Axis(NamedTuple):
    """The windows along one axis."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    output: int

    @property
    def high_padding(self) -> int:
        """What the windows read behind the end; with a ceiling it can be more than ``padding``."""
        reach = (self.output - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return max(0, reach - self.size - self.padding)


def padded(x: jax.Array, axes: Sequence[Axis], fill: jax.Array) -> jax.Array:
    """``x`` with ``fill`` around its last axes, as far as the windows reach."""
    config = [(0, 0, 0)] * (x.ndim - len(axes))
    config += [(axis.padding, axis.high_padding, 0) for axis in axes]
    return lax.pad(x, fill, config)


def taps(x: jax.Array, place: int, axis: Axis) -> Iterator[jax.Array]:
    """For each position in the window along the axis at ``place``: its entry in every window."""
    last = (axis.output - 1) * axis.stride
    for position in range(axis.kernel):
        start = position * axis.dilation
        yield lax.slice_in_dim(x, start, start + last + 1, axis.stride, place)


def output_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """The number of windows along one axis, with torch's checks of a single axis."""
    if stride == 0:
        raise RuntimeError("stride should not be zero")
    if padding < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {padding}")
    if padding > int(((kernel - 1) * dilation + 1) / 2):
        raise RuntimeError(
            "pad should be at most half of effective kernel size, "
            f"but got pad={padding}, kernel_size={kernel} and dilation={dilation}"
        )
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (free + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # the last window must start inside the input or the low padding
    return count


def check_count(name: str, option: str, value: Sequence[int], n: int, allow_none: bool) -> None:
    """An option of pooling has one entry or one per axis; torch words it three ways."""
    if len(value) in (1, n):
        return
    if n == 1:
        raise RuntimeError(f"{name}() argument '{option}' should contain one int (got {len(value)})")
    either = "" if name == "avg_pool3d" else "either "
    must = "must be either " if option == "dilation" else f"must {either}be "
    omitted = "omitted, " if allow_none else ""
    raise RuntimeError(f"{name}: {option} {must}{omitted}a single int, or a tuple of {_COUNTS[n - 1]}")


def check_positive(axes: Sequence[Axis], *, dilated: bool) -> None:
    """Kernel, stride and dilation are greater than zero."""
    names = "THW" if len(axes) == 3 else "HW"
    if len(axes) == 1:  # torch pools one axis as two, the first of size one
        axes = (Axis(1, 1, 1, 0, 1, 1), *axes)
    options = [("kernel size", "k", "kernel"), ("stride", "d", "stride")]
    if dilated:
        options.append(("dilation", "dilation", "dilation"))
    for title, letter, field in options:
        values = [getattr(axis, field) for axis in axes]
        if min(values) <= 0:
            got = " ".join(f"{letter}{a}: {v}" for a, v in zip(names, values, strict=True))
            raise RuntimeError(f"{title} should be greater than zero, but got {got}")


def check_input(name: str, shape: Sequence[int], n: int) -> None:
    """The input has its axes, and none of them is empty but the batch."""
    if len(shape) not in (n + 1, n + 2):
        if n == 1:
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {len(shape)}-dimensional tensor for argument "
                f"#1 'self' (while checking arguments for {name})"
            )
        if name != "avg_pool2d":
            raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
        if not shape:
            raise IndexError("Dimension specified as -3 but tensor has no dimensions")
        if len(shape) < 3:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{len(shape)}, "
                f"{len(shape) - 1}], but got -3)"
            )
        raise RuntimeError(_EMPTY.format(listed(shape)))
    if 0 in shape[-n - 1 :]:
        if n == 3:
            template = "max_pool3d_with_indices_out_cpu_template"
            where = template if name == "max_pool3d" else name
            raise RuntimeError(
                f"{where}(): Expected input's non-batch dimensions to have positive length, but "
                f"input has a shape of {listed(shape)} and non-batch dimension 0 has length zero!"
            )
        shown = [*shape[:-1], 1, shape[-1]] if n == 1 else shape
        raise RuntimeError(_EMPTY.format(listed(shown)))


_EMPTY = "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:{}"


def check_output(name: str, channels: int, axes: Sequence[Axis]) -> None:
    """Every axis has room for a window."""
    if name == "avg_pool3d" and any(axis.size < axis.kernel for axis in axes):
        sizes = " ".join(f"{a}: {axis.size}" for a, axis in zip("THW", axes, strict=True))
        kernel = " ".join(f"k{a}: {axis.kernel}" for a, axis in zip("THW", axes, strict=True))
        raise RuntimeError(f"input image ({sizes}) smaller than kernel size ({kernel})")
    if min(axis.output for axis in axes) < 1:
        one = (1,) if len(axes) == 1 else ()
        before = "x".join(map(str, (channels, *one, *(axis.size for axis in axes))))
        after = "x".join(map(str, (channels, *one, *(axis.output for axis in axes))))
        raise RuntimeError(
            f"Given input size: ({before}). Calculated output size: ({after}). Output size is too small"
        )


def windows(
    name: str,
    shape: Sequence[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    n: int,
) -> tuple[Axis, ...]:
    """The windows along each of the last ``n`` axes, all checks made."""
    check_count(name, "kernel_size", kernel, n, allow_none=False)
    check_count(name, "stride", stride or kernel, n, allow_none=True)
    check_count(name, "padding", padding, n, allow_none=False)
    check_count(name, "dilation", dilation, n, allow_none=False)
    kernel, stride, padding, dilation = (
        expanded(value, n) for value in (kernel, stride or kernel, padding, dilation)
    )
    if len(shape) not in (n + 1, n + 2):
        check_input(name, shape, n)
    options = list(zip(shape[-n:], kernel, stride, padding, dilation, strict=True))
    axes = tuple(Axis(*option, output_size(*option, ceil_mode)) for option in options)
    check_positive(axes, dilated=name.startswith("max"))
    check_input(name, shape, n)
    check_output(name, shape[-n - 1], axes)
    return axes
