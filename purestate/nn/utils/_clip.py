"""Clipping gradients by their norm or by value.

In torch gradients are stored on the parameters and these functions write them there. Here they are a
value, the pytree that ``jax.grad`` returned, so each function takes one (NamedArrays, a dict, a list, a
model) and returns one. The names keep their underscores: they are the names that training code has.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from purestate._warning import warn
from purestate.nn.functional._dtypes import widen
from purestate.nn.functional._known import known
from purestate.nn.functional._vector_norm import vector_norm


__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
]


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> jax.Array:
    """The norm of all arrays as one vector: the norm of their norms.

    Torch's name: ``torch.nn.utils.get_total_norm``.

    Args:
        tensors: An array, or any pytree or iterator of arrays.
        norm_type: The order, ``float('inf')`` for the largest entry.
        error_if_nonfinite: Whether a norm that is not finite is an error. Only where its value is
            known: under ``jit`` nothing is checked.
        foreach: Torch's choice of implementation; not used.

    Returns:
        A scalar; 0 for no arrays.

    Raises:
        RuntimeError: For a norm that is not finite, for integers, or for an infinite or negative order
            of an empty array.
    """
    del foreach
    order = float(norm_type)
    total = _total_norm(jax.tree.leaves(_tree(tensors)), order)
    if error_if_nonfinite and known(total) and not bool(jnp.isfinite(total)):
        raise RuntimeError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
            "anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    grads: Any, max_norm: float, total_norm: jax.Array, foreach: bool | None = None
) -> Any:
    """The gradients times ``max_norm / (total_norm + 1e-6)``, where that is less than 1.

    Torch's name: ``torch.nn.utils.clip_grads_with_norm_``. Pure: ``grads`` stays as it is.

    Args:
        grads: An array, or any pytree or iterator of arrays.
        max_norm: The largest norm.
        total_norm: Their norm, from :func:`get_total_norm`.
        foreach: Torch's choice of implementation; not used.

    Returns:
        The same tree, dtypes included.
    """
    del foreach
    return _scaled(_tree(grads), max_norm, total_norm)


def clip_grad_norm_(
    grads: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> tuple[Any, jax.Array]:
    """The gradients scaled to a total norm of at most ``max_norm``, and the norm they had.

    Torch's name: ``torch.nn.utils.clip_grad_norm_``. Pure: ``grads`` stays as it is.

    Args:
        grads: An array, or any pytree or iterator of arrays.
        max_norm: The largest norm.
        norm_type: The order of the norm, ``float('inf')`` for the largest entry.
        error_if_nonfinite: Whether a norm that is not finite is an error, where its value is known.
        foreach: Torch's choice of implementation; not used.

    Returns:
        ``(gradients, norm)``.

    Raises:
        RuntimeError: As :func:`get_total_norm`.

    Example:
        >>> grads, norm = nn.utils.clip_grad_norm_(grads, 1.0)
    """
    tree = _tree(grads)
    if isinstance(grads, Iterator) and not tree:
        warn("`parameters` is an empty generator, no gradient clipping will occur.")
    norm = get_total_norm(tree, norm_type, error_if_nonfinite, foreach)
    return clip_grads_with_norm_(tree, max_norm, norm, foreach), norm


def clip_grad_norm(
    grads: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> tuple[Any, jax.Array]:
    """:func:`clip_grad_norm_`, under a name that torch deprecates.

    Torch's name: ``torch.nn.utils.clip_grad_norm``.
    """
    warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(grads, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(grads: Any, clip_value: float, foreach: bool | None = None) -> Any:
    """The gradients with each entry within ``-clip_value`` and ``clip_value``.

    Torch's name: ``torch.nn.utils.clip_grad_value_``. Pure: ``grads`` stays as it is.

    Args:
        grads: An array, or any pytree or iterator of arrays.
        clip_value: The largest absolute value.
        foreach: Torch's choice of implementation; not used.

    Returns:
        The same tree.
    """
    del foreach
    return _bounded(_tree(grads), clip_value)


def _tree(arrays: Any) -> Any:
    """A pytree of what may be a generator."""
    return list(arrays) if isinstance(arrays, Iterator) else arrays


@functools.partial(jax.jit, static_argnames="order")
def _total_norm(arrays: list[jax.Array], order: float) -> jax.Array:
    if not arrays:
        return jnp.zeros(())
    if (order < 0 or math.isinf(order)) and not all(array.size for array in arrays):
        which = "_foreach_norm cannot compute the infinity norm"
        if order < 0:
            which = f"linalg.vector_norm cannot compute the {order:g} norm"
        raise RuntimeError(
            f"{which} on an empty tensor because the operation does not have an identity"
        )
    norms = [vector_norm(array, order, tuple(range(array.ndim))) for array in arrays]
    return vector_norm(jnp.stack(norms), order, (0,))


@jax.jit
def _scaled(tree: Any, max_norm: Any, total_norm: Any) -> Any:
    factor = jnp.minimum(max_norm / (total_norm + 1e-6), 1.0)
    return jax.tree.map(lambda grad: (widen(grad) * widen(factor)).astype(grad.dtype), tree)


@jax.jit
def _bounded(tree: Any, bound: Any) -> Any:
    # The lower bound first, as torch: the upper one wins where they cross.
    return jax.tree.map(
        lambda grad: jnp.minimum(jnp.maximum(grad, -bound), bound).astype(grad.dtype), tree
    )
