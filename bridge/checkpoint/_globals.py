"""The names of a PyTorch file that this package reads, and the function of ours behind each.

The table is the whole list. Modules that were renamed since a file was written are in ``ALIASES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge.checkpoint import (
    _dtypes,
    _numpy_objects as numpy_objects,
    _plain_values as plain,
    _rebuild as rebuild,
)
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat, CheckpointError, Unsafe


@dataclass(frozen=True)
class Global:
    """A name in a pickle and the function of ours behind it.

    Attributes:
        path: ``module.name``, for messages.
        make: What a call of it (or a new object of it) gives; None for a name that may only be
            passed along, such as the class ``torch.Tensor``.
        least: How many arguments it needs.
        most: How many it takes.
        copies: Whether what it gives may be as large as its arguments.
    """

    path: str
    make: Callable[..., object] | None = None
    least: int = 0
    most: int = 0
    copies: bool = False

    def refusal(self, args: tuple[Any, ...]) -> CheckpointError:
        """Return the error for a call that this name does not take."""
        if self.make is None:
            return Unsafe(f"the pickle calls {self.path}, which a tensor file never calls")
        return BadFormat(f"{self.path} takes {self.least} to {self.most} arguments, not {len(args)}")


@dataclass(frozen=True)
class StorageClass:
    """A storage class; ``dtype`` is None for untyped bytes."""

    path: str
    dtype: np.dtype | None


ALIASES = {
    "__builtin__": "builtins",
    "torch.tensor": "torch._tensor",
    "torch.cuda": "torch",
    "torch.storage": "torch",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
    "pathlib._local": "pathlib",
}

_FUNCTIONS: list[tuple[str, str, Callable[..., object], int, int]] = [
    ("torch._utils", "_rebuild_tensor", rebuild.tensor_v1, 4, 4),
    ("torch._utils", "_rebuild_tensor_v2", rebuild.tensor_v2, 6, 7),
    ("torch._utils", "_rebuild_tensor_v3", rebuild.tensor_v3, 7, 8),
    ("torch._utils", "_rebuild_parameter", rebuild.parameter, 3, 3),
    ("torch._utils", "_rebuild_parameter_with_state", rebuild.parameter_with_state, 4, 4),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", rebuild.device_tensor, 4, 4),
    ("torch._utils", "_rebuild_device_tensor_from_numpy", rebuild.device_tensor, 4, 4),
    ("torch._utils", "_rebuild_xla_tensor", rebuild.device_tensor, 4, 4),
    ("torch._utils", "_rebuild_qtensor", rebuild.quantized, 7, 7),
    ("torch._utils", "_rebuild_sparse_tensor", rebuild.sparse, 2, 2),
    ("torch._utils", "_rebuild_nested_tensor", rebuild.nested, 4, 4),
    ("torch._utils", "_rebuild_meta_tensor_no_storage", rebuild.meta, 4, 4),
    ("torch._utils", "_rebuild_wrapper_subclass", rebuild.wrapper_subclass, 1, 16),
    ("torch._tensor", "_rebuild_from_type", rebuild.from_type, 4, 4),
    ("torch._tensor", "_rebuild_from_type_v2", rebuild.from_type, 4, 4),
    ("torch.nn.parameter", "Parameter", rebuild.new_parameter, 0, 2),
    ("torch.serialization", "_get_layout", plain.layout, 1, 1),
    ("torch", "Size", plain.size, 0, 1),
    ("torch", "device", plain.device, 1, 2),
    ("torch.jit._pickle", "restore_type_tag", plain.script_value, 2, 2),
    ("collections", "OrderedDict", plain.ordered_dict, 0, 1),
    ("collections", "Counter", plain.counter, 0, 1),
    ("collections", "defaultdict", plain.default_dict, 0, 1),
    ("collections", "deque", plain.deque, 0, 2),
    ("builtins", "set", plain.set_of, 0, 1),
    ("builtins", "frozenset", plain.frozenset_of, 0, 1),
    ("builtins", "bytearray", plain.bytearray_of, 0, 2),
    ("builtins", "bytes", plain.no_bytes, 0, 0),
    ("builtins", "complex", plain.complex_of, 2, 2),
    ("builtins", "slice", plain.slice_of, 3, 3),
    ("builtins", "range", plain.range_of, 3, 3),
    ("builtins", "xrange", plain.range_of, 3, 3),
    ("_codecs", "encode", plain.encode, 1, 2),
    ("pathlib", "PosixPath", plain.posix_path, 0, 64),
    ("pathlib", "PurePosixPath", plain.posix_path, 0, 64),
    ("pathlib", "WindowsPath", plain.windows_path, 0, 64),
    ("pathlib", "PureWindowsPath", plain.windows_path, 0, 64),
    ("numpy", "dtype", numpy_objects.dtype, 1, 3),
    ("numpy._core.multiarray", "_reconstruct", numpy_objects.reconstruct, 3, 3),
    ("numpy._core.multiarray", "scalar", numpy_objects.scalar, 1, 2),
    ("numpy._core.numeric", "_frombuffer", numpy_objects.frombuffer, 4, 4),
]
_FUNCTIONS += [
    ("torch.jit._pickle", f"build_{kind}list", plain.script_list, 1, 1)
    for kind in ("int", "float", "double", "bool", "tensor")
]

_COPYING = (plain.__name__, numpy_objects.__name__)

TABLE: dict[tuple[str, str], object] = {
    (module, name): Global(f"{module}.{name}", make, least, most, make.__module__ in _COPYING)
    for module, name, make, least, most in _FUNCTIONS
}
TABLE |= {
    ("torch", name): StorageClass(f"torch.{name}", dtype)
    for name, dtype in _dtypes.STORAGE_CLASSES.items()
}
TABLE |= {
    ("torch", name): StorageClass(f"torch.{name}", dtype)
    for name, (_, dtype) in _dtypes.QUANTIZED_STORAGE_CLASSES.items()
}
TABLE["torch", "UntypedStorage"] = StorageClass("torch.UntypedStorage", None)
TABLE |= {("torch", name): dtype for name, dtype in _dtypes.TORCH_DTYPES.items()}
TABLE |= {
    ("torch", name.replace("Storage", "Tensor")): Global(
        f"torch.{name.replace('Storage', 'Tensor')}", rebuild.OldTensor
    )
    for name in _dtypes.STORAGE_CLASSES
}
TABLE |= {
    key: Global(".".join(key))
    for key in [("torch", "Tensor"), ("torch.nn.parameter", "Buffer"), ("torch.nn", "Buffer")]
}


def name_as_value(name: Global | StorageClass) -> Placeholder:
    """Return what stands for a name of the table that a file holds as a value."""
    return Placeholder(name.path)
