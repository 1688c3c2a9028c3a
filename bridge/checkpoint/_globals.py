"""The only names a checkpoint may mention, and what they mean here.

PyTorch's files name about sixty functions and classes. Each stands in the table below under its
exact module and name, next to a function of ours that does its job on NumPy arrays; nothing is
imported because a file says so. Any other name is refused: a name known to be harmless but not read
yet as :class:`~bridge.checkpoint.errors.Unsupported`, everything else as
:class:`~bridge.checkpoint.errors.Unsafe`, with the name in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint import _dtypes
from bridge.checkpoint._pickle_machine import check_key
from bridge.checkpoint._refusals import refusal, whole_module
from bridge.checkpoint._tensors import Storage, Storages, naturals
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported, brief


@dataclass(frozen=True)
class Global:
    """A name in a pickle and the function of ours behind it.

    Attributes:
        path: ``module.name``, for messages.
        make: What a call of it (or a new object of it) gives; None for a name that may only be
            passed along, such as the class ``torch.Tensor``.
        least: How many arguments it needs.
        most: How many it takes.
    """

    path: str
    make: Callable[..., object] | None = None
    least: int = 0
    most: int = 0


@dataclass(frozen=True)
class StorageClass:
    """A storage class; ``dtype`` is None for untyped bytes."""

    path: str
    dtype: np.dtype | None


class OldTensor:
    """A tensor of PyTorch 0.3 and before, which is created empty and told its contents later."""

    array: np.ndarray | None = None


class TorchVocabulary:
    """The strict meaning of the names in a PyTorch file (see ``Vocabulary``).

    Args:
        storages: Where persistent ids find their storages.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages

    def find(self, module: str, name: str) -> object:
        """Return the table's entry for ``module.name``."""
        found = _TABLE.get((_ALIASES.get(module, module), name))
        if found is None:
            raise refusal(module, name)
        return found

    def call(self, function: object, args: tuple[Any, ...]) -> object:
        """Call a function of the table."""
        return _call(function, args)

    def new(self, cls: object, args: tuple[Any, ...]) -> object:
        """Make an object of a class of the table."""
        return _call(cls, args)

    def build(self, instance: object, state: object) -> None:
        """Give a state dict its metadata, or an old tensor its contents."""
        if isinstance(instance, StateDict):
            _build_state_dict(instance, state)
        elif isinstance(instance, OldTensor):
            _build_old_tensor(instance, state)
        else:
            raise BadFormat(f"a {type(instance).__name__} is given attributes")

    def persistent(self, identity: object) -> object:
        """Return the storage that a persistent id names; where it lived does not matter."""
        if type(identity) is not tuple or not identity:
            raise BadFormat(f"a persistent id must be a tuple, not {brief(identity)}")
        # Types first: comparing an array with text would compare its elements.
        kind = identity[0] if type(identity[0]) is str else ""
        if kind == "module":
            raise whole_module("a class with its source code")
        if kind != "storage" or len(identity) not in (5, 6):
            raise BadFormat(f"a persistent id {brief(identity[0])} of {len(identity)} parts")
        _, cls, key, _, numel, *view = identity
        if not isinstance(cls, StorageClass):
            raise BadFormat(f"a storage of class {type(cls).__name__}")
        if type(key) not in (str, int):
            raise BadFormat(f"a storage key of type {type(key).__name__}")
        storage = self._storages.declare(str(key), cls.dtype, numel)
        if view and view[0] is not None:
            return _storage_view(storage, view[0])
        return storage


def _storage_view(root: Storage, view: object) -> Storage:
    if type(view) is not tuple or len(view) != 3 or root.dtype is None:
        raise BadFormat("a storage's view must be (key, offset, length)")
    key, offset, numel = view
    offset, numel = naturals((offset, numel), "a storage's view")
    return root.window(str(key), offset, numel)


def _call(function: object, args: tuple[Any, ...]) -> object:
    if not isinstance(function, Global):
        raise BadFormat(f"the pickle calls a {type(function).__name__}")
    if function.make is None:
        raise Unsafe(f"the pickle calls {function.path}, which a tensor file never calls")
    if not function.least <= len(args) <= function.most:
        raise BadFormat(
            f"{function.path} takes {function.least} to {function.most} arguments, not {len(args)}"
        )
    return function.make(*args)


