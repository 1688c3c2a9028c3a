"""How much to prune: torch's checks of an amount and of what it is an amount of."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp

from bridge._opened import size


def check_amount(amount: Any) -> None:
    """That an amount is a count, or a fraction.

    Raises:
        TypeError: For something else.
        ValueError: For a fraction outside of [0, 1], or a negative count.
    """
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
        not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0
    ):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )


def count(amount: Any, total: int) -> int:
    """How many of ``total`` an amount is.

    Raises:
        ValueError: For more than there are.
    """
    number = int(amount) if isinstance(amount, numbers.Integral) else round(float(amount) * total)
    if number > total:
        raise ValueError(
            f"amount={number} should be smaller than the number of parameters to prune={total}"
        )
    return number


def check_channels(t: Any, dim: int) -> None:
    """That an array has channels along an axis.

    Raises:
        ValueError: For less than two axes.
        IndexError: For an axis that it does not have.
    """
    if len(t.shape) <= 1:
        raise ValueError(
            "Structured pruning can only be applied to "
            "multidimensional tensors. Found tensor of shape "
            f"{size(t)} with {len(t.shape)} dims"
        )
    if not -len(t.shape) <= dim < len(t.shape):
        raise IndexError(f"Invalid index {dim} for tensor of size {size(t)}")


def channel_norms(t: jax.Array, n: Any, dim: int) -> jax.Array:
    """The ``n``-norm of each channel along an axis; ``n`` as in ``torch.norm``."""
    channels = jnp.moveaxis(t, dim, 0)
    if n == "nuc":
        return jnp.linalg.norm(channels, ord="nuc", axis=(1, 2))
    flat = channels.reshape(channels.shape[0], -1)
    return jnp.linalg.norm(flat, ord=None if n == "fro" else n, axis=1)
