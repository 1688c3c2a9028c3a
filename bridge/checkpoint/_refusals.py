"""Why a name in a pickle is refused.

A name outside the table is never looked up, whatever it is. The error still tells two cases apart:
something harmless that PyTorch writes and this reader does not read (``Unsupported``), and anything
else (``Unsafe``).
"""

from __future__ import annotations

from bridge.checkpoint._dtypes import UNSUPPORTED_STORAGE_CLASSES, UNSUPPORTED_TORCH_DTYPES
from bridge.checkpoint.errors import CheckpointError, Unsafe, Unsupported


_NOT_YET = {
    "torch._utils._rebuild_qtensor": "a quantized tensor",
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor without values",
    "torch._utils._rebuild_wrapper_subclass": "a distributed or wrapped tensor",
    "torch._utils._rebuild_device_tensor_from_numpy": "a tensor saved through NumPy",
    "torch._utils._rebuild_xla_tensor": "a tensor saved through NumPy",
    "torch.serialization._get_layout": "a tensor with a layout of its own",
} | {
    f"{package}.{name}": "a NumPy object"
    for package in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("_reconstruct", "scalar", "ndarray", "dtype")
}
_NOT_YET |= {f"torch.{name}": "a quantized tensor" for name in UNSUPPORTED_STORAGE_CLASSES}


def whole_module(what: str) -> CheckpointError:
    """Return the error for a file that holds a module object, described by ``what``."""
    return Unsupported(
        f"the file is a whole pickled module ({what}), not a dictionary of tensors",
        advice="Load it with torch where its code is, and save model.state_dict()",
    )


def refusal(module: str, name: str) -> CheckpointError:
    """Return the error for a name outside the table."""
    path = f"{module}.{name}"
    if path in _NOT_YET:
        return Unsupported(f"{_NOT_YET[path]} ({path}), which this reader does not read")
    if module == "torch" and name in UNSUPPORTED_TORCH_DTYPES:
        return Unsupported(f"numbers of type torch.{name}, which this reader does not read")
    if module.startswith(("torch.nn.modules.", "torch.nn.parallel.", "torch.jit.")):
        return whole_module(f"of class {path!r}")
    return Unsafe(
        f"the file asks Python for {path!r}, which is no part of a file of tensors and is not run",
        advice="If you trust the file, open it with torch and save a state_dict of tensors instead",
    )
