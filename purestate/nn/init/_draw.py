"""Random arrays of any shape from two compiled programs.

Compiling JAX's generator takes a quarter of a second a shape, and a network has dozens of shapes: a
MobileNetV2 took fifteen seconds to draw. So numbers are drawn in chunks of one fixed size, chunk
``i`` from the key folded with ``i``, and an array takes as many chunks as it needs. On the CPU the
chunks are put together by numpy; under a trace, and on other backends, by XLA. Both draw the same
numbers.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer


CHUNK = 1 << 16
"""Numbers drawn at once: about a millisecond of work."""


def uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any, low: float, high: float) -> jax.Array:
    """Uniform numbers in ``[low, high)``."""
    return _affine(_standard("uniform", key, shape, dtype), low, high - low, shape, dtype)


def normal(key: jax.Array, shape: tuple[int, ...], dtype: Any, mean: float, std: float) -> jax.Array:
    """Normal numbers with this mean and standard deviation."""
    return _affine(_standard("normal", key, shape, dtype), mean, std, shape, dtype)


def truncated_normal(
    key: jax.Array, shape: tuple[int, ...], dtype: Any, mean: float, std: float, low: float, high: float
) -> jax.Array:
    """Normal numbers with this mean and standard deviation, within ``[low, high]``."""
    bounds = (low - mean) / std, (high - mean) / std
    return _affine(_standard("truncated_normal", key, shape, dtype, *bounds), mean, std, shape, dtype)


def full(key: jax.Array, shape: tuple[int, ...], dtype: Any, value: Any) -> jax.Array:
    """One value everywhere. The key only says whether this is traced."""
    if _on_host(key):
        return jnp.asarray(np.full(shape, value, dtype))
    return jnp.full(shape, value, dtype)


def _on_host(key: jax.Array) -> bool:
    return not isinstance(key, Tracer) and jax.default_backend() == "cpu"


@functools.partial(jax.jit, static_argnums=(0, 1))
def _chunk(kind: str, dtype: str, key: jax.Array, index: int, *bounds: float) -> jax.Array:
    draw = getattr(jax.random, kind)
    return draw(jax.random.fold_in(key, index), *bounds, shape=(CHUNK,), dtype=jnp.dtype(dtype))


def _standard(kind: str, key: jax.Array, shape: tuple[int, ...], dtype: Any, *bounds: float) -> Any:
    """Enough standard numbers for the shape, flat: in numpy on the host, in JAX elsewhere."""
    precision = "float64" if jnp.dtype(dtype) in (jnp.float64, jnp.complex128) else "float32"
    size = math.prod(shape)
    chunks = (_chunk(kind, precision, key, i, *bounds) for i in range(-(-size // CHUNK)))
    if not _on_host(key):
        return jnp.concatenate([*chunks, jnp.zeros(0, precision)])[:size]
    numbers = np.empty(size, precision)
    for index, chunk in enumerate(chunks):
        part = numbers[index * CHUNK : (index + 1) * CHUNK]
        part[:] = np.asarray(chunk)[: len(part)]
    return numbers


def _affine(numbers: Any, shift: float, scale: float, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """``shift + scale * numbers`` in the numbers' own precision, then shaped and cast."""
    if isinstance(numbers, np.ndarray):
        numbers *= numbers.dtype.type(scale)
        numbers += numbers.dtype.type(shift)
        return jnp.asarray(numbers.reshape(shape).astype(dtype, copy=False))
    return (numbers * scale + shift).reshape(shape).astype(dtype)
