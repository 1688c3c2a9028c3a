"""PyTorch's functions that rebuild tensors, on descriptions of tensors.

Each function here stands in for one of ``torch._utils`` or ``torch._tensor`` that a pickle calls,
with its arguments in its order. They build :class:`~bridge.checkpoint._tensors.Tensor` descriptions
and the records of `_records.py` that hold them; the numbers may not have been reached yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.checkpoint._numpy_objects import NumpyArray
from bridge.checkpoint._records import (
    RECORDS,
    LocalTensor,
    MetaTensor,
    NestedTensor,
    Placeholder,
    QuantizedTensor,
    SparseTensor,
)
from bridge.checkpoint._tensors import Storage, Tensor, naturals
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported, brief


class OldTensor:
    """A tensor of PyTorch 0.3 and before, which is created empty and told its contents later."""

    tensor: Any = None

    def build(self, state: object) -> None:
        """Take the state of a tensor or a parameter."""
        match state:
            case (storage, offset, size, stride):
                self.tensor = tensor_v1(storage, offset, size, stride)
            case (data, _, _, _, _):
                self.tensor = _tensor(data)
            case (_, _, _):
                pass  # (requires_grad, volatile, hooks): nothing about the numbers
            case _:
                raise BadFormat("an old tensor's state must have 3, 4 or 5 parts")


def _tensor(value: object) -> Any:
    if isinstance(value, OldTensor):
        value = value.tensor
    if not isinstance(value, (Tensor, NumpyArray, *RECORDS)):
        raise BadFormat(f"a tensor is needed, not a {type(value).__name__}")
    return value


def _storage(value: object) -> Storage:
    if not isinstance(value, Storage):
        raise BadFormat(f"a tensor needs a storage, not a {type(value).__name__}")
    return value


def _dtype(value: object) -> np.dtype:
    if not isinstance(value, np.dtype):
        what = value.path if isinstance(value, Placeholder) else f"a {type(value).__name__}"
        raise Unsupported(f"a tensor's dtype is {what}, which this reader does not read")
    return value


def _marks(metadata: object) -> tuple[bool, bool]:
    if metadata is None:
        return False, False
    if not isinstance(metadata, dict):
        raise BadFormat(f"a tensor's metadata must be a dictionary, not {type(metadata).__name__}")
    if unknown := [key for key in metadata if key not in ("conj", "neg")]:
        raise Unsupported(f"a tensor with the mark {brief(unknown[0])}")
    return metadata.get("conj") is True, metadata.get("neg") is True


def tensor_v1(storage: object, offset: object, size: object, stride: object) -> Tensor:
    """Stand in for ``_rebuild_tensor``."""
    return _storage(storage).tensor(offset, size, stride)


def tensor_v2(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object = False,
    hooks: object = None,
    metadata: object = None,
) -> Tensor:
    """Stand in for ``_rebuild_tensor_v2``."""
    del requires_grad, hooks
    if metadata is None:
        return _storage(storage).tensor(offset, size, stride)
    conj, neg = _marks(metadata)
    return _storage(storage).tensor(offset, size, stride, conj=conj, neg=neg)


def tensor_v3(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object,
    dtype: object,
    metadata: object = None,
) -> Tensor:
    """Stand in for ``_rebuild_tensor_v3``."""
    del requires_grad, hooks
    conj, neg = _marks(metadata)
    return _storage(storage).tensor(offset, size, stride, _dtype(dtype), conj=conj, neg=neg)


def parameter(data: object, requires_grad: object = True, hooks: object = None) -> object:
    """Stand in for ``_rebuild_parameter``."""
    del requires_grad, hooks
    return data if isinstance(data, OldTensor) else _tensor(data)


def parameter_with_state(data: object, requires_grad: object, hooks: object, state: object) -> object:
    """Stand in for ``_rebuild_parameter_with_state``; the state is Python attributes."""
    del state
    return parameter(data, requires_grad, hooks)


def new_parameter(data: object = None, requires_grad: object = True) -> object:
    """Stand in for ``torch.nn.parameter.Parameter``, as PyTorch 0.3 pickled it."""
    del requires_grad
    result = OldTensor()
    if data is not None:
        result.tensor = _tensor(data)
    return result


def from_type(function: Any, cls: object, args: object, state: object) -> object:
    """Stand in for ``_rebuild_from_type_v2``: a tensor of a subclass, or with attributes."""
    if not isinstance(args, tuple):
        raise BadFormat("a tensor subclass must be rebuilt from a tuple of arguments")
    make = getattr(function, "make", None)
    if make is None:
        raise BadFormat(f"a tensor subclass is rebuilt by {brief(function)}")
    if make is from_type:
        raise Unsafe("a tensor is rebuilt through more than one subclass")
    if make is not wrapper_subclass:
        if not function.least <= len(args) <= function.most:
            raise function.refusal(args)
        return make(*args)
    return _local_tensor(cls, args, state)


def wrapper_subclass(*args: object) -> object:
    """Stand in for ``_rebuild_wrapper_subclass``, which makes a tensor without a storage."""
    path = args[0].path if isinstance(args[0], Placeholder) else brief(args[0])
    raise Unsupported(f"a tensor that wraps others in a way of its own ({path})")


def _local_tensor(cls: object, args: tuple[Any, ...], state: object) -> object:
    match state:
        case (_, {"_local_tensor": local, "_spec": spec}):
            size = args[2] if len(args) > 2 else None
            shape = None if size is None else naturals(size, "a distributed tensor's size")
            return LocalTensor(_tensor(local), shape, spec)
        case _:
            return wrapper_subclass(cls)


def device_tensor(data: object, dtype: object, device: object, requires_grad: object) -> object:
    """Stand in for ``_rebuild_device_tensor_from_cpu_tensor`` and ``..._from_numpy``."""
    del device, requires_grad
    found = _tensor(data)
    if not isinstance(found, Tensor | NumpyArray):
        raise BadFormat(f"a {type(found).__name__} is to become a tensor of a device")
    if found.dtype != _dtype(dtype):
        raise Unsupported(f"a tensor saved as {found.dtype} to become another dtype on its device")
    return found


def quantized(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    parameters: object,
    requires_grad: object,
    hooks: object,
) -> QuantizedTensor:
    """Stand in for ``_rebuild_qtensor``."""
    del requires_grad, hooks
    integers: Any = _storage(storage).tensor(offset, size, stride)
    name = {"int8": "qint8", "uint8": "quint8", "int32": "qint32"}.get(integers.dtype.name)
    if name is None:
        raise BadFormat(f"a quantized tensor of {integers.dtype}")
    match parameters:
        case (Placeholder(), float() | int() as scale, int() as zero_point):
            return QuantizedTensor(integers, name, scale, zero_point)
        case (Placeholder(), scales, zero_points, int() as axis):
            return QuantizedTensor(integers, name, _tensor(scales), _tensor(zero_points), axis)
        case _:
            raise BadFormat("a quantized tensor needs its scheme, scale and zero point")


def sparse(layout: object, data: object) -> SparseTensor:
    """Stand in for ``_rebuild_sparse_tensor``."""
    if layout == "torch.sparse_coo":
        match data:
            case (indices, values, size, bool() | None as coalesced):
                pass
            case (indices, values, size):
                coalesced = None
            case _:
                raise BadFormat("a COO tensor needs its indices, values and size")
        shape = naturals(size, "a sparse tensor's size")
        return SparseTensor("torch.sparse_coo", (_tensor(indices),), _tensor(values), shape, coalesced)
    match layout, data:
        case str(), (compressed, plain, values, size):
            shape = naturals(size, "a sparse tensor's size")
            return SparseTensor(layout, (_tensor(compressed), _tensor(plain)), _tensor(values), shape)
        case _:
            raise BadFormat("a sparse tensor needs its layout, indices, values and size")


def nested(buffer: object, sizes: object, strides: object, offsets: object) -> NestedTensor:
    """Stand in for ``_rebuild_nested_tensor``."""
    return NestedTensor(_tensor(buffer), _tensor(sizes), _tensor(strides), _tensor(offsets))


def meta(dtype: object, size: object, stride: object, requires_grad: object) -> MetaTensor:
    """Stand in for ``_rebuild_meta_tensor_no_storage``."""
    del stride, requires_grad
    return MetaTensor(naturals(size, "a tensor's size"), _dtype(dtype))
