"""What a checkpoint can hold besides dense arrays and plain Python values.

A file may mention any class. This package never imports one because a file says so: an object of a
class it does not know comes back as a :class:`Placeholder`, which carries what the file says about
it and does nothing. Tensors that are not dense numbers (quantized, sparse, nested, without storage,
one process's part of a distributed one) come back as records of the dense arrays they consist of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(eq=False, repr=False, slots=True)
class Placeholder:
    """A class, a function or an object of a class that is not read.

    Attributes:
        path: ``module.name`` of the class or function, as the file writes it.
        args: What it was called with; None if the file mentions the name itself.
        kwargs: Named arguments of the same call.
        state: The state it was given afterwards, usually a dictionary of its attributes; or None.
        items: What was appended to it, for a kind of list.
        entries: What was set on it by key, for a kind of dictionary.
    """

    path: str
    args: tuple | None = None
    kwargs: dict = field(default_factory=dict)
    state: Any = None
    items: list = field(default_factory=list)
    entries: dict = field(default_factory=dict)

    def __repr__(self) -> str:
        # Contents may be large, or contain the object itself.
        return f"<{self.path}>" if self.args is None else f"<{self.path} object, not read>"


#: PyTorch's classes of what a lazy layer has in the place of its tensors, before its first input.
UNINITIALIZED = frozenset(
    f"torch.nn.parameter.{name}" for name in ("UninitializedParameter", "UninitializedBuffer")
)


def is_uninitialized(value: object) -> bool:
    """Whether a value stands for a tensor of a lazy layer, which has neither numbers nor a shape."""
    return isinstance(value, Placeholder) and value.path in UNINITIALIZED and value.args is not None


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A quantized tensor; :meth:`dequantize` gives the numbers that it stands for.

    Attributes:
        integers: The stored integers.
        dtype: PyTorch's name for the dtype: "qint8", "quint8" or "qint32".
        scale: A number, or an array along ``axis``.
        zero_point: Likewise.
        axis: The dimension that scales and zero points belong to; None for one of each.
    """

    integers: np.ndarray
    dtype: str
    scale: Any
    zero_point: Any
    axis: int | None = None

    @property
    def shape(self) -> tuple:
        """The shape of the integers."""
        return self.integers.shape

    def dequantize(self) -> np.ndarray:
        """Return ``(integers - zero_point) * scale`` as float32, PyTorch's ``dequantize()``."""
        along = [1] * self.integers.ndim
        if self.axis is not None:
            along[self.axis] = -1
        zero_point = np.asarray(self.zero_point).astype(np.float32).reshape(along)
        scale = np.asarray(self.scale).astype(np.float32).reshape(along)
        return (self.integers.astype(np.float32) - zero_point) * scale


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """A sparse tensor.

    Attributes:
        layout: "torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc", "torch.sparse_bsr" or
            "torch.sparse_bsc".
        indices: For COO a tuple of one array, of shape ``(dimensions, entries)``; for the others the
            compressed and the plain indices.
        values: The entries that are stored.
        shape: The shape of the whole.
        coalesced: Whether COO indices are unique and sorted, where the file says.
    """

    layout: str
    indices: tuple
    values: np.ndarray
    shape: tuple
    coalesced: bool | None = None


@dataclass(frozen=True, eq=False)
class NestedTensor:
    """Arrays of different shapes in one buffer.

    Attributes:
        buffer: The numbers of all, one dimension.
        sizes: The shape of each, ``(count, dimensions)``.
        strides: The strides of each, in elements.
        offsets: Where each starts, in elements.
    """

    buffer: np.ndarray
    sizes: np.ndarray
    strides: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True, eq=False)
class MetaTensor:
    """A tensor that was saved from the "meta" device: it has no numbers.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
    """

    shape: tuple
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class LocalTensor:
    """One process's part of a distributed tensor (``torch.distributed.tensor.DTensor``).

    Attributes:
        local: The part.
        shape: The shape of the whole, where the file says.
        spec: How it was laid out over devices, as the file says.
    """

    local: np.ndarray
    shape: tuple | None
    spec: Any


RECORDS = (QuantizedTensor, SparseTensor, NestedTensor, MetaTensor, LocalTensor)
