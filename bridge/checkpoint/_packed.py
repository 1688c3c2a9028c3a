"""Four-bit floats, of which files have two in a byte.

ml_dtypes gives every ``float4_e2m1fn`` a byte of its own. PyTorch's ``float4_e2m1fn_x2`` holds two in
one element, the first in the low four bits, so that its tensors have half as many columns;
safetensors' ``F4`` has the same bytes and counts the single numbers in its shapes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from bridge.checkpoint.errors import Unwritable


FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)

#: What the formats call the packed numbers.
TORCH_FLOAT4 = "float4_e2m1fn_x2"
SAFETENSORS_FLOAT4 = "F4"


def pack(array: np.ndarray, path: str) -> np.ndarray:
    """Return a ``float4_e2m1fn`` array of shape (..., 2n) as ``uint8`` of shape (..., n).

    Raises:
        Unwritable: If there is no last axis of even length; ``path`` is for the message.
    """
    check_pairs(array, path)
    bits = np.ascontiguousarray(array).view(np.uint8) & 0xF
    return bits[..., 0::2] | bits[..., 1::2] << 4


def unpack(packed: np.ndarray) -> np.ndarray:
    """Return the numbers of ``packed``, whose elements are bytes of a file, along its last axis.

    Args:
        packed: A ``float4_e2m1fn`` array of shape (..., n).

    Returns:
        A ``float4_e2m1fn`` array of shape (..., 2n).
    """
    pairs = packed.view(np.uint8)
    numbers = np.stack([pairs & 0xF, pairs >> 4], axis=-1)
    return numbers.reshape(*packed.shape[:-1], packed.shape[-1] * 2).view(FLOAT4)


def check_pairs(array: np.ndarray, path: str) -> None:
    """Refuse an array whose last axis does not consist of pairs."""
    if not array.ndim or array.shape[-1] % 2:
        raise Unwritable(
            f"four-bit floats of shape {array.shape}, whose last axis has no even length",
            advice="Files have two of them in a byte: pad the last axis",
            entry=path,
        )


def stored_size(array: np.ndarray) -> int:
    """Return how many bytes the array's numbers take in a file."""
    return array.nbytes // 2 if array.dtype == FLOAT4 else array.nbytes
