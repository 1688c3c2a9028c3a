"""Spectral normalisation: a weight divided by its largest singular value, which iterations estimate."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bridge._opened import box_of, changed, remember
from bridge._places import in_its_module
from bridge._renamed import name_of_draw
from bridge.parametrize._drawing import original_name, weight_name
from bridge.parametrize._list import drawable_value, is_parametrized, list_of, originals
from bridge.parametrize._old_names import OldSpectralNorm
from bridge.parametrize._part import is_tensor
from bridge.parametrize._registration import key_at, register
from purestate._abstract import AbstractArray, Initializer, is_undrawn
from purestate._freeze import settle
from purestate._hook_registration import register_open
from purestate._module import Module
from purestate._parameter import as_array
from purestate._select import Selector
from purestate.nn.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from purestate.nn.functional import normalize


START = 15
"""How many iterations the vectors start with."""


class _SpectralNorm(Module):
    def __init__(
        self,
        weight: Any,
        n_power_iterations: int = 1,
        dim: int = 0,
        eps: float = 1e-12,
        *,
        beside: bool = True,
        rng: Any = None,
    ):
        super().__init__()
        ndim = len(weight.shape)
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            for vector in ("_u", "_v"):
                start = _Singular(
                    vector, self.dim, eps, weight.shape, beside, getattr(weight, "init", None)
                )
                if is_undrawn(weight):
                    self.register_buffer(vector, start.abstract(weight.dtype))
                else:
                    self.register_buffer(vector, start.of(weight, rng))

    def forward(self, weight: jax.Array) -> jax.Array:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = _matrix(weight, self.dim)
        u, v = self._u, self._v
        if self.training:
            u, v = _iterate(matrix, u, v, self.n_power_iterations, self.eps)
            self._u, self._v = u, v
        u, v = jax.lax.stop_gradient((u, v))
        return weight / jnp.vdot(u, matrix @ v)

    def right_inverse(self, value: jax.Array) -> jax.Array:
        return value


def _matrix(weight: jax.Array, dim: int) -> jax.Array:
    """The weight with the axis of outputs first and the others as one."""
    rows = jnp.moveaxis(weight, dim, 0)
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))  # -1 is no number beside a zero.


def _normalised(vector: jax.Array, eps: float) -> jax.Array:
    return vector / jnp.maximum(jnp.linalg.norm(vector), eps).astype(vector.dtype)


def _iterate(
    matrix: jax.Array, u: jax.Array, v: jax.Array, times: int, eps: float
) -> tuple[jax.Array, jax.Array]:
    """Power iterations, through which nothing is differentiated."""
    matrix = jax.lax.stop_gradient(matrix)
    for _ in range(times):
        u = _normalised(matrix @ v, eps)
        v = _normalised(matrix.conj().T @ u, eps)
    return u, v


@dataclass(frozen=True)
class _Singular:
    """Draws a singular vector of a weight that is drawn from the same key.

    Attributes:
        vector: ``"_u"`` or ``"_v"``.
        dim: The axis of outputs.
        eps: Against a division by zero.
        shape: Of the weight.
        beside: Whether the weight is drawn where ``original`` is.
        init: How the weight is drawn.
    """

    vector: str
    dim: int
    eps: float
    shape: tuple[int, ...]
    beside: bool
    init: Initializer | None

    def drawn_as(self, name: str) -> str:
        """The name of what the weight is drawn as."""
        return original_name(name) if self.beside else name_of_draw(self.init, weight_name(name))

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Draw the weight and iterate."""
        del shape
        assert self.init is not None
        return self.of(self.init(key, self.shape, dtype), key)

    def of(self, weight: Any, key: Any) -> jax.Array:
        """The vector for a weight with values."""
        matrix = _matrix(jnp.asarray(weight), self.dim)
        starts = [
            _normalised(jax.random.normal(jax.random.fold_in(key, n), (count,), matrix.dtype), self.eps)
            for n, count in enumerate(matrix.shape, start=1)
        ]
        u, v = _iterate(matrix, starts[0], starts[1], START, self.eps)
        return u if self.vector == "_u" else v

    def abstract(self, dtype: Any) -> AbstractArray:
        """The vector before it has values."""
        rows = self.shape[self.dim]
        count = 1
        for axis, length in enumerate(self.shape):
            count *= 1 if axis == self.dim else length
        length = rows if self.vector == "_u" else count
        return AbstractArray((length,), dtype, None if self.init is None else self)


def weight_of(module: Any, name: str) -> Any:
    """The array of a name of an open module, drawn or not; torch's error where there is none."""
    if is_parametrized(module, name):
        return drawable_value(module, name)
    box = box_of(module, name)
    if box is not None:
        settle(box, name)
    weight = module.__dict__.get(name) if box is None else as_array(box.data)
    if box is None and not is_tensor(weight):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def remember_made(made: Any, module: Any, name: str, weight: Any) -> None:
    """Save the buffers that a parametrization made of a weight in the dtype that it is saved in."""
    original = next(iter(originals(list_of(module, name)).values()))
    for box in made.__dict__["_buffers"].values():
        remember(box, weight, original.stored_dtype)


@in_its_module
def spectral_norm(
    model: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
    *,
    at: Selector = "",
    rng: Any = 0,
) -> Any:
    """The model with a weight of spectral norm one (``torch.nn.utils.parametrizations.spectral_norm``).

    The vectors ``parametrizations.weight.0._u`` and ``_v`` are state: a call in training mode
    improves them by ``n_power_iterations``, and ``purestate.call`` returns them. Reading
    ``model.weight`` of a finished model changes nothing. Files of the older
    ``torch.nn.utils.spectral_norm`` load too.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        n_power_iterations: In each call while training.
        eps: Against a division by zero.
        dim: The axis of the outputs; 0 when None, and 1 for transposed convolutions.
        at: Which modules; the root by default.
        rng: A key or an int, for the vectors to start from; not used for a weight without values,
            for which ``purestate.init`` draws them.

    Raises:
        ValueError: When there is no such parameter or buffer, or no iteration is asked for.
        IndexError: For an axis that it does not have.
    """

    def change(module: Any, path: str) -> None:
        weight, key = weight_of(module, name), key_at(rng, path, name)
        transposed = isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d)
        axis = int(transposed) if dim is None else dim
        stacked = is_parametrized(module, name)
        beside = not stacked or list_of(module, name).is_tensor
        position = len(list_of(module, name)) if stacked else 0
        norm = _SpectralNorm(weight, n_power_iterations, axis, eps, beside=beside, rng=key)
        register(module, name, norm, False, key)
        remember_made(norm, module, name, weight)
        if len(weight.shape) > 1:
            register_open(module, "load_state_dict_pre", OldSpectralNorm(name, position, norm.dim))

    return changed(model, change, at)
