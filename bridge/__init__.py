"""bridge: PyTorch's contract on a model that is a value.

What ``nn.Module`` does by mutation, each function here does by returning a new model. Names are
imported when they are first used, so that the command line and ``bridge.checkpoint`` start without
JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from bridge import parametrize as parametrize, prune as prune
    from bridge._audit import audit as audit
    from bridge._conversion import (
        bfloat16 as bfloat16,
        double as double,
        float as float,
        half as half,
        to as to,
    )
    from bridge._functional_call import (
        functional_call as functional_call,
        stack_module_state as stack_module_state,
    )
    from bridge._hooks import (
        Handle as Handle,
        register_forward_hook as register_forward_hook,
        register_forward_pre_hook as register_forward_pre_hook,
        register_full_backward_hook as register_full_backward_hook,
        register_full_backward_pre_hook as register_full_backward_pre_hook,
        register_load_state_dict_post_hook as register_load_state_dict_post_hook,
        register_load_state_dict_pre_hook as register_load_state_dict_pre_hook,
        register_state_dict_post_hook as register_state_dict_post_hook,
        register_state_dict_pre_hook as register_state_dict_pre_hook,
    )
    from bridge._load_checkpoint import (
        load_checkpoint as load_checkpoint,
    )
    from bridge._load_report import (
        LoadReport as LoadReport,
    )
    from bridge._load_state_dict import (
        IncompatibleKeys as IncompatibleKeys,
        load_state_dict as load_state_dict,
    )
    from bridge._modes import (
        eval as eval,
        requires_grad as requires_grad,
        train as train,
    )
    from bridge._names import (
        consume_prefix_in_state_dict_if_present as consume_prefix_in_state_dict_if_present,
        rename as rename,
        strip_prefix as strip_prefix,
    )
    from bridge._patch import (
        patch as patch,
    )
    from bridge._registration import (
        delete as delete,
        register_buffer as register_buffer,
        register_module as register_module,
        register_parameter as register_parameter,
        set_submodule as set_submodule,
    )
    from bridge._save_checkpoint import save_checkpoint as save_checkpoint
    from bridge._state_dict import state_dict as state_dict
    from bridge._state_dict_type import (
        StateDict as StateDict,
    )
    from bridge._surgery import (
        append as append,
        extend as extend,
        insert as insert,
        pop as pop,
        tie as tie,
        untie as untie,
    )
    from bridge.checkpoint import (
        load as load,
        save as save,
    )

_HOME = {
    "Handle": "_hooks",
    "IncompatibleKeys": "_load_state_dict",
    "LoadReport": "_load_report",
    "StateDict": "_state_dict_type",
    "append": "_surgery",
    "audit": "_audit",
    "bfloat16": "_conversion",
    "consume_prefix_in_state_dict_if_present": "_names",
    "delete": "_registration",
    "double": "_conversion",
    "eval": "_modes",
    "extend": "_surgery",
    "float": "_conversion",
    "functional_call": "_functional_call",
    "half": "_conversion",
    "insert": "_surgery",
    "load": "checkpoint",
    "load_checkpoint": "_load_checkpoint",
    "load_state_dict": "_load_state_dict",
    "patch": "_patch",
    "pop": "_surgery",
    "register_buffer": "_registration",
    "register_forward_hook": "_hooks",
    "register_forward_pre_hook": "_hooks",
    "register_full_backward_hook": "_hooks",
    "register_full_backward_pre_hook": "_hooks",
    "register_load_state_dict_post_hook": "_hooks",
    "register_load_state_dict_pre_hook": "_hooks",
    "register_module": "_registration",
    "register_parameter": "_registration",
    "register_state_dict_post_hook": "_hooks",
    "register_state_dict_pre_hook": "_hooks",
    "rename": "_names",
    "requires_grad": "_modes",
    "save": "checkpoint",
    "save_checkpoint": "_save_checkpoint",
    "set_submodule": "_registration",
    "stack_module_state": "_functional_call",
    "state_dict": "_state_dict",
    "strip_prefix": "_names",
    "tie": "_surgery",
    "to": "_conversion",
    "train": "_modes",
    "untie": "_surgery",
}

_PACKAGES = ("parametrize", "prune")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"bridge.{name}")
    if name.startswith("register_module_") and name.endswith("hook"):
        raise AttributeError(
            f"there are no hooks for all modules (torch.nn.modules.module.{name}): a model's behaviour "
            "is in the model.\n"
            '    write: model, handle = bridge.register_forward_hook(model, hook, at=["", "**"])'
        )
    if name not in _HOME:
        raise AttributeError(f"module 'bridge' has no attribute '{name}'")
    importlib.import_module("bridge._pytrees")
    value = globals()[name] = getattr(importlib.import_module(f"bridge.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PACKAGES})
