"""PyTorch's initialisers as values: ``(key, shape, dtype) -> array``.

Each is a frozen dataclass, hashable and equal by value, so that equal layers share one definition
and one compilation of their draw. They draw from the distributions of ``torch.nn.init``; the random
bits are JAX's, so statistics agree with torch and single numbers do not.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from purestate.nn.init import _draw
from purestate.nn.init._fans import calculate_gain, correct_fan, fan_in_and_fan_out, warn_if_empty


@dataclasses.dataclass(frozen=True)
class uniform:
    """Uniform on ``[a, b)`` (``torch.nn.init.uniform_``)."""

    a: float = 0.0
    b: float = 1.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return _draw.uniform(key, shape, dtype, self.a, self.b)


@dataclasses.dataclass(frozen=True)
class normal:
    """Normal with this mean and standard deviation (``torch.nn.init.normal_``)."""

    mean: float = 0.0
    std: float = 1.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return _draw.normal(key, shape, dtype, self.mean, self.std)


@dataclasses.dataclass(frozen=True)
class trunc_normal:
    """Normal, redrawn outside of ``[a, b]`` (``torch.nn.init.trunc_normal_``)."""

    mean: float = 0.0
    std: float = 1.0
    a: float = -2.0
    b: float = 2.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return _draw.truncated_normal(key, shape, dtype, self.mean, self.std, self.a, self.b)


@dataclasses.dataclass(frozen=True)
class constant:
    """One value everywhere (``torch.nn.init.constant_``)."""

    val: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return _draw.full(key, shape, dtype, self.val)


def ones() -> constant:
    """Ones (``torch.nn.init.ones_``)."""
    return constant(1.0)


def zeros() -> constant:
    """Zeros (``torch.nn.init.zeros_``)."""
    return constant(0.0)


@dataclasses.dataclass(frozen=True)
class eye:
    """The identity matrix, for 2-D shapes (``torch.nn.init.eye_``)."""

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        del key
        if len(shape) != 2:
            raise ValueError("Only tensors with 2 dimensions are supported")
        return jnp.eye(*shape, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class dirac:
    """The convolution that passes its input through (``torch.nn.init.dirac_``)."""

    groups: int = 1

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        del key
        check_dirac(shape, self.groups)
        out_channels = shape[0] // self.groups
        diagonal = jnp.arange(min(out_channels, shape[1]))
        centre = tuple(size // 2 for size in shape[2:])
        array = jnp.zeros(shape, dtype)
        for group in range(self.groups):
            array = array.at[(group * out_channels + diagonal, diagonal, *centre)].set(1)
        return array


def check_dirac(shape: tuple[int, ...], groups: int) -> None:
    """Torch's checks of a shape for ``dirac_``."""
    if len(shape) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if shape[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")


@dataclasses.dataclass(frozen=True)
class xavier_uniform:
    """Glorot's uniform (``torch.nn.init.xavier_uniform_``; Glorot and Bengio, 2010)."""

    gain: float = 1.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        bound = math.sqrt(3.0) * self.gain * math.sqrt(2.0 / sum(fan_in_and_fan_out(shape)))
        return _draw.uniform(key, shape, dtype, -bound, bound)


@dataclasses.dataclass(frozen=True)
class xavier_normal:
    """Glorot's normal (``torch.nn.init.xavier_normal_``; Glorot and Bengio, 2010)."""

    gain: float = 1.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        std = self.gain * math.sqrt(2.0 / sum(fan_in_and_fan_out(shape)))
        return _draw.normal(key, shape, dtype, 0.0, std)


@dataclasses.dataclass(frozen=True)
class kaiming_uniform:
    """He's uniform (``torch.nn.init.kaiming_uniform_``; He et al., 2015)."""

    a: float = 0.0
    mode: str = "fan_in"
    nonlinearity: str = "leaky_relu"

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        if warn_if_empty(shape):
            return jnp.zeros(shape, dtype)
        gain = calculate_gain(self.nonlinearity, self.a)
        bound = math.sqrt(3.0) * gain / math.sqrt(correct_fan(shape, self.mode))
        return _draw.uniform(key, shape, dtype, -bound, bound)


@dataclasses.dataclass(frozen=True)
class kaiming_normal:
    """He's normal (``torch.nn.init.kaiming_normal_``; He et al., 2015)."""

    a: float = 0.0
    mode: str = "fan_in"
    nonlinearity: str = "leaky_relu"

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        if warn_if_empty(shape):
            return jnp.zeros(shape, dtype)
        std = calculate_gain(self.nonlinearity, self.a) / math.sqrt(correct_fan(shape, self.mode))
        return _draw.normal(key, shape, dtype, 0.0, std)


@dataclasses.dataclass(frozen=True)
class orthogonal:
    """A (semi-)orthogonal matrix (``torch.nn.init.orthogonal_``; Saxe et al., 2013)."""

    gain: float = 1.0

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        if len(shape) < 2:
            raise ValueError("Only tensors with 2 or more dimensions are supported")
        rows, columns = shape[0], math.prod(shape[1:])
        # QR has no half-precision form: drawn and factored in at least float32, cast at the end.
        wide = jnp.promote_types(dtype, jnp.float32)
        flat = _draw.normal(key, (max(rows, columns), min(rows, columns)), wide, 0.0, 1.0)
        q, r = jnp.linalg.qr(flat)
        # The sign of R's diagonal makes the distribution uniform over orthogonal matrices.
        q = q * jnp.sign(jnp.diagonal(r))
        return (self.gain * (q.T if rows < columns else q).reshape(shape)).astype(dtype)


@dataclasses.dataclass(frozen=True)
class sparse:
    """Normal entries, a fraction of each column zero (``torch.nn.init.sparse_``; Martens, 2010)."""

    sparsity: float
    std: float = 0.01

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        if len(shape) != 2:
            raise ValueError("Only tensors with 2 dimensions are supported")
        rows, columns = shape
        values_key, rows_key = jax.random.split(key)
        values = _draw.normal(values_key, shape, dtype, 0.0, self.std)
        order = (
            _draw.uniform(rows_key, (columns, rows), jnp.float32, 0.0, 1.0)
            .argsort(axis=1)
            .argsort(axis=1)
            .T
        )
        return jnp.where(order < math.ceil(self.sparsity * rows), 0, values).astype(dtype)


@dataclasses.dataclass(frozen=True)
class zero_row:
    """Another initialiser with one row of zeros: an embedding's padding row."""

    base: Any
    row: int

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return self.base(key, shape, dtype).at[self.row].set(0)
