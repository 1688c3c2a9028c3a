"""Parameter and Buffer: the boxes that hold an array while a model is under construction.

In PyTorch a parameter is one object with an identity, and a tie is that object under two names. An
array here is only a value, so while the constructor runs each parameter and buffer lives in a box
whose identity stands for the tie. When the constructor ends the boxes are gone: their arrays become
the leaves of the model, and what the boxes knew (trains or not, saved or not) is in its definition.

A box behaves as its array in arithmetic, so constructor code may compute with it.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._abstract import AbstractArray, UninitializedArray, empty


class Box:
    """An array with an identity. ``data`` may be replaced while the model is under construction."""

    __slots__ = ("__weakref__", "data", "requires_grad", "stored_dtype")

    def __init__(self, data: Any, requires_grad: bool):
        self.data = data
        self.requires_grad = requires_grad
        self.stored_dtype: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.data.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.data.shape)

    @property
    def size(self) -> int:
        """The number of elements (``torch.Tensor.numel``)."""
        return self.data.size

    def numel(self) -> int:
        """The number of elements, under torch's name."""
        return self.data.size

    def dim(self) -> int:
        """The number of axes, under torch's name."""
        return self.ndim

    def requires_grad_(self, requires_grad: bool = True) -> "Box":
        """Set ``requires_grad``, as torch does; only while the model is under construction."""
        if requires_grad and not jnp.issubdtype(self.data.dtype, jnp.inexact):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        self.requires_grad = requires_grad
        return self

    def value(self) -> Any:
        """The array; an error when it is not drawn yet."""
        if isinstance(self.data, AbstractArray):
            raise TypeError(
                f"this {type(self).__name__} of shape {self.data.shape} has no value yet: "
                "purestate.init draws it after the constructor.\n"
                "    write: compute from it in forward, or give it a value: "
                "nn.Parameter(jnp.zeros(shape))"
            )
        return self.data

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(self.value())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value(), dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.value()[index]

    def __len__(self) -> int:
        return self.data.shape[0]

    def __getattr__(self, name: str) -> Any:
        # Whatever else an array has: shape helpers, reductions, ``T``.
        if name in Box.__slots__ or name.startswith("__"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.value(), name)

    def __add__(self, other: Any) -> Any:
        return self.value() + _operand(other)

    def __radd__(self, other: Any) -> Any:
        return other + self.value()

    def __sub__(self, other: Any) -> Any:
        return self.value() - _operand(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self.value()

    def __mul__(self, other: Any) -> Any:
        return self.value() * _operand(other)

    def __rmul__(self, other: Any) -> Any:
        return other * self.value()

    def __truediv__(self, other: Any) -> Any:
        return self.value() / _operand(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.value()

    def __pow__(self, other: Any) -> Any:
        return self.value() ** _operand(other)

    def __rpow__(self, other: Any) -> Any:
        return other ** self.value()

    def __matmul__(self, other: Any) -> Any:
        return self.value() @ _operand(other)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.value()

    def __neg__(self) -> Any:
        return -self.value()


def _operand(other: Any) -> Any:
    return other.value() if isinstance(other, Box) else other


def _check_requires_grad(data: Any, requires_grad: bool) -> bool:
    if requires_grad and not jnp.issubdtype(data.dtype, jnp.inexact):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    return requires_grad


def as_array(data: Any) -> Any:
    """An array (or abstract array) from what a user may pass as data."""
    if isinstance(data, Box):
        return data.data
    if isinstance(data, jax.Array | np.ndarray | np.generic | AbstractArray | UninitializedArray):
        return data
    if isinstance(data, jax.ShapeDtypeStruct):
        return AbstractArray(data.shape, data.dtype, sharding=data.sharding)
    return jnp.asarray(data)


class Parameter(Box):
    """An array that trains: ``self.weight = nn.Parameter(value)`` in a constructor.

    Torch's name: ``torch.nn.Parameter``. Assigning the same Parameter under two names ties them:
    the model has one leaf with two names.

    Args:
        data: An array, or :func:`purestate.empty` for one to be drawn later. Nothing gives an empty
            float array, as in torch.
        requires_grad: Whether it trains. False keeps it a parameter (its name, its place in the
            ``state_dict``) that no gradient reaches.

    Raises:
        RuntimeError: For an integer or boolean array with ``requires_grad=True``.
    """

    __slots__ = ()

    def __init__(self, data: Any = None, requires_grad: bool = True):
        data = empty(0) if data is None else as_array(data)
        super().__init__(data, _check_requires_grad(data, requires_grad))

    def __repr__(self) -> str:
        return f"Parameter containing:\n{self.data!r}"


class Buffer(Box):
    """An array that is state but does not train: ``self.mask = nn.Buffer(value)``.

    Torch's name: ``torch.nn.Buffer``.

    Args:
        data: An array, or :func:`purestate.empty` for one to be drawn later.
        persistent: Whether it is part of the ``state_dict``.
    """

    __slots__ = ("persistent", "tagged")

    def __init__(self, data: Any, *, persistent: bool = True):
        super().__init__(as_array(data), requires_grad=False)
        self.persistent = persistent
        # Torch reads a buffer registered from a plain tensor back as that plain tensor; only an
        # nn.Buffer keeps its tag and registers again under a second name.
        self.tagged = True

    def __repr__(self) -> str:
        return f"Buffer containing:\n{self.data!r}"


class _Uninitialized(Box):
    """What the two boxes without a shape share."""

    __slots__ = ()

    def _materialize(self, cls: type, shape: Sequence[int], dtype: Any) -> None:
        dtype = self.data.dtype if dtype is None else jnp.dtype(dtype)
        self.data = self.data.update(shape=tuple(shape), dtype=dtype)
        self.__class__ = cls

    def value(self) -> Any:
        """Nothing yet.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"Attempted to use an uninitialized parameter ({type(self).__name__}): its shape follows "
            "from the inputs of its lazy module.\n"
            "    write: compute from it in forward"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter of a lazy module, whose shape is not known yet. In a constructor.

    Torch's name: ``torch.nn.UninitializedParameter``.

    Args:
        requires_grad: Whether it trains.
        dtype: Its dtype; JAX's default float when None.
    """

    __slots__ = ()

    def __init__(self, requires_grad: bool = True, dtype: Any = None):
        dtype = jnp.result_type(float) if dtype is None else dtype
        Parameter.__init__(self, UninitializedArray(dtype), requires_grad)

    def materialize(self, shape: Sequence[int], dtype: Any = None) -> None:
        """Give it a shape, in the ``initialize_parameters`` of a lazy module: it becomes a Parameter.

        Args:
            shape: The sizes.
            dtype: Another dtype.
        """
        self._materialize(Parameter, shape, dtype)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer of a lazy module, whose shape is not known yet. In a constructor.

    Torch's name: ``torch.nn.UninitializedBuffer``.

    Args:
        requires_grad: Torch's argument; a buffer does not train.
        dtype: Its dtype; JAX's default float when None.
        persistent: Whether it is part of the ``state_dict``.
    """

    __slots__ = ()

    def __init__(self, requires_grad: bool = False, dtype: Any = None, persistent: bool = True):
        del requires_grad
        dtype = jnp.result_type(float) if dtype is None else dtype
        Buffer.__init__(self, UninitializedArray(dtype), persistent=persistent)

    def materialize(self, shape: Sequence[int], dtype: Any = None) -> None:
        """Give it a shape, in the ``initialize_parameters`` of a lazy module: it becomes a Buffer.

        Args:
            shape: The sizes.
            dtype: Another dtype.
        """
        self._materialize(Buffer, shape, dtype)
