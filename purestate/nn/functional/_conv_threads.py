"""Convolutions that XLA's CPU backend runs on one thread, however many there are.

XLA hands a plain 2-D convolution to a library that shares its work between threads by blocks of output
channels alone. Where all channels are one block, as in the first stage of most networks, all threads
but one wait. The library does not take a convolution whose output is larger than its input; those run
in XLA's older kernel, a little slower on each thread, which shares all of its work. So the program here
asks for a row of output too many and drops it.

It is right on every platform and is wanted on a CPU alone. ``lax.platform_dependent`` would say so, and
leaves the backward pass inside of a conditional, where XLA no longer chooses the layout that either
kernel needs (40 times slower). So the backend that is JAX's default decides, while tracing.

Figures: docs/design/0013
"""

import math

import jax
from jax import lax

from purestate.nn.functional._forms import all_known
from purestate.nn.functional._transposed import with_cotangents
from purestate.nn.functional._varying import varying_alike


CHANNELS = 64
"""The fewest output channels that are a block."""

WEIGHTS = 64 * 1152
"""How many weights a block has where its channels are more than the fewest."""

PRODUCTS = 2**24
"""The multiplications from which on a second thread is worth waking."""

SHARE = 8
"""How many rows of output there must be for each that is too many."""

Pads = tuple[tuple[int, int], ...]
Ints = tuple[int, ...]


def runs_on_one_thread(
    shape: Ints, kernel: Ints, stride: Ints, pads: Pads, dilation: Ints, groups: int
) -> bool:
    """Whether ``one_more_row`` is the faster program on several threads of a CPU.

    The arguments are those of ``_conv_cpu.choose``.
    """
    if len(stride) != 2 or groups != 1 or stride != (1, 1) or not all_known(*shape):
        return False
    reach = _reach(kernel, dilation)
    if any(not 0 <= pad <= most for most, pair in zip(reach, pads, strict=True) for pad in pair):
        return False
    outputs = [
        size + low + high - most for size, (low, high), most in zip(shape[2:], pads, reach, strict=True)
    ]
    inner = math.prod(kernel[1:])
    products = shape[0] * math.prod(outputs) * kernel[0] * inner
    if products < PRODUCTS or SHARE * (1 + shape[2] - outputs[0]) > outputs[0]:
        return False
    return kernel[0] <= max(CHANNELS, WEIGHTS // inner)


def one_more_row(input: jax.Array, weight: jax.Array, *, pads: Pads, dilation: Ints) -> jax.Array:
    """``(N, C, H, W)`` and ``(O, C, h, w)`` to ``(N, O, ...)``, for a stride of 1 and one group."""
    reach = _reach(weight.shape, dilation)
    input, weight = varying_alike((input, weight))

    def plain(input: jax.Array, weight: jax.Array, pads: Pads = pads) -> jax.Array:
        return lax.conv_general_dilated(input, weight, (1, 1), pads, rhs_dilation=dilation)

    def larger(input: jax.Array, weight: jax.Array, pads: Pads = pads) -> jax.Array:
        (low, high), columns = pads
        size = input.shape[2]
        rows = size + low + high - reach[0]
        more = max(0, 1 + size - rows)
        return plain(input, weight, ((low, high + more), columns))[:, :, :rows]

    def of_input(cotangent: jax.Array, weight: jax.Array) -> jax.Array:
        mirrored = lax.rev(weight, (2, 3)).swapaxes(0, 1)
        spread = tuple((r - low, r - high) for r, (low, high) in zip(reach, pads, strict=True))
        return larger(cotangent, mirrored, spread)

    def of_weight(cotangent: jax.Array, input: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda weight: plain(input, weight), weight)(cotangent)[0]

    return with_cotangents(larger, of_input, of_weight)(input, weight)


def _reach(kernel: Ints, dilation: Ints) -> list[int]:
    """The distance from the first to the last tap, for each axis."""
    return [apart * (count - 1) for apart, count in zip(dilation, kernel[2:], strict=True)]