def _build_state_dict(instance: StateDict, state: object) -> None:
    # Attributes other than ``_metadata`` are users' own and have no place in a StateDict.
    metadata = state.get("_metadata") if isinstance(state, dict) else None
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise BadFormat(f"_metadata must be a dictionary, not {type(metadata).__name__}")
    for path, entry in metadata.items():
        if type(path) is not str or not isinstance(entry, dict):
            raise BadFormat("_metadata must map module paths to dictionaries")
    instance.metadata = {path: dict(entry) for path, entry in metadata.items()}


def _build_old_tensor(instance: OldTensor, state: object) -> None:
    match state:
        case (storage, offset, size, stride):
            instance.array = _tensor_v1(storage, offset, size, stride)
        case (data, _, _, _, _):
            instance.array = _array(data)
        case (_, _, _):
            pass  # (requires_grad, volatile, hooks): nothing about the numbers
        case _:
            raise BadFormat("an old tensor's state must have 3, 4 or 5 parts")


def _array(value: object) -> np.ndarray:
    if isinstance(value, OldTensor):
        value = value.array
    if not isinstance(value, np.ndarray):
        raise BadFormat(f"a tensor is needed, not a {type(value).__name__}")
    return value


def _storage(value: object) -> Storage:
    if not isinstance(value, Storage):
        raise BadFormat(f"a tensor needs a storage, not a {type(value).__name__}")
    return value


def _tensor_v1(storage: object, offset: object, size: object, stride: object) -> np.ndarray:
    return _storage(storage).view(offset, size, stride)


def _tensor_v2(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object = False,
    hooks: object = None,
    metadata: object = None,
) -> np.ndarray:
    del requires_grad, hooks
    conj, neg = _marks(metadata)
    return _storage(storage).view(offset, size, stride, conj=conj, neg=neg)


def _tensor_v3(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object,
    dtype: object,
    metadata: object = None,
) -> np.ndarray:
    del requires_grad, hooks
    if not isinstance(dtype, np.dtype):
        raise BadFormat(f"a tensor's dtype must be a dtype, not a {type(dtype).__name__}")
    conj, neg = _marks(metadata)
    return _storage(storage).view(offset, size, stride, dtype, conj=conj, neg=neg)


def _marks(metadata: object) -> tuple[bool, bool]:
    if metadata is None:
        return False, False
    if not isinstance(metadata, dict):
        raise BadFormat(f"a tensor's metadata must be a dictionary, not {type(metadata).__name__}")
    if unknown := [key for key in metadata if key not in ("conj", "neg")]:
        raise Unsupported(f"a tensor with the mark {brief(unknown[0])}")
    return metadata.get("conj") is True, metadata.get("neg") is True


def _parameter(data: object, requires_grad: object = True, hooks: object = None) -> object:
    del requires_grad, hooks
    return data if isinstance(data, OldTensor) else _array(data)


def _parameter_with_state(data: object, requires_grad: object, hooks: object, state: object) -> object:
    del state
    return _parameter(data, requires_grad, hooks)


def _from_type(function: object, cls: object, args: object, state: object) -> object:
    del cls, state
    if not isinstance(args, tuple):
        raise BadFormat("a tensor subclass must be rebuilt from a tuple of arguments")
    if isinstance(function, Global) and function.make is _from_type:
        raise Unsafe("a tensor is rebuilt through more than one subclass")
    return _call(function, args)


def _device_tensor(data: object, dtype: object, device: object, requires_grad: object) -> object:
    del device, requires_grad
    array = _array(data)
    if not isinstance(dtype, np.dtype) or dtype != array.dtype:
        raise Unsupported(f"a tensor saved as {array.dtype} to become another dtype on its device")
    return array


def _new_parameter(data: object = None, requires_grad: object = True) -> object:
    del requires_grad
    tensor = OldTensor()
    if data is not None:
        tensor.array = _array(data)
    return tensor


def _ordered_dict(pairs: object = ()) -> StateDict:
    result = StateDict()
    if not isinstance(pairs, tuple | list):
        raise BadFormat("an OrderedDict is made from a list of pairs")
    for pair in pairs:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            raise BadFormat("an OrderedDict is made from a list of pairs")
        check_key(pair[0])
        result[pair[0]] = pair[1]
    return result


