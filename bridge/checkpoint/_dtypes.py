"""The number formats of checkpoint files, and their NumPy names.

Three vocabularies name the same formats: PyTorch's storage classes (``FloatStorage``), PyTorch's
dtypes (``torch.float32``), and safetensors' codes (``F32``). NumPy has no bfloat16 or float8;
``ml_dtypes``, which JAX itself uses, adds them. PyTorch calls twelve dtypes "old": their tensors are
pickled over a typed storage. The others came later and are pickled over untyped bytes, with the
dtype beside them.

``complex32`` has no NumPy dtype of its own, and comes as a record of two half floats. Four-bit
floats, which files have two to a byte, are the affair of `_packed.py`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from bridge.checkpoint._packed import FLOAT4, SAFETENSORS_FLOAT4, TORCH_FLOAT4


COMPLEX32 = np.dtype([("real", np.float16), ("imag", np.float16)])

#: Storage class name to dtype, for the dtypes that have a storage class.
STORAGE_CLASSES: dict[str, np.dtype] = {
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "BoolStorage": np.dtype(np.bool_),
    "ByteStorage": np.dtype(np.uint8),
    "CharStorage": np.dtype(np.int8),
    "ComplexDoubleStorage": np.dtype(np.complex128),
    "ComplexFloatStorage": np.dtype(np.complex64),
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "IntStorage": np.dtype(np.int32),
    "LongStorage": np.dtype(np.int64),
    "ShortStorage": np.dtype(np.int16),
}

#: Dtype name in ``torch`` to dtype.
TORCH_DTYPES: dict[str, np.dtype] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "bool": np.dtype(np.bool_),
    "complex32": COMPLEX32,
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
    TORCH_FLOAT4: FLOAT4,
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
}

#: Dtypes of PyTorch that have no NumPy counterpart here.
UNSUPPORTED_TORCH_DTYPES: frozenset[str] = frozenset(
    ["qint8", "qint32", "quint8", "quint4x2", "quint2x4"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
    + ["bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]
)

#: Storage classes of quantized integers, to PyTorch's dtype and the integers.
QUANTIZED_STORAGE_CLASSES: dict[str, tuple[str, np.dtype]] = {
    "QInt8Storage": ("qint8", np.dtype(np.int8)),
    "QInt32Storage": ("qint32", np.dtype(np.int32)),
    "QUInt8Storage": ("quint8", np.dtype(np.uint8)),
}

#: Storage classes of PyTorch that have no NumPy counterpart here.
UNSUPPORTED_STORAGE_CLASSES: frozenset[str] = frozenset(["QUInt4x2Storage", "QUInt2x4Storage"])

#: safetensors code to dtype.
SAFETENSORS_DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    SAFETENSORS_FLOAT4: FLOAT4,
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "F32": np.dtype(np.float32),
    "C64": np.dtype(np.complex64),
    "F64": np.dtype(np.float64),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}

#: safetensors codes narrower than a byte.
UNSUPPORTED_SAFETENSORS_DTYPES: frozenset[str] = frozenset(["F6_E2M3", "F6_E3M2"])

STORAGE_CLASS_OF: dict[np.dtype, str] = {dtype: name for name, dtype in STORAGE_CLASSES.items()}
TORCH_NAME_OF: dict[np.dtype, str] = {
    dtype: name for name, dtype in TORCH_DTYPES.items() if dtype != FLOAT4
}
SAFETENSORS_CODE_OF: dict[np.dtype, str] = {
    dtype: code for code, dtype in SAFETENSORS_DTYPES.items() if dtype != FLOAT4
}


def swap_bytes(data: np.ndarray, dtype: np.dtype) -> None:
    """Reverse, in place, the bytes of every number in ``data`` (``uint8``); complex by parts.

    What is left at the end, too short for a number, stays as it is.
    """
    width = dtype.itemsize // 2 if dtype.kind == "c" or dtype == COMPLEX32 else dtype.itemsize
    if width > 1:
        data[: len(data) // width * width].view(f"u{width}").byteswap(inplace=True)


def swapped(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a copy of ``data`` (``uint8``) with the bytes of every number reversed."""
    result = data.copy()
    swap_bytes(result, dtype)
    return result


def resolve_marks(numbers: np.ndarray, *, conj: bool, neg: bool) -> None:
    """Conjugate or negate numbers in place."""
    if numbers.dtype == COMPLEX32:
        parts = (["imag"] if conj != neg else []) + (["real"] if neg else [])
        for part in parts:
            np.negative(numbers[part], out=numbers[part])
        return
    if conj:
        np.conjugate(numbers, out=numbers)
    if neg:
        np.negative(numbers, out=numbers)
