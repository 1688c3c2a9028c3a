"""Comparison of what PyTorch and this package read from one file."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_quantized import pack_uint4

from bridge import StateDict
from bridge.checkpoint._dtypes import TORCH_DTYPES


FORMATS = ["zip", "legacy"]


def torch_save(value: Any, path: Path, kind: str) -> Path:
    """Write ``value`` with torch in one of its two formats."""
    torch.save(value, path, _use_new_zipfile_serialization=kind == "zip")
    return path


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The numbers of a tensor in row-major order."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """The NumPy dtype of a torch dtype."""
    return TORCH_DTYPES[str(dtype).removeprefix("torch.")]


def assert_agree(ours: Any, theirs: Any, path: str = "object") -> None:
    """Assert that ours is theirs, in types, order, dtypes and bytes."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, np.ndarray), path
        assert not ours.flags.writeable, path
        assert ours.dtype == numpy_dtype(theirs.dtype), path
        if theirs.dtype == torch.float4_e2m1fn_x2:
            # PyTorch has two numbers to a byte; NumPy has them one to a byte.
            ours = pack_uint4(torch.from_numpy(ours.view(np.uint8).copy())).numpy()
        assert ours.shape == tuple(theirs.shape), path
        assert ours.tobytes() == tensor_bytes(theirs), path
    elif isinstance(theirs, dict):
        expected = StateDict if isinstance(theirs, OrderedDict) else type(theirs)
        assert type(ours) is expected, path
        assert list(ours) == list(theirs), path
        for key, item in theirs.items():
            assert_agree(ours[key], item, f"{path}[{key!r}]")
        if isinstance(ours, StateDict):
            assert ours.metadata == dict(getattr(theirs, "_metadata", {})), path
    elif isinstance(theirs, list | tuple):
        assert type(ours) is (list if isinstance(theirs, list) else tuple), path
        assert len(ours) == len(theirs), path
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            assert_agree(left, right, f"{path}[{index}]")
    elif isinstance(theirs, torch.dtype):
        assert ours == numpy_dtype(theirs), path
    elif isinstance(theirs, torch.device):
        assert ours == str(theirs), path
    else:
        assert type(ours) is type(theirs), path
        assert ours == theirs, path
