"""bridge: PyTorch's contract on a model that is a value.

What ``nn.Module`` does by mutation, each function here does by returning a new model. Names are
imported when they are first used, so that the command line and ``bridge.checkpoint`` start without
JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from bridge._audit import audit as audit
    from bridge._conversion import (
        bfloat16 as bfloat16,
        double as double,
        float as float,
        half as half,
        to as to,
    )
    from bridge._modes import eval as eval, requires_grad as requires_grad, train as train
    from bridge._names import rename as rename, strip_prefix as strip_prefix
    from bridge._registration import (
        delete as delete,
        register_buffer as register_buffer,
        register_module as register_module,
        register_parameter as register_parameter,
        set_submodule as set_submodule,
    )
    from bridge._state_dict import (
        IncompatibleKeys as IncompatibleKeys,
        load_state_dict as load_state_dict,
        state_dict as state_dict,
    )
    from bridge._state_dict_type import StateDict as StateDict
    from bridge.checkpoint import load as load, save as save

_HOME = {
    "IncompatibleKeys": "_state_dict",
    "StateDict": "_state_dict_type",
    "audit": "_audit",
    "bfloat16": "_conversion",
    "delete": "_registration",
    "double": "_conversion",
    "eval": "_modes",
    "float": "_conversion",
    "half": "_conversion",
    "load": "checkpoint",
    "load_state_dict": "_state_dict",
    "register_buffer": "_registration",
    "register_module": "_registration",
    "register_parameter": "_registration",
    "rename": "_names",
    "requires_grad": "_modes",
    "save": "checkpoint",
    "set_submodule": "_registration",
    "state_dict": "_state_dict",
    "strip_prefix": "_names",
    "to": "_conversion",
    "train": "_modes",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bridge' has no attribute '{name}'")
    importlib.import_module("bridge._pytrees")
    value = globals()[name] = getattr(importlib.import_module(f"bridge.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
