"""How close is equal: one table by dtype, used by every comparison with an oracle.

The numbers follow torch.testing's own table where it has one; float32 and float64 gradients are the
goals of this project. An entry is ``(rtol, atol)``.
"""

import numpy as np


VALUE = {
    "float16": (1e-3, 1e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "float32": (1e-5, 1e-5),
    "float64": (1e-12, 1e-12),
    "complex64": (1e-5, 1e-5),
    "complex128": (1e-12, 1e-12),
}

GRADIENT = {
    "float16": (1e-2, 1e-2),
    "bfloat16": (3e-2, 3e-2),
    "float32": (1e-4, 1e-4),
    "float64": (1e-10, 1e-10),
    "complex64": (1e-4, 1e-4),
    "complex128": (1e-10, 1e-10),
}


def tolerance(dtype, table=VALUE) -> tuple[float, float]:
    """The ``(rtol, atol)`` for a dtype; integers and booleans must be exactly equal."""
    return table.get(np.dtype(dtype).name, (0.0, 0.0))
