"""Abstract arrays: the values a model holds before it has values.

``nn.Linear(8, 32)`` needs no random key and no memory: its parameters start as
:class:`AbstractArray`, a ``jax.ShapeDtypeStruct`` (shape and dtype, no data) that also knows how it
will be drawn. ``purestate.init`` draws the ones that are left, ``bridge.load_state_dict`` fills
them without drawing first, and everything in JAX that takes a ``ShapeDtypeStruct``
(``jax.eval_shape``, Orbax, ahead-of-time lowering) takes a model of them as it is.

The arrays of a lazy layer are further back: :class:`UninitializedArray` knows its dtype and no shape.
``purestate.init`` finds the shapes from example inputs and makes abstract arrays of them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


Initializer = Callable[[jax.Array, tuple[int, ...], Any], jax.Array]
"""``(key, shape, dtype) -> array``; hashable by value, so that equal layers share compilations."""


class AbstractArray(jax.ShapeDtypeStruct):
    """Shape and dtype of an array that is not drawn yet, and its initializer.

    Args:
        shape: A tuple of ints.
        dtype: Any JAX dtype.
        init: ``(key, shape, dtype) -> array``, or None when only a checkpoint can fill it.
        sharding: The sharding to place it with, as in ``jax.ShapeDtypeStruct``.
    """

    __slots__ = ("init",)

    def __init__(self, shape, dtype, init: Initializer | None = None, *, sharding=None):
        super().__init__(tuple(shape), dtype, sharding=sharding)
        self.init = init

    def update(self, **changes: Any) -> "AbstractArray":
        """A copy with some of ``shape``, ``dtype``, ``init`` and ``sharding`` changed."""
        fields = {
            "shape": self.shape,
            "dtype": self.dtype,
            "init": self.init,
            "sharding": self.sharding,
        }
        return AbstractArray(**(fields | changes))

    def __reduce__(self):
        return (AbstractArray, (self.shape, self.dtype, self.init))

    def __repr__(self) -> str:
        return f"AbstractArray(shape={self.shape}, dtype={self.dtype.name}, init={self.init!r})"


class UninitializedArray:
    """Dtype of an array whose shape follows from the first inputs of its lazy layer.

    Args:
        dtype: Any JAX dtype.
        sharding: The sharding to place it with.
    """

    __slots__ = ("dtype", "sharding")

    def __init__(self, dtype: Any, *, sharding: Any = None):
        self.dtype = jnp.dtype(dtype)
        self.sharding = sharding

    @property
    def shape(self) -> tuple[int, ...]:
        """Not known.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes.\n"
            "    write: model = purestate.init(model, rng, *example_inputs)"
        )

    def update(self, **changes: Any) -> "AbstractArray | UninitializedArray":
        """A copy with ``dtype`` or ``sharding`` changed; with a ``shape``, an abstract array."""
        fields = {"dtype": self.dtype, "sharding": self.sharding} | changes
        return AbstractArray(**fields) if "shape" in fields else UninitializedArray(**fields)

    def __reduce__(self):
        return (UninitializedArray, (self.dtype,))

    def __repr__(self) -> str:
        return f"UninitializedArray(dtype={self.dtype.name})"


UNDRAWN = (jax.ShapeDtypeStruct, UninitializedArray)
"""What a leaf without a value is, with and without a shape."""


def is_undrawn(value: Any) -> bool:
    """Whether a leaf has no value yet, with or without a shape."""
    return isinstance(value, UNDRAWN)


def empty(
    *shape: int | tuple[int, ...], dtype: Any = None, init: Initializer | None = None
) -> AbstractArray:
    """An array to be filled later: what ``torch.empty(...)`` is in a constructor.

    Args:
        *shape: The sizes, as ints or as one tuple.
        dtype: The dtype; JAX's default float when None.
        init: How ``purestate.init`` draws it, for instance ``nn.init.normal(std=0.02)``.

    Raises:
        RuntimeError: A size is negative.
    """
    sizes: Any = shape
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        sizes = tuple(shape[0])
    for size in sizes:
        if size < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {size}: {list(sizes)}")
    dtype = jnp.result_type(float) if dtype is None else dtype
    return AbstractArray(sizes, jnp.dtype(dtype), init)
