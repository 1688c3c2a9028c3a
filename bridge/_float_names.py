"""Floating-point dtypes by the names that people write.

PyTorch, safetensors, NumPy and command lines name one dtype in many ways (``bfloat16``, ``BF16``,
``torch.bfloat16``). ``load_checkpoint(dtype=...)`` and ``purestate convert --dtype`` take all of them,
from one table. Where two libraries mean two things by a name, it is PyTorch's: ``float`` has 32 bits,
as in ``model.float()``, and NumPy's one-letter codes, whose ``f8`` has 64, are no names here. Nor is
``float8_e4m3``: in ml_dtypes it is another format than PyTorch's ``float8_e4m3fn``.
"""

from __future__ import annotations

import numpy as np

from bridge.checkpoint._dtypes import TORCH_DTYPES


_ALSO = {
    "float64": ("double", "f64", "fp64"),
    "float32": ("float", "single", "f32", "fp32"),
    "float16": ("half", "f16", "fp16"),
    "bfloat16": ("bf16",),
    "float8_e4m3fn": ("f8_e4m3", "fp8_e4m3", "f8_e4m3fn", "fp8_e4m3fn"),
    "float8_e5m2": ("f8_e5m2", "fp8_e5m2"),
    "float8_e4m3fnuz": ("f8_e4m3fnuz", "fp8_e4m3fnuz"),
    "float8_e5m2fnuz": ("f8_e5m2fnuz", "fp8_e5m2fnuz"),
    "float8_e8m0fnu": ("f8_e8m0", "fp8_e8m0", "f8_e8m0fnu", "fp8_e8m0fnu"),
}

_DTYPES = {name: TORCH_DTYPES[full] for full, also in _ALSO.items() for name in (full, *also)}


def float_named(name: str) -> np.dtype:
    """Return the floating-point dtype of a name; upper case and ``torch.`` do not matter.

    Raises:
        TypeError: If there is none; the text has the names that there are.
    """
    found = _DTYPES.get(name.lower().removeprefix("torch."))
    if found is None:
        raise TypeError(f"{name!r} names no floating-point dtype\n    write: {float_names()}")
    return found


def float_names() -> str:
    """Return the names that there are, as an error lists them."""
    short = ", ".join(names[0] for names in _ALSO.values())
    return f"{', '.join(_ALSO)}, or short: {short}"
