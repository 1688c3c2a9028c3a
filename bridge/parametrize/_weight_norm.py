"""Weight normalisation: a weight as a length and a direction."""

from typing import Any

import jax
import jax.numpy as jnp

from bridge._opened import changed
from bridge._places import in_its_module
from bridge.parametrize._old_names import OldWeightNorm
from bridge.parametrize._registration import key_at, register
from purestate._hook_registration import register_open
from purestate._module import Module
from purestate._select import Selector


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: jax.Array, weight_v: jax.Array) -> jax.Array:
        return weight_v * (weight_g / _norm_except(weight_v, self.dim))

    def right_inverse(self, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _norm_except(weight, self.dim), weight


def _norm_except(weight: jax.Array, dim: int) -> jax.Array:
    """The norm over all axes but one, which keeps its place; over all for -1."""
    if dim == -1:
        return jnp.linalg.norm(weight.reshape(-1))
    ndim = weight.ndim
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"
        )
    axes = tuple(axis for axis in range(ndim) if axis != dim % ndim)
    return jnp.sqrt(jnp.sum(jnp.square(jnp.abs(weight)), axis=axes, keepdims=True))


@in_its_module
def weight_norm(model: Any, name: str = "weight", dim: int | None = 0, *, at: Selector = "") -> Any:
    """The model with a weight ``g * v / |v|`` (``torch.nn.utils.parametrizations.weight_norm``).

    ``parametrizations.weight.original0`` is ``g``, ``original1`` is ``v``. Files of the older
    ``torch.nn.utils.weight_norm`` (``weight_g``, ``weight_v``) load too.

    Args:
        model: A model, or in a constructor, a child.
        name: Of a parameter.
        dim: The axis along which each entry has a length of its own; None (or -1) for one length.
        at: Which modules; the root by default.

    Raises:
        ValueError: When there is no such parameter or buffer.
        IndexError: For an axis that it does not have.
    """

    def change(module: Any, path: str) -> None:
        register(module, name, _WeightNorm(dim), True, key_at(0, path, name))
        register_open(module, "load_state_dict_pre", OldWeightNorm(name))

    return changed(model, change, at)
