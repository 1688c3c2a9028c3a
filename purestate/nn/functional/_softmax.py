"""Activations that normalise along one axis: softmax, its logarithm, its mirror, its random kin.

Halves are computed in float32 and rounded once. The default axis, which torch picks by the number
of axes, is settled with torch's warning before anything is traced: a warning inside a jitted body
would come once and never again.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from purestate._warning import warn
from purestate.nn.functional._dtypes import scalar_type, widen
from purestate.nn.functional._elementwise import check_kernel
from purestate.nn.functional._operands import check_negation
from purestate.nn.functional._options import axis


__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


def softmax(
    input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> jax.Array:
    """``exp(x) / sum(exp(x))`` along ``dim`` (``torch.nn.functional.softmax``).

    Args:
        input: Any shape, floating point unless ``dtype`` is.
        dim: The axis. None picks 0 for 0, 1 and 3 axes and 1 otherwise, with torch's warning.
        _stacklevel: Accepted for torch's sake.
        dtype: Cast to it first.

    Raises:
        IndexError: When ``dim`` is not an axis.
    """
    del _stacklevel
    dim = _chosen("softmax", input, dim)
    return _softmax(input, axis(dim, input.ndim), _name(dtype))


def softmin(
    input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> jax.Array:
    """``softmax(-x)`` along ``dim`` (``torch.nn.functional.softmin``).

    See :func:`softmax` for the arguments.
    """
    del _stacklevel
    dim = _chosen("softmin", input, dim)
    check_negation(input)
    return _softmin(input, axis(dim, input.ndim), _name(dtype))


def log_softmax(
    input: jax.Array, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> jax.Array:
    """``log(softmax(x))`` along ``dim``, computed stably (``torch.nn.functional.log_softmax``).

    See :func:`softmax` for the arguments.
    """
    del _stacklevel
    dim = _chosen("log_softmax", input, dim)
    return _log_softmax(input, axis(dim, input.ndim), _name(dtype))


def gumbel_softmax(
    logits: jax.Array,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """A differentiable draw from a categorical distribution (``torch.nn.functional.gumbel_softmax``).

    Jang et al., 2017: the softmax of the logits with Gumbel noise, at a temperature.

    Args:
        logits: ``(*, classes, *)``, floating point: log-probabilities, normalised or not.
        tau: The temperature.
        hard: Return the class drawn, one-hot, with the gradient of the soft draw.
        eps: Without effect, as in torch; another value than the default warns.
        dim: The axis of the classes.
        rng: A JAX key.

    Returns:
        The shape and dtype of the logits; along ``dim`` it sums to one.

    Raises:
        RuntimeError: The logits are not floating point.
        IndexError: When ``dim`` is not an axis, or an empty one that ``hard`` should choose from.
        ValueError: Without ``rng``.
    """
    if eps != 1e-10:
        warn("`eps` parameter is deprecated and has no effect.")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {scalar_type(logits.dtype)}"
        )
    dim = axis(dim, logits.ndim)
    if hard and logits.ndim and logits.shape[dim] == 0:
        raise IndexError(f"max(): Expected reduction dim {dim} to have non-zero size.")
    if rng is None:
        raise ValueError(
            "gumbel_softmax needs a random key.\n"
            "    write: gumbel_softmax(logits, rng=key), in a module rng=self.next_key()"
        )
    return _gumbel_softmax(logits, rng, tau, hard, dim)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _softmax(input: jax.Array, dim: int, dtype: str | None) -> jax.Array:
    return _normalised("softmax", jax.nn.softmax, input, dim, dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _softmin(input: jax.Array, dim: int, dtype: str | None) -> jax.Array:
    return _softmax(-input, dim, dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _log_softmax(input: jax.Array, dim: int, dtype: str | None) -> jax.Array:
    return _normalised("log_softmax", jax.nn.log_softmax, input, dim, dtype)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _gumbel_softmax(logits: jax.Array, rng: jax.Array, tau: float, hard: bool, dim: int) -> jax.Array:
    wide = widen(logits)
    noise = jax.random.gumbel(rng, wide.shape, wide.dtype)
    soft = _softmax((wide + noise) / tau, dim, None)
    if not hard:
        return soft.astype(logits.dtype)
    if logits.ndim == 0:
        drawn = jnp.ones_like(soft)
    else:
        drawn = jax.nn.one_hot(soft.argmax(dim), soft.shape[dim], axis=dim, dtype=soft.dtype)
    return (drawn - jax.lax.stop_gradient(soft) + soft).astype(logits.dtype)


def _normalised(name: str, function: Any, input: jax.Array, dim: int, dtype: str | None) -> jax.Array:
    """A softmax by JAX, with torch's dtypes; a scalar is an axis of one."""
    input = input if dtype is None else input.astype(dtype)
    if input.size == 0:
        return input
    is_last = dim == max(input.ndim, 1) - 1
    check_kernel(f"{name}_lastdim_kernel_impl" if is_last else f"{name}_kernel_impl", input)
    output = function(jnp.atleast_1d(widen(input)), axis=dim)
    return output.reshape(input.shape).astype(input.dtype)


def _name(dtype: Any) -> str | None:
    """A hashable name of the dtype, of the one that JAX has for it."""
    return None if dtype is None else jax.dtypes.canonicalize_dtype(dtype).name


def _chosen(name: str, input: jax.Array, dim: int | None) -> int:
    if dim is not None:
        return dim
    warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
    )
    return 0 if input.ndim in (0, 1, 3) else 1
