"""The state dict of a whole module that was pickled.

``torch.save(model)`` writes the model object: its class by name, then its attributes. The class is
code and stays a name, but the attributes are enough: ``nn.Module`` keeps its parameters, buffers
and submodules in three dictionaries among them, in the order of registration, and
``_non_persistent_buffers_set`` names the buffers that a state dict leaves out. Walking them gives
what ``model.state_dict()`` would, for a class that does not override it.

The walk goes from the leaves up: when a module is turned into its state dict, the modules in it
have been already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._records import RECORDS, Placeholder, is_uninitialized
from bridge.checkpoint.errors import BadFormat, Unsafe, Unsupported, brief


#: The versions that PyTorch's own classes write into ``_metadata``, where they are not 1.
_VERSIONS = {"torch.nn.modules.batchnorm": 2, "torch.nn.modules.instancenorm": 2}


def is_module(value: Placeholder) -> bool:
    """Whether a placeholder's state is that of an ``nn.Module``."""
    state = value.state
    return isinstance(state, dict) and all(
        isinstance(state.get(name), dict) for name in ("_parameters", "_buffers", "_modules")
    )


class NameBudget:
    """How many names the modules of one file may have, in all.

    A module can hold one submodule twice, and that one another twice: forty small objects then have
    a million million names. Where nothing is shared, a name takes part in the names of each level
    above it, which are fewer than the bytes that describe it.

    Args:
        size: How many bytes the pickle has.
    """

    def __init__(self, size: int) -> None:
        self._names = 250_000 + size // 4
        self._letters = (32 << 20) + 16 * size

    def spend(self, name: str) -> str:
        """Return ``name``, if there is room for it."""
        self._names -= 1
        self._letters -= len(name)
        if self._names < 0 or self._letters < 0:
            raise Unsafe("the modules in the file hold each other so often that they have no end")
        return name


def module_state_dict(module: Placeholder, budget: NameBudget) -> StateDict:
    """Return the state dict of a module whose submodules have been turned into theirs.

    Raises:
        Unsupported: If a parameter, buffer or submodule is something that is not read.
    """
    state: dict[str, Any] = module.state
    result = StateDict()
    version = _VERSIONS.get(module.path.rpartition(".")[0], 1)
    metadata: dict[str, dict[str, Any]] = {"": {"version": version}}
    left_out = state.get("_non_persistent_buffers_set")
    if not isinstance(left_out, set | frozenset):  # A file can have anything there.
        left_out = frozenset()
    for name in (*state["_parameters"], *state["_buffers"], *state["_modules"]):
        check_name(name)
    buffers = {name: value for name, value in state["_buffers"].items() if name not in left_out}
    for name, value in (state["_parameters"] | buffers).items():
        if isinstance(value, (np.ndarray, *RECORDS)) or is_uninitialized(value):
            result[budget.spend(name)] = value
        elif value is not None:
            raise _not_read(module, name, value, "tensor")
    for name, child in state["_modules"].items():
        if isinstance(child, StateDict):
            for inner, value in child.items():
                result[budget.spend(f"{name}.{inner}")] = value
            for inner, entry in child.metadata.items():
                metadata[budget.spend(f"{name}.{inner}" if inner else name)] = entry
        elif child is not None:
            raise _not_read(module, name, child, "module")
    result.metadata = metadata
    return result


def check_name(name: object) -> None:
    """Refuse what cannot be one part of a dotted name."""
    if type(name) is not str or not name or "." in name:
        raise BadFormat(f"{brief(name)} is no name of a parameter, buffer or module")


def _not_read(module: Placeholder, name: object, value: object, what: str) -> Unsupported:
    return Unsupported(
        f"{brief(name)} of a {module.path} is {brief(value)}, which is not read as a {what}",
        advice="Load the file with torch where its code is, and save model.state_dict()",
    )
