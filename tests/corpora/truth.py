"""What torch itself reads from a file, and whether this package read the same.

``read_by_torch`` is the truth: ``torch.load`` with ``weights_only=True`` where torch can, and where
it cannot, torch's own unpickler with every class that is neither torch's nor plain data replaced by
an inert ``Stub``, so that a published whole module is rebuilt by torch without the package it came
from. A stub is a ``torch.nn.Module``, hence torch walks the parameters of a stubbed network by its
own ``state_dict``.

``assert_agree`` holds what came of it against ours: types, names, order, dtypes, shapes, bytes,
``_metadata``, and ties. Ties are compared by address: within one torch storage the distance from
our array to torch's tensor must be one number, and arrays of two storages must not overlap.
"""

import contextlib
import io
import itertools
import os
import pickle
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.distributed.tensor import DTensor

import bridge.checkpoint as C
from bridge import StateDict


#: torch's dtypes and the NumPy dtype of the same bits, written out by hand.
DTYPES: dict[torch.dtype, np.dtype] = {
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.bool: np.dtype("?"),
    torch.complex32: np.dtype([("real", "f2"), ("imag", "f2")]),
    torch.complex64: np.dtype("c8"),
    torch.complex128: np.dtype("c16"),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: np.dtype(ml_dtypes.float8_e8m0fnu),
    torch.float16: np.dtype("f2"),
    torch.float32: np.dtype("f4"),
    torch.float64: np.dtype("f8"),
    torch.int8: np.dtype("i1"),
    torch.int16: np.dtype("i2"),
    torch.int32: np.dtype("i4"),
    torch.int64: np.dtype("i8"),
    torch.uint8: np.dtype("u1"),
    torch.uint16: np.dtype("u2"),
    torch.uint32: np.dtype("u4"),
    torch.uint64: np.dtype("u8"),
}

#: Classes of Python that torch's side may make for real: containers and numbers.
_PLAIN = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
    ("builtins", "bytes"),
    ("builtins", "complex"),
    ("builtins", "slice"),
    ("builtins", "range"),
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("_codecs", "encode"),
}


@dataclass
class _Entry:
    key: Any
    value: Any


class Stub(torch.nn.Module):
    """An object of a class that is not imported: what the pickle says of it, and no behaviour."""

    path = ""
    stub_items: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> "Stub":
        self = object.__new__(cls)
        self.__dict__.update(stub_args=args, stub_kwargs=kwargs, stub_state=None, stub_items=[])
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict) and "_parameters" in state:
            super().__setstate__(state)
        self.__dict__["stub_state"] = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.stub_items.append(_Entry(key, value))

    def append(self, value: Any) -> None:
        self.stub_items.append(value)

    def extend(self, values: Any) -> None:
        self.stub_items.extend(values)


def _is_data_of_torch(module: str, name: str) -> bool:
    """Whether the name is one of torch's (or NumPy's) that files of tensors and modules need."""
    if module in ("torch", "torch.cuda", "torch.storage", "torch.sparse"):
        thing = getattr(torch, name, None)
        dtype = isinstance(thing, torch.dtype | torch.layout | torch.qscheme)
        return dtype or name in ("Size", "device", "Tensor") or name.endswith(("Storage", "Tensor"))
    if module in ("torch._utils", "torch._tensor", "torch.tensor"):
        return name.startswith("_rebuild_")
    if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray"):
        return name in ("dtype", "ndarray", "scalar", "_reconstruct")
    modules = ("torch.nn.modules.", "torch.nn.parameter")
    return module.startswith(modules) or (module, name) == ("torch.serialization", "_get_layout")


class InertUnpickler(pickle.Unpickler):
    """Python's unpickler, that makes stubs of what is neither torch's nor plain data."""

    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins"}.get(module, module)
        name = "range" if (module, name) == ("builtins", "xrange") else name
        if (module, name) in _PLAIN or _is_data_of_torch(module, name):
            with contextlib.suppress(ModuleNotFoundError):  # A layer of another release is a stub, too.
                return super().find_class(module, name)
        return type(name, (Stub,), {"path": f"{module}.{name}", "__module__": "stubs"})


