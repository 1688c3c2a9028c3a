"""The tensors that arrays become in a .pt file: dtype, storage, offset and strides.

Each array has a storage of its own, or is a view of another one's where that was found before
(`_storages.py`). What is no NumPy array yet is converted once: a second conversion would lie elsewhere
in memory, and share nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from bridge.checkpoint._arrays import as_array
from bridge.checkpoint._dtypes import STORAGE_CLASS_OF, TORCH_NAME_OF
from bridge.checkpoint._object_path import Path, unwritable, where
from bridge.checkpoint._packed import FLOAT4, TORCH_FLOAT4, pack
from bridge.checkpoint._storages import Placed, dense
from bridge.checkpoint.errors import Unwritable


#: PyTorch's name of a dtype to its storage class, for those that have one.
STORAGE_CLASSES = {TORCH_NAME_OF[dtype]: name for dtype, name in STORAGE_CLASS_OF.items()}


class Tensor(NamedTuple):
    """What a pickle says of a tensor.

    Attributes:
        shape: Its sizes.
        torch_name: Its dtype in PyTorch.
        key: The number of its storage.
        numel: How long the storage is, in elements; in bytes, where it has no class of its own.
        offset: Where the tensor starts in it, in elements.
        strides: Its strides, in elements.
    """

    shape: tuple[int, ...]
    torch_name: str
    key: int
    numel: int
    offset: int
    strides: tuple[int, ...]


class TensorTable:
    """The tensors of one object that is written.

    Args:
        arrays: Arrays that objects were converted to by an earlier pass, by the object's ``id``.
        packed: The ``id`` of those objects whose arrays are packed four-bit floats.
        placed: By the same ``id``: the array's place in another one's storage, or None.

    Attributes:
        arrays: All arrays met, by the ``id`` of the object each was made of.
        packed: As above.
        storages: The arrays whose row-major bytes are the storages 0, 1, ...
    """

    def __init__(
        self,
        arrays: Mapping[int, np.ndarray],
        packed: Collection[int],
        placed: Mapping[int, Placed | None],
    ) -> None:
        self.arrays = dict(arrays)
        self.packed = set(packed)
        self.storages: list[np.ndarray] = []
        self._placed = placed
        self._tensors: dict[int, Tensor] = {}
        self._keys: dict[int, int] = {}
        # Objects whose identity is remembered must outlive the table.
        self._alive: list[Any] = []

    def of(self, value: object, path: Path) -> Tensor:
        """Return the tensor of an object, the same each time.

        Raises:
            Unwritable: If it is no array, or none that PyTorch has a tensor for.
        """
        return self._tensors.get(id(value)) or self._new(value, path)

    def _new(self, value: object, path: Path) -> Tensor:
        origin = id(value)
        if origin not in self.arrays:
            self.arrays[origin] = self._array(value, path)
        array = self.arrays[origin]
        self._alive.append(value)
        placed = self._placed.get(origin)
        host, offset = (array, 0) if placed is None else placed[:2]
        storage, strides = dense(host)
        key = self._keys.setdefault(id(host), len(self.storages))
        if key == len(self.storages):
            self.storages.append(storage)
        dtype = TORCH_FLOAT4 if origin in self.packed else TORCH_NAME_OF[array.dtype]
        numel = storage.size if dtype in STORAGE_CLASSES else storage.nbytes
        if placed is not None:
            strides = placed.strides
        tensor = self._tensors[origin] = Tensor(array.shape, dtype, key, numel, offset, strides)
        return tensor

    def _array(self, value: object, path: Path) -> np.ndarray:
        try:
            array = as_array(value, "")
        except Unwritable as error:
            raise error.locate(entry=where(path)) from error.__cause__
        if array is None:
            raise unwritable(value, where(path))
        if array.dtype == FLOAT4:
            self.packed.add(id(value))
            return pack(array, where(path))
        if array.dtype not in TORCH_NAME_OF:
            raise Unwritable(
                f"an array of {array.dtype}, for which PyTorch has no tensor",
                advice="Convert it to a number type of PyTorch, or leave this entry out",
                entry=where(path),
            )
        return array
