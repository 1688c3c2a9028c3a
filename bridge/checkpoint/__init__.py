"""Checkpoint files without PyTorch: read into NumPy arrays, and written for PyTorch to read.

This package needs NumPy and ml_dtypes only. It imports neither JAX nor PyTorch, and it runs
nothing that a file contains.
"""

from bridge.checkpoint._files import (
    load as load,
    read_safetensors_metadata as read_safetensors_metadata,
)
from bridge.checkpoint._records import (
    LocalTensor as LocalTensor,
    MetaTensor as MetaTensor,
    NestedTensor as NestedTensor,
    Placeholder as Placeholder,
    QuantizedTensor as QuantizedTensor,
    SparseTensor as SparseTensor,
)
from bridge.checkpoint._save import save as save
from bridge.checkpoint.errors import (
    BadFormat as BadFormat,
    CheckpointError as CheckpointError,
    Damaged as Damaged,
    NotACheckpoint as NotACheckpoint,
    Truncated as Truncated,
    Unsafe as Unsafe,
    Unsupported as Unsupported,
    Unwritable as Unwritable,
)
