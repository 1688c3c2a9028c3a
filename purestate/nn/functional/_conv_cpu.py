"""Convolutions that XLA's CPU backend is slow at, written as what it is fast at.

XLA runs a convolution well as long as the output is at least as large as the kernel. Below that it
leaves its vectorised path (3x3 on 2x2 maps: 65 times slower than torch), as it does for one channel
per group (20 times); a 1x1 kernel pays for a layout it does not need. ``choose`` finds these cases
from the shapes and answers with one of two programs:

* ``columns``: the taps of the kernel as slices, one above the other, and one matrix product. The
  weight, large where the maps are small, is used as it lies;
* ``depthwise``: one shifted multiply-add per tap, in one fused loop. Reverse mode gathers as the
  forward pass does, where the derived program would scatter.

Figures and what was tried: docs/design/0013
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import lax

from purestate.nn.functional._dtypes import is_half, widen
from purestate.nn.functional._forms import all_known, merging_pays
from purestate.nn.functional._transposed import with_cotangents


INFLATION = 64
"""How many times the input the columns may be; beyond it memory would be the slower part."""

TAPS = 64
"""The largest kernel that is unrolled into one multiply-add per tap."""

Pads = tuple[tuple[int, int], ...]
Ints = tuple[int, ...]


def choose(
    shape: Ints, kernel: Ints, stride: Ints, pads: Pads, dilation: Ints, groups: int
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """The program for these shapes, of ``(input, weight)``; None where XLA's own is the fast one.

    Args:
        shape: Of the input, ``(N, C, ...)``.
        kernel: Of the weight, ``(O, C // groups, ...)``.
        stride: One entry per spatial axis, as are the others.
        pads: Zeros before and after.
        dilation: Distance between taps.
        groups: Blocks of channels.
    """
    taps = kernel[2:]
    outputs = _output_sizes(shape[2:], taps, stride, pads, dilation)
    if 0 in shape or 0 in kernel or 0 in outputs:
        return None
    if groups == shape[1] == kernel[0] and groups > 1 and math.prod(taps) <= TAPS:
        return functools.partial(depthwise, stride=stride, pads=pads, dilation=dilation)
    pointwise = math.prod(taps) == 1
    if pointwise or (all_known(*outputs) and _starved(shape[2:], outputs, taps)):
        return functools.partial(columns, stride=stride, pads=pads, dilation=dilation, groups=groups)
    return None


def _starved(inputs: Ints, outputs: Ints, taps: Ints) -> bool:
    """Whether an output is smaller than the kernel, and columns take no more memory than they may."""
    inflation = math.prod(outputs) * math.prod(taps) / math.prod(inputs)
    return inflation <= INFLATION and any(map(operator.lt, outputs, taps))


def columns(
    input: jax.Array, weight: jax.Array, *, stride: Ints, pads: Pads, dilation: Ints, groups: int
) -> jax.Array:
    """``(N, C, ...)`` and ``(O, C // groups, ...)`` to ``(N, O, ...)``, by one product."""
    batch, channels = input.shape[:2]
    taps = weight.shape[2:]
    sizes = _output_sizes(input.shape[2:], taps, stride, pads, dilation)
    padded = _padded(jnp.moveaxis(input, 1, 0), pads)
    slices = [_tap(padded, at, sizes, stride, dilation) for at in _positions(taps)]
    stacked = jnp.stack(slices, 1) if len(slices) > 1 else slices[0]
    blocks = (groups,) if groups > 1 else ()
    rows, length = weight.shape[0] // groups, channels // groups * len(slices)
    places = (math.prod((batch, *sizes)),) if merging_pays() else (batch, *sizes)
    stacked = stacked.reshape(channels * len(slices), batch, *sizes)
    over, each = len(blocks), tuple(range(len(blocks)))
    product = lax.dot_general(
        weight.reshape(*blocks, rows, length),
        stacked.reshape(*blocks, length, *places),
        (((over + 1,), (over,)), (each, each)),
        preferred_element_type=jnp.float32 if is_half(input.dtype) else None,
    )
    output = product.astype(input.dtype).reshape(groups * rows, batch, *sizes)
    return jnp.moveaxis(output, 1, 0)


def depthwise(
    input: jax.Array, weight: jax.Array, *, stride: Ints, pads: Pads, dilation: Ints
) -> jax.Array:
    """``(N, C, ...)`` and ``(C, 1, ...)`` to ``(N, C, ...)``, by one multiply-add per tap."""
    inputs, taps = input.shape[2:], weight.shape[2:]
    sizes = _output_sizes(inputs, taps, stride, pads, dilation)

    def forward(input: jax.Array, weight: jax.Array) -> jax.Array:
        return _shifted_sum(input, weight, sizes, stride, pads, dilation)

    def of_input(cotangent: jax.Array, weight: jax.Array) -> jax.Array:
        # The cotangent with its stride undone, under the mirrored kernel: again a sum of shifts.
        spread = _spread(cotangent, inputs, taps, stride, pads, dilation)
        mirrored = lax.rev(weight, tuple(range(2, weight.ndim)))
        ones, none = (1,) * len(taps), ((0, 0),) * len(taps)
        return _shifted_sum(spread, mirrored, inputs, ones, none, dilation)

    def of_weight(cotangent: jax.Array, input: jax.Array) -> jax.Array:
        padded = _padded(input, pads)
        over = (0, *range(2, input.ndim))
        sums = [
            jnp.sum(_tap(padded, at, sizes, stride, dilation) * cotangent, over)
            for at in _positions(taps)
        ]
        return jnp.stack(sums, 1).reshape(-1, 1, *taps)

    product = with_cotangents(forward, of_input, of_weight)
    return product(widen(input), widen(weight)).astype(input.dtype)


def _shifted_sum(
    input: jax.Array, weight: jax.Array, sizes: Ints, stride: Ints, pads: Pads, dilation: Ints
) -> jax.Array:
    padded = _padded(input, pads)
    per_channel = (-1, *(1,) * len(sizes))
    terms = [
        _tap(padded, at, sizes, stride, dilation) * weight[:, 0, *at].reshape(per_channel)
        for at in _positions(weight.shape[2:])
    ]
    return functools.reduce(jnp.add, terms)


def _spread(
    cotangent: jax.Array, inputs: Ints, taps: Ints, stride: Ints, pads: Pads, dilation: Ints
) -> jax.Array:
    """The cotangent with ``stride - 1`` zeros between, so padded that the kernel fits everywhere."""
    config = [(0, 0, 0), (0, 0, 0)]
    axes = zip(cotangent.shape[2:], inputs, taps, stride, pads, dilation, strict=True)
    for size, wanted, count, step, (low, _), apart in axes:
        reach = apart * (count - 1)
        before = reach - low
        after = wanted + reach - before - (step * (size - 1) + 1)
        config.append((before, after, step - 1))
    return lax.pad(cotangent, jnp.zeros((), cotangent.dtype), config)


def _positions(taps: Ints) -> Iterator[Ints]:
    return itertools.product(*map(range, taps))


def _tap(padded: jax.Array, at: Ints, sizes: Ints, stride: Ints, dilation: Ints) -> jax.Array:
    """What the tap of the kernel at a position sees, for every output."""
    starts = [place * apart for place, apart in zip(at, dilation, strict=True)]
    index = [
        slice(start, start + step * (size - 1) + 1, step)
        for start, size, step in zip(starts, sizes, stride, strict=True)
    ]
    return padded[:, :, *index]


def _padded(input: jax.Array, pads: Pads) -> jax.Array:
    return jnp.pad(input, ((0, 0), (0, 0), *pads)) if any(map(any, pads)) else input


def _output_sizes(inputs: Ints, taps: Ints, stride: Ints, pads: Pads, dilation: Ints) -> Ints:
    axes = zip(inputs, taps, stride, pads, dilation, strict=True)
    return tuple(
        (size + low + high - apart * (count - 1) - 1) // step + 1
        for size, count, step, (low, high), apart in axes
    )
