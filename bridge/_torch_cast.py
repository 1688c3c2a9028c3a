"""Numbers in another dtype, bit for bit as PyTorch 2.13 casts them.

Where NumPy and ml_dtypes do something else:

- PyTorch goes to anything narrower than 32 bits by way of float32, and so rounds a float64 twice.
- ``float8_e4m3fn`` has no infinity. What is beyond it, infinity too, becomes its largest number, 448,
  and not NaN. (The two ``fnuz`` types have none either; there it is NaN in both.)
- A NaN of ``float8_e5m2`` has all bits of the mantissa set.
- ``float8_e8m0fnu`` has neither sign nor zero: the sign is dropped, and zero is the smallest number.

Which NaN a NaN becomes is otherwise left to NumPy: in 16 bits PyTorch's depends on the processor and on
how the array lies in memory, and those of the ``fnuz`` types come back from it with a sign.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from bridge._blocks import blocks


_E4M3FN = np.dtype(ml_dtypes.float8_e4m3fn)
_E5M2 = np.dtype(ml_dtypes.float8_e5m2)
_E8M0FNU = np.dtype(ml_dtypes.float8_e8m0fnu)
_NARROW = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), _E4M3FN, _E5M2, _E8M0FNU}
_NARROW |= {np.dtype(ml_dtypes.float8_e4m3fnuz), np.dtype(ml_dtypes.float8_e5m2fnuz)}

_LARGEST = np.float32(448)
#: The last number that is rounded to the largest; half of a step beyond it.
_LAST = np.float32(464)
_SMALLEST = np.float32(2.0**-127)


def cast_into(target: np.ndarray, numbers: np.ndarray) -> int:
    """Write numbers into an array of another dtype.

    Args:
        target: An array in row-major order, of any dtype.
        numbers: As many numbers, in any layout; read a block at a time.

    Returns:
        How many of them the dtype of ``target`` has no place for: finite ones that became infinite or
        NaN, and whatever became the largest number or lost its sign.
    """
    flat = target.reshape(-1)
    beyond = at = 0
    with np.errstate(all="ignore"):
        for block in blocks(numbers):
            part = flat[at : at + len(block)]
            at += len(block)
            beyond += _cast(part, block)
    return beyond


def _cast(target: np.ndarray, block: np.ndarray) -> int:
    dtype = target.dtype
    if dtype not in _NARROW or block.dtype == dtype:
        target[...] = block.astype(dtype)
        return _count_lost(target, block)
    block = block.astype(np.float32, copy=False)
    if dtype == _E4M3FN:
        target[...] = np.clip(block, -_LARGEST, _LARGEST).astype(dtype)
        return int(np.count_nonzero(np.abs(block) > _LAST))
    if dtype == _E8M0FNU:
        target[...] = np.maximum(np.abs(block), _SMALLEST).astype(dtype)
        return _count_lost(target, block) + int(np.count_nonzero((block < 0) & np.isfinite(target)))
    target[...] = block.astype(dtype)
    if dtype == _E5M2:
        target.view(np.uint8)[np.isnan(block)] |= 1
    return _count_lost(target, block)


def _count_lost(target: np.ndarray, block: np.ndarray) -> int:
    """Return how many finite numbers no longer are."""
    if target.dtype.kind in "biu":
        return 0
    lost = ~np.isfinite(target)
    return int(np.count_nonzero(lost & np.isfinite(block))) if lost.any() else 0
