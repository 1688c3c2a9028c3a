"""Classes as vectors of zeros with a one in the place of the class."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._known import known


__all__ = ["one_hot"]


def one_hot(tensor: jax.Array, num_classes: int = -1) -> jax.Array:
    """A one in the place of each class, zeros elsewhere (``torch.nn.functional.one_hot``).

    Classes are checked where their values are known. Under a transformation that hides them
    (``jit``, ``vmap``) a class outside of the range gives zeros only, and ``num_classes`` is needed.

    Args:
        tensor: Integers of any shape ``(*)``, 32 or 64 bits.
        num_classes: The length of the vectors; -1 takes the greatest class plus one.

    Returns:
        ``(*, num_classes)``, of integers, 64 bits where JAX has them.

    Raises:
        RuntimeError: The classes are outside of the range, or not integers of 32 or 64 bits.
        ValueError: Without ``num_classes`` where the values are not known.
    """
    if tensor.dtype not in (jnp.int32, jnp.int64):
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.size == 0 and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if known(tensor):
        num_classes = _checked(np.asarray(tensor), num_classes)
    elif num_classes == -1:
        raise ValueError(
            "one_hot cannot see the greatest class under a transformation.\n"
            "    write: one_hot(x, num_classes=...)"
        )
    elif num_classes < 1:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _one_hot(tensor, num_classes)


def _checked(values: np.ndarray, num_classes: int) -> int:
    """The number of classes, given or counted, if all values are classes."""
    if values.size and values.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        return int(values.max()) + 1
    if values.size and values.max() >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return num_classes


@functools.partial(jax.jit, static_argnums=1)
def _one_hot(tensor: jax.Array, num_classes: int) -> jax.Array:
    return jax.nn.one_hot(tensor, num_classes, dtype=jax.dtypes.canonicalize_dtype(jnp.int64))