def pickle_module(unpickler: type[pickle.Unpickler]) -> Any:
    """What ``torch.load`` takes as its ``pickle_module``."""

    def load(file: Any, **kwargs: Any) -> Any:
        return unpickler(file, **kwargs).load()

    def loads(data: bytes, **kwargs: Any) -> Any:
        return load(io.BytesIO(data), **kwargs)

    return SimpleNamespace(Unpickler=unpickler, load=load, loads=loads, __name__="inert")


INERT = pickle_module(InertUnpickler)


def read_by_torch(path: str | os.PathLike[str]) -> Any:
    """What ``torch.load`` gives, with inert stubs where torch's strict reading refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError):
            # A RuntimeError is how the strict reading refuses tar files.
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=INERT)


def _once(ours: np.ndarray, theirs: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
    """Both without repeats along an axis where both repeat, which no memory may have room for."""
    for axis in range(theirs.dim()):
        if theirs.stride(axis) == ours.strides[axis] == 0:
            theirs, ours = theirs.narrow(axis, 0, 1), ours[(slice(None),) * axis + (slice(1),)]
    return ours, theirs


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The numbers of a tensor in row-major order."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    # An axis of length 1 may keep an odd stride through ``contiguous``, not through a copy.
    plain = plain.clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def array_bytes(array: np.ndarray) -> bytes:
    """The numbers of an array in row-major order, whatever its dtype."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()


@dataclass
class _Block:
    """A torch storage: where it lies, where our arrays of it lie, and one of their names."""

    theirs: range
    low: int
    high: int
    where: str


class _Memory:
    """Where torch's storages and our arrays lie, to compare which share bytes."""

    def __init__(self) -> None:
        self._shifts: dict[int, tuple[int, str]] = {}
        self._blocks: dict[int, _Block] = {}
        self._alive: list[torch.Tensor] = []

    def note(self, ours: np.ndarray, theirs: torch.Tensor, where: str) -> None:
        # A marked view is resolved into memory of its own; an empty one has no place.
        if theirs.numel() == 0 or theirs.is_conj() or theirs.is_neg():
            return
        if theirs.dtype == torch.bool and int(theirs.detach().view(torch.uint8).max()) > 1:
            return
        self._alive.append(theirs)
        storage = theirs.untyped_storage()
        key = storage.data_ptr()
        shift = ours.__array_interface__["data"][0] - theirs.data_ptr()
        known, first = self._shifts.setdefault(key, (shift, where))
        assert shift == known, f"{where} is not tied to {first} as in torch"
        low, high = np.lib.array_utils.byte_bounds(ours)
        block = self._blocks.setdefault(
            key, _Block(range(key, key + storage.nbytes()), low, high, where)
        )
        block.low, block.high = min(low, block.low), max(high, block.high)

    def check(self) -> None:
        """Assert that only arrays lie over one another whose storages do so in torch."""
        ordered = sorted(self._blocks.values(), key=lambda block: block.low)
        for one, other in itertools.pairwise(ordered):
            apart = one.theirs.stop <= other.theirs.start or other.theirs.stop <= one.theirs.start
            if apart:
                text = f"{one.where} and {other.where} share memory, and do not in torch"
                assert one.high <= other.low, text


def assert_agree(ours: Any, theirs: Any, where: str = "object") -> None:
    """Assert that ours is what torch read."""
    memory = _Memory()
    _Comparison(memory).visit(ours, theirs, where)
    memory.check()


def _python_3(path: str) -> str:
    return path.replace("__builtin__.", "builtins.")


