"""How far the numbers of two arrays are apart, exactly, a block at a time.

Two arrays of one dtype are compared by their bits first; most are equal, and of the others only the
numbers that differ are looked at. Floating-point numbers of up to 64 bits are compared in float64 (and
complex ones in complex128), which holds all of them; integers are compared as integers, so that 2**53
and 2**53 + 1 differ by one.

NaN equals NaN here, whatever its bits, and infinity equals infinity; a NaN beside a number is counted
apart and has no distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from bridge._blocks import blocks
from bridge._cast import FLOATS
from bridge.checkpoint._dtypes import COMPLEX32
from bridge.checkpoint.errors import Unsupported


_EXACT = 1 << 53

#: Two arrays that look this many times larger than they are, and this large, are not compared.
_LARGER = 8
_LARGE = 1 << 30


class Tolerance(NamedTuple):
    """Numbers are equal if ``|a - b| <= atol + rtol * |b|``, as NumPy and PyTorch have it."""

    rtol: float
    atol: float


#: Nothing is tolerated.
EXACT = Tolerance(0.0, 0.0)


@dataclass
class Apart:
    """How far two arrays of one shape are apart.

    Attributes:
        numbers: How many numbers each has.
        differ: How many differ in their bits; in their values, where the dtypes are not the same.
        beyond: How many differ by more than the tolerance.
        nan_differ: How many are NaN on one side only.
        max_delta: The largest ``|a - b|``: exact for integers, ``inf`` where only one is infinite.
        max_relative: The largest ``|a - b| / max(|a|, |b|)``.
    """

    numbers: int
    differ: int = 0
    beyond: int = 0
    nan_differ: int = 0
    max_delta: int | float = 0
    max_relative: float = 0.0


def compare(a: np.ndarray, b: np.ndarray, tolerance: Tolerance = EXACT) -> Apart:
    """Compare two arrays of one shape.

    Args:
        a: An array of any dtype, in any layout.
        b: Another; ``rtol`` is of its numbers.
        tolerance: What does not count as ``beyond``.

    Raises:
        Unsupported: If both are a few bytes that look like very many.
    """
    result = Apart(a.size)
    if not a.size:
        return result
    a, b, times = _once(a, b)
    if a.nbytes > _LARGE and all(x.nbytes > _LARGER * _extent(x) for x in (a, b)):
        raise Unsupported(f"a tensor of {a.nbytes} bytes that lies in {_extent(a)} bytes of storage")
    for left, right in zip(blocks(a), blocks(b), strict=True):
        if left.dtype == right.dtype:
            mask = _bits_differ(left, right)
            if mask is None:
                continue
            left, right = left[mask], right[mask]
            result.differ += times * len(left)
        _compare_block(left, right, tolerance, result, times)
    return result


def _once(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Leave out the repetition along axes that both arrays are broadcast on; return how often."""
    times = 1
    steps: list[slice] = []
    for size, left, right in zip(a.shape, a.strides, b.strides, strict=True):
        repeated = size > 1 and not left and not right
        times *= size if repeated else 1
        steps.append(slice(0, 1) if repeated else slice(None))
    return a[tuple(steps)], b[tuple(steps)], times


def _extent(array: np.ndarray) -> int:
    low, high = np.lib.array_utils.byte_bounds(array)
    return high - low


def _bits_differ(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return where the bits of two blocks differ, or None if nowhere."""
    width = a.itemsize
    if a.dtype.hasobject or not width:
        return None if np.array_equal(a, b) else np.asarray(a != b)
    if width in (1, 2, 4, 8):
        differ = a.view(f"u{width}") != b.view(f"u{width}")
    else:
        unit = 8 if width % 8 == 0 else 1
        left, right = (x.view(f"u{unit}").reshape(len(x), -1) for x in (a, b))
        differ = (left != right).any(axis=1)
    return differ if differ.any() else None


def _compare_block(
    a: np.ndarray, b: np.ndarray, tolerance: Tolerance, result: Apart, times: int
) -> None:
    same_dtype = a.dtype == b.dtype
    if not (_is_number(a.dtype) and _is_number(b.dtype)):
        # Texts and the like: the bits were all there is.
        result.differ += 0 if same_dtype else times * len(a)
        result.beyond += times * len(a)
        return
    with np.errstate(all="ignore"):
        left, right = _wide(a), _wide(b)
        nan_left, nan_right = np.isnan(left), np.isnan(right)
        one_nan = nan_left != nan_right
        delta = np.abs(left - right)
        # Equal infinities are not apart, nor are two NaNs; one infinity is infinitely far away.
        delta[(left == right) | nan_left | nan_right] = 0
        delta[np.isnan(delta)] = np.inf
        exact = _exact_deltas(a, b, delta)
        larger = np.maximum(np.abs(left), np.abs(right))
        relative = np.where(delta == 0, 0, delta / larger)
        relative[np.isnan(relative)] = np.inf
        beyond = one_nan | np.isinf(delta)
        beyond |= (delta > tolerance.atol + tolerance.rtol * np.abs(right)) & ~one_nan
    if not same_dtype:
        result.differ += times * int(np.count_nonzero((delta != 0) | one_nan))
    result.beyond += times * int(np.count_nonzero(beyond))
    result.nan_differ += times * int(np.count_nonzero(one_nan))
    result.max_delta = max(result.max_delta, exact)
    result.max_relative = max(result.max_relative, float(relative.max(initial=0.0)))


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or dtype in FLOATS or dtype == COMPLEX32


def _wide(block: np.ndarray) -> np.ndarray:
    """Return a block as float64 or complex128."""
    if block.dtype == COMPLEX32:
        return block["real"].astype(np.float64) + 1j * block["imag"].astype(np.float64)
    return block.astype(np.complex128 if block.dtype.kind == "c" else np.float64)


def _exact_deltas(a: np.ndarray, b: np.ndarray, delta: np.ndarray) -> int | float:
    """Put right, in place, the deltas that float64 cannot tell; return the largest, exactly."""
    integers = a.dtype.kind in "biu" and b.dtype.kind in "biu"
    wide = [x.dtype.kind in "iu" and x.itemsize == 8 for x in (a, b)]
    if not any(wide):
        largest = float(delta.max(initial=0.0))
        return int(largest) if integers else largest
    if integers and a.dtype == b.dtype:
        # The difference of two integers of 64 bits fits 64 bits without a sign.
        distance = np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
        delta[...] = distance
        return int(distance.max(initial=0))
    largest: int | float = 0
    beyond = np.zeros(len(delta), np.bool_)
    for block, is_wide in zip((a, b), wide, strict=True):
        if is_wide:
            beyond |= np.abs(block.astype(np.float64)) >= _EXACT
    for position in np.flatnonzero(beyond & np.isfinite(delta)):
        pair = a[position].item(), b[position].item()
        if any(isinstance(x, float | complex) and x != x for x in pair) or _is_complex(pair):
            continue
        apart = abs(Fraction(pair[0]) - Fraction(pair[1]))
        delta[position] = float(apart)
        largest = max(largest, int(apart) if apart.denominator == 1 else float(apart))
    rest = float(delta[~beyond].max(initial=0.0))
    infinite = float(delta.max(initial=0.0))
    if np.isinf(infinite):
        return infinite
    return max(largest, int(rest) if integers else rest)


def _is_complex(pair: tuple[Any, Any]) -> bool:
    return any(isinstance(x, complex) for x in pair)
