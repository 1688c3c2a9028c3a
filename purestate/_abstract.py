"""Abstract arrays: the values a model holds before it has values.

``nn.Linear(8, 32)`` needs no random key and no memory: its parameters start as
:class:`AbstractArray`, a ``jax.ShapeDtypeStruct`` (shape and dtype, no data) that also knows how it
will be drawn. ``purestate.init`` draws the ones that are left, ``bridge.load_state_dict`` fills
them without drawing first, and everything in JAX that takes a ``ShapeDtypeStruct``
(``jax.eval_shape``, Orbax, ahead-of-time lowering) takes a model of them as it is.
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


def empty(
    *shape: int | tuple[int, ...], dtype: Any = None, init: Initializer | None = None
) -> AbstractArray:
    """An array to be filled later: what ``torch.empty(...)`` is in a constructor.

    Args:
        *shape: The sizes, as ints or as one tuple.
        dtype: The dtype; JAX's default float when None.
        init: How ``purestate.init`` draws it, for instance ``nn.init.normal(std=0.02)``.
    """
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    dtype = jnp.result_type(float) if dtype is None else dtype
    return AbstractArray(shape, jnp.dtype(dtype), init)