class _Comparison:
    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._open: set[tuple[int, int]] = set()

    def visit(self, ours: Any, theirs: Any, where: str) -> None:
        # Containers may hold themselves.
        pair = (id(ours), id(theirs))
        if pair in self._open:
            return
        self._open.add(pair)
        try:
            self._compare(ours, theirs, where)
        finally:
            self._open.discard(pair)

    def _compare(self, ours: Any, theirs: Any, where: str) -> None:
        if isinstance(theirs, torch.nn.Module) and "_modules" in theirs.__dict__:
            self.visit(ours, theirs.state_dict(), where)
        elif isinstance(theirs, Stub):
            self._placeholder(ours, theirs, where)
        elif isinstance(theirs, torch.Tensor):
            self._tensor(ours, theirs, where)
        elif isinstance(theirs, np.ndarray | np.generic):
            self._array(ours, theirs, where)
        elif isinstance(theirs, dict):
            # What would make missing values is code; the values are data.
            plain = dict if isinstance(theirs, defaultdict) else type(theirs)
            expected = StateDict if isinstance(theirs, OrderedDict) else plain
            assert type(ours) is expected, where
            assert list(ours) == list(theirs), where
            for key, item in theirs.items():
                self.visit(ours[key], item, f"{where}[{key!r}]")
            if isinstance(ours, StateDict):
                assert ours.metadata == dict(getattr(theirs, "_metadata", {})), where
        elif isinstance(theirs, list | tuple | deque):
            assert type(ours) is (tuple if isinstance(theirs, tuple) else list), where
            assert len(ours) == len(theirs), where
            for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
                self.visit(left, right, f"{where}[{index}]")
        else:
            self._leaf(ours, theirs, where)

    def _tensor(self, ours: Any, theirs: torch.Tensor, where: str) -> None:
        if isinstance(theirs, DTensor):
            assert isinstance(ours, C.LocalTensor), where
            assert ours.shape == tuple(theirs.shape), where
            self.visit(ours.local, theirs.to_local(), f"{where}.local")
        elif theirs.is_nested:
            self._nested(ours, theirs, where)
        elif theirs.device.type == "meta":
            assert isinstance(ours, C.MetaTensor), where
            assert ours.shape == tuple(theirs.shape), where
            assert ours.dtype == DTYPES[theirs.dtype], where
        elif theirs.is_quantized:
            self._quantized(ours, theirs, where)
        elif theirs.layout is not torch.strided:
            self._sparse(ours, theirs, where)
        else:
            assert isinstance(ours, np.ndarray), f"{where}: {type(ours)}"
            assert not ours.flags.writeable, where
            if theirs.dtype == torch.float4_e2m1fn_x2:
                self._float4(ours, theirs, where)
                return
            assert ours.dtype == DTYPES[theirs.dtype], where
            assert ours.shape == tuple(theirs.shape), where
            ours, theirs = _once(ours, theirs)
            if theirs.dtype == torch.bool:
                # Any byte but 0 is true; NumPy knows only 0 and 1.
                theirs_bytes = tensor_bytes(theirs.detach().view(torch.uint8) != 0)
            else:
                theirs_bytes = tensor_bytes(theirs)
            assert array_bytes(ours) == theirs_bytes, where
            self._memory.note(ours, theirs, where)

    def _float4(self, ours: np.ndarray, theirs: torch.Tensor, where: str) -> None:
        # Two numbers in a byte, the first in its lower half; ours has one number in a byte.
        pairs = theirs.detach().contiguous().view(torch.uint8).numpy()
        numbers = np.stack([pairs % 16, pairs // 16], -1)
        assert ours.dtype == np.dtype(ml_dtypes.float4_e2m1fn), where
        assert ours.shape == (*theirs.shape[:-1], 2 * theirs.shape[-1]), where
        assert array_bytes(ours) == numbers.tobytes(), where

    def _array(self, ours: Any, theirs: np.ndarray | np.generic, where: str) -> None:
        theirs = np.asarray(theirs)
        assert isinstance(ours, np.ndarray | np.generic), where
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        assert np.asarray(ours).tobytes() == theirs.tobytes(), where

    def _quantized(self, ours: Any, theirs: torch.Tensor, where: str) -> None:
        assert isinstance(ours, C.QuantizedTensor), where
        self.visit(ours.integers, theirs.int_repr(), f"{where}.integers")
        if theirs.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            assert (ours.scale, ours.zero_point) == (theirs.q_scale(), theirs.q_zero_point()), where
        else:
            self.visit(ours.scale, theirs.q_per_channel_scales(), f"{where}.scale")
            self.visit(ours.zero_point, theirs.q_per_channel_zero_points(), f"{where}.zero_point")
            assert ours.axis == theirs.q_per_channel_axis(), where

    def _sparse(self, ours: Any, theirs: torch.Tensor, where: str) -> None:
        assert isinstance(ours, C.SparseTensor), where
        assert ours.layout == str(theirs.layout), where
        assert ours.shape == tuple(theirs.shape), where
        if theirs.layout is torch.sparse_coo:
            parts = (theirs._indices(), theirs._values())
        elif theirs.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = (theirs.crow_indices(), theirs.col_indices(), theirs.values())
        else:
            parts = (theirs.ccol_indices(), theirs.row_indices(), theirs.values())
        *indices, values = parts
        for index, (left, right) in enumerate(zip(ours.indices, indices, strict=True)):
            self.visit(left, right, f"{where}.indices[{index}]")
        self.visit(ours.values, values, f"{where}.values")

    def _nested(self, ours: Any, theirs: torch.Tensor, where: str) -> None:
        assert isinstance(ours, C.NestedTensor), where
        self.visit(ours.buffer, theirs.values(), f"{where}.buffer")
        self.visit(ours.sizes, theirs._nested_tensor_size(), f"{where}.sizes")
        self.visit(ours.strides, theirs._nested_tensor_strides(), f"{where}.strides")
        self.visit(ours.offsets, theirs._nested_tensor_storage_offsets(), f"{where}.offsets")

    def _placeholder(self, ours: Any, theirs: Stub, where: str) -> None:
        assert isinstance(ours, C.Placeholder), f"{where}: {type(ours)}"
        assert ours.path == type(theirs).path, where
        stored: list[Any] = theirs.stub_items
        entries = [item for item in stored if isinstance(item, _Entry)]
        items = [item for item in stored if not isinstance(item, _Entry)]
        self.visit(ours.args, theirs.stub_args, f"{where}.args")
        self.visit(ours.kwargs, theirs.stub_kwargs, f"{where}.kwargs")
        self.visit(ours.state, theirs.stub_state, f"{where}.state")
        self.visit(ours.items, items, f"{where}.items")
        self.visit(list(ours.entries.items()), [(e.key, e.value) for e in entries], f"{where}.entries")

    def _leaf(self, ours: Any, theirs: Any, where: str) -> None:
        if isinstance(theirs, PurePath):
            assert type(ours) is PurePosixPath, where
            assert str(ours) == str(theirs), where
        elif isinstance(theirs, np.dtype | torch.layout):
            assert ours == (str(theirs) if isinstance(theirs, torch.layout) else theirs), where
        elif isinstance(theirs, torch.dtype) and theirs not in DTYPES:
            assert isinstance(ours, C.Placeholder), where
            assert ours.path == str(theirs), where
        elif isinstance(theirs, torch.dtype):
            assert ours == DTYPES[theirs], where
        elif isinstance(theirs, torch.device):
            assert ours == str(theirs), where
        elif isinstance(theirs, type | FunctionType | BuiltinFunctionType):
            assert isinstance(ours, C.Placeholder), where
            named = f"{theirs.__module__}.{theirs.__name__}"
            assert ours.args is None, where
            assert _python_3(ours.path) == getattr(theirs, "path", named), where
        elif isinstance(theirs, torch.UntypedStorage | torch.TypedStorage):
            untyped = theirs if isinstance(theirs, torch.UntypedStorage) else theirs.untyped()
            assert array_bytes(ours) == bytes(untyped.tolist()), where
        else:
            assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
            assert ours == theirs or ours != ours, where


def assert_file_agrees(path: Path, ours: Any) -> None:
    """Assert that ``ours`` is what torch reads from ``path``."""
    assert_agree(ours, read_by_torch(path))


def count_tensors(value: Any) -> int:
    """How many arrays there are in a nest of dictionaries and lists: that a test saw something."""
    if isinstance(value, dict):
        return sum(count_tensors(item) for item in value.values())
    if isinstance(value, list | tuple) and not isinstance(value, Counter):
        return sum(count_tensors(item) for item in value)
    return isinstance(value, np.ndarray)
