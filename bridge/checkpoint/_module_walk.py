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
from bridge.checkpoint._records import RECORDS, Placeholder


#: The versions that PyTorch's own classes write into ``_metadata``, where they are not 1.
_VERSIONS = {"torch.nn.modules.batchnorm": 2, "torch.nn.modules.instancenorm": 2}


def is_module(value: Placeholder) -> bool:
    """Whether a placeholder's state is that of an ``nn.Module``."""
    state = value.state
    return isinstance(state, dict) and all(
        isinstance(state.get(name), dict) for name in ("_parameters", "_buffers", "_modules")
    )


def module_state_dict(module: Placeholder) -> StateDict:
    """Return the state dict of a module whose submodules have been turned into theirs."""
    state: dict[str, Any] = module.state
    result = StateDict()
    version = _VERSIONS.get(module.path.rpartition(".")[0], 1)
    metadata: dict[str, dict[str, Any]] = {"": {"version": version}}
    left_out = state.get("_non_persistent_buffers_set")
    if not isinstance(left_out, set | frozenset):  # A file can have anything there.
        left_out = frozenset()
    buffers = {name: value for name, value in state["_buffers"].items() if name not in left_out}
    for name, value in (state["_parameters"] | buffers).items():
        if isinstance(value, (np.ndarray, *RECORDS)):
            result[name] = value
    for name, child in state["_modules"].items():
        if isinstance(child, StateDict):
            result.update((f"{name}.{inner}", value) for inner, value in child.items())
            metadata.update(
                (f"{name}.{inner}" if inner else name, entry) for inner, entry in child.metadata.items()
            )
    result.metadata = metadata
    return result