def _counter(counts: object = None) -> Counter[Any]:
    if counts is not None and not isinstance(counts, dict):
        raise BadFormat("a Counter is made from a dictionary")
    return Counter(counts or {})


def _set(items: object = ()) -> set[Any]:
    if not isinstance(items, tuple | list):
        raise BadFormat("a set is made from a list")
    for item in items:
        check_key(item)
    return set(items)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    # Python 3 writes bytes to protocol 2 as text to encode. Other codecs are never needed, and
    # some take quadratic time.
    if type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise Unsafe(f"the pickle uses the text encoding {brief(encoding)}")
    if not isinstance(text, str):
        raise BadFormat(f"bytes are encoded from text, not from a {type(text).__name__}")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadFormat("bytes are encoded from text beyond latin-1") from error


def _bytearray(data: object = b"", encoding: object = "latin1") -> bytearray:
    # bytearray(n) would allocate n bytes from a few bytes of pickle.
    return bytearray(data if isinstance(data, bytes) else _encode(data, encoding))


def _bytes() -> bytes:
    return b""


def _complex(real: object, imag: object) -> complex:
    if not isinstance(real, float) or not isinstance(imag, float):
        raise BadFormat("a complex number is made from two floats")
    return complex(real, imag)


def _size(items: object) -> tuple[int, ...]:
    return naturals(items, "a torch.Size")


def _device(kind: object, index: object = None) -> str:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise BadFormat("a torch.device is made from its type and number")
    return str(kind) if index is None else f"{kind}:{index}"


_ALIASES = {
    "__builtin__": "builtins",
    "torch.tensor": "torch._tensor",
    "torch.cuda": "torch",
    "torch.storage": "torch",
}

_FUNCTIONS: list[tuple[str, str, Callable[..., object], int, int]] = [
    ("torch._utils", "_rebuild_tensor", _tensor_v1, 4, 4),
    ("torch._utils", "_rebuild_tensor_v2", _tensor_v2, 6, 7),
    ("torch._utils", "_rebuild_tensor_v3", _tensor_v3, 7, 8),
    ("torch._utils", "_rebuild_parameter", _parameter, 3, 3),
    ("torch._utils", "_rebuild_parameter_with_state", _parameter_with_state, 4, 4),
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor", _device_tensor, 4, 4),
    ("torch._tensor", "_rebuild_from_type", _from_type, 4, 4),
    ("torch._tensor", "_rebuild_from_type_v2", _from_type, 4, 4),
    ("torch.nn.parameter", "Parameter", _new_parameter, 0, 2),
    ("torch", "Size", _size, 1, 1),
    ("torch", "device", _device, 1, 2),
    ("collections", "OrderedDict", _ordered_dict, 0, 1),
    ("collections", "Counter", _counter, 0, 1),
    ("builtins", "set", _set, 0, 1),
    ("builtins", "bytearray", _bytearray, 0, 2),
    ("builtins", "bytes", _bytes, 0, 0),
    ("builtins", "complex", _complex, 2, 2),
    ("_codecs", "encode", _encode, 1, 2),
]

_TABLE: dict[tuple[str, str], object] = {
    (module, name): Global(f"{module}.{name}", make, least, most)
    for module, name, make, least, most in _FUNCTIONS
}
_TABLE |= {
    ("torch", name): StorageClass(f"torch.{name}", dtype)
    for name, dtype in _dtypes.STORAGE_CLASSES.items()
}
_TABLE["torch", "UntypedStorage"] = StorageClass("torch.UntypedStorage", None)
_TABLE |= {("torch", name): dtype for name, dtype in _dtypes.TORCH_DTYPES.items()}
_TABLE |= {
    ("torch", name.replace("Storage", "Tensor")): Global(
        f"torch.{name.replace('Storage', 'Tensor')}", OldTensor
    )
    for name in _dtypes.STORAGE_CLASSES
}
_TABLE |= {
    key: Global(".".join(key))
    for key in [("torch", "Tensor"), ("torch.nn.parameter", "Buffer"), ("torch.nn", "Buffer")]
}
