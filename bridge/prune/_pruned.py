"""Pruned names: a mask beside the original, and the name as their product.

As in torch, ``weight`` becomes the parameter ``weight_orig`` and the buffer ``weight_mask``. What torch
recomputes before each call, and leaves stale in between, is computed when it is read.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from bridge._opened import box_of, is_open, remember, size
from bridge._renamed import Renamed
from bridge.prune._methods import BasePruningMethod, PruningContainer
from purestate._abstract import AbstractArray, is_undrawn
from purestate._building import read
from purestate._computed import Computed
from purestate._errors import UninitializedError, refuse_computed_write
from purestate._freeze import settle
from purestate._parameter import as_array


@dataclass(frozen=True)
class Pruned(Computed):
    """The attribute of a pruned name."""

    name: str

    removal = "model = bridge.prune.remove(model, name)"

    def compute(self, module: Any) -> Any:
        """The original where the mask is one, zero elsewhere."""
        original, mask = self.original(module), self.mask(module)
        if is_undrawn(original):
            return AbstractArray(original.shape, original.dtype)
        return mask.astype(original.dtype) * original

    def original(self, module: Any) -> Any:
        """The array that is masked."""
        return held(module, f"{self.name}_orig")

    def mask(self, module: Any) -> Any:
        """Its mask."""
        return held(module, f"{self.name}_mask")

    def assign(self, module: Any, value: Any) -> None:
        """Refused: torch forgets such a value at the next call."""
        raise RuntimeError(
            f"'{self.name}' of {type(module).__name__} is pruned: it is '{self.name}_orig' where "
            f"'{self.name}_mask' is one.\n"
            f"    write: self.{self.name}_orig.data = value, or bridge.prune.remove(model, name) first"
        )

    def write(self, module: Any, value: Any, path: str) -> None:
        """Refused: a pruned name is a parameter's."""
        del value
        source = f"{self.name}_orig"
        where = f"{path}.{source}" if path else source
        line = f'model = purestate.replace(model, {{"{where}": value}})'
        raise refuse_computed_write(type(module), path, self.name, source, line)


def held(module: Any, name: str) -> Any:
    """What a name reads as, in any life of its module; torch's error where there is none."""
    if not is_open(module):
        return getattr(module, name)
    box = box_of(module, name)
    if box is not None:
        return as_array(box.data)
    return read(module, name)


def without_suffix(name: str) -> str:
    """``"fc.weight"`` for ``"fc.weight_orig"``."""
    return name.removesuffix("_orig")


def prune_with(
    module: Any, name: str, method: BasePruningMethod, importance_scores: Any = None
) -> None:
    """Prune a name of an open module.

    Raises:
        AttributeError: When there is no such name.
        TypeError: When it is not a parameter.
        AssertionError: For importance scores of another shape.
    """
    pruned = isinstance(module.__dict__["_computed_names"].get(name), Pruned)
    box = module.__dict__["_parameters"].get(name)
    if box is not None:
        settle(box, name)
    value = held(module, name)
    if importance_scores is None:
        importance_scores = value
    elif importance_scores.shape != value.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as parameter "
            f"{name} of {module}, got {size(importance_scores)} vs {size(value)}"
        )
    if pruned:
        mask = PruningContainer(method).compute_mask(importance_scores, held(module, f"{name}_mask"))
        module.__dict__["_buffers"][f"{name}_mask"].data = mask
        return
    if box is None:  # A buffer, or an array that is computed: the registration refuses it.
        module.register_parameter(f"{name}_orig", value)
        raise TypeError(f"'{name}' is None and cannot be pruned")
    ones = jnp.ones(value.shape, value.dtype)
    mask = method.compute_mask(importance_scores, default_mask=ones)
    module.register_parameter(f"{name}_orig", box)
    module.register_buffer(f"{name}_mask", mask)
    remember(box_of(module, f"{name}_mask"), value, box.stored_dtype)
    if is_undrawn(box.data) and as_array(box.data).init is not None:
        original = as_array(box.data)
        box.data = original.update(init=Renamed(original.init, without_suffix))
    del module.__dict__["_parameters"][name]
    module.__dict__["_computed_names"][name] = Pruned(name)


def bake(module: Any, name: str) -> None:
    """Make a plain parameter of a pruned name of an open module."""
    own = module.__dict__
    pruned = own["_computed_names"].get(name)
    if not isinstance(pruned, Pruned):
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    value = pruned.compute(module)
    if is_undrawn(value):
        raise UninitializedError(
            f"'{name}' has no value yet that could be masked for good.\n"
            "    write: model = purestate.init(model, rng) before this"
        )
    box = own["_parameters"].pop(f"{name}_orig")
    box.data = value
    delattr(module, f"{name}_mask")
    del own["_computed_names"][name]
    module.register_parameter(name, box)
