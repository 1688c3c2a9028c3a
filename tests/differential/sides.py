"""One script, two libraries: what a test needs of torch and of purestate under the same names.

A constructor is plain assignment on both sides. What changes a finished model returns the model:
here it is another value, on torch's side the same object.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import to_numpy


class Side(NamedTuple):
    """A library as a two-sided script sees it.

    Attributes:
        name: For messages.
        nn: The namespace of layers, with Module, Parameter and Buffer.
        array: From nested lists (and a dtype's name) to an array.
        numpy: From an array, parameter or buffer to numpy.
        state_dict: ``(model, prefix="")`` to the mapping.
        metadata: From a ``state_dict`` to the table of versions.
        versioned: From names and arrays and a table of versions to a ``state_dict``.
        load: ``(model, sd, strict=True, assign=False)`` to ``(model, report)``.
        set_submodule: ``(model, target, module, strict=False)`` to the model.
        unsaved: The names of a module's own buffers that are not persistent.
    """

    name: str
    nn: Any
    array: Callable[..., Any]
    numpy: Callable[[Any], np.ndarray]
    state_dict: Callable[..., Any]
    metadata: Callable[[Any], dict[str, Any]]
    versioned: Callable[[Mapping[str, Any], Any], Any]
    load: Callable[..., tuple[Any, Any]]
    set_submodule: Callable[..., Any]
    unsaved: Callable[[Any], set[str]]


def _torch_load(model, sd, strict=True, assign=False):
    return model, model.load_state_dict(sd, strict=strict, assign=assign)


def _torch_versioned(items, metadata):
    sd: Any = OrderedDict(items)
    sd._metadata = OrderedDict((path, dict(entry)) for path, entry in metadata.items())
    return sd


def _torch_set_submodule(model, target, module, strict=False):
    model.set_submodule(target, module, strict)
    return model


def _our_unsaved(module):
    if "_non_persistent_buffers_set" in module.__dict__:
        return set(module._non_persistent_buffers_set)
    return {name for name, _, keep in module._definition.nodes[0].buffers if not keep}


TORCH = Side(
    "torch",
    torch.nn,
    lambda values, dtype="float32": torch.tensor(values, dtype=getattr(torch, dtype)),
    to_numpy,
    lambda model, prefix="": model.state_dict(prefix=prefix),
    lambda sd: {path: dict(entry) for path, entry in sd._metadata.items()},
    _torch_versioned,
    _torch_load,
    _torch_set_submodule,
    lambda module: set(module._non_persistent_buffers_set),
)

OURS = Side(
    "purestate",
    nn,
    lambda values, dtype="float32": jnp.array(values, dtype=dtype),
    np.asarray,
    lambda model, prefix="": bridge.state_dict(model, prefix=prefix),
    lambda sd: sd.metadata,
    lambda items, metadata: bridge.StateDict(items, metadata=metadata),
    bridge.load_state_dict,
    bridge.set_submodule,
    _our_unsaved,
)

SIDES = (TORCH, OURS)


_TYPENAMES = (
    (r"\btorch\.(cuda\.)?\w*Tensor\b(?! or)", "array"),
    (r"\bjax\.Array\b", "array"),
    (r"\bpurestate\._parameter\.(Parameter|Buffer)\b", "array"),
    (r"\btorch\.nn\.parameter\.Parameter\b", "array"),
    (r"<class '(array|jaxlib\.[\w.]+)'>", "<class 'array'>"),
    (r"\b(torch\.nn\.modules|purestate\.nn)\.(\w+)\.(\w+)", r"nn.\3"),  # The file is ours.
    (r"\b(torch\.nn\.modules\.module|purestate\._module)\.Module\b", "nn.Module"),
    (r"\btests\.differential\.\w+\.(\w+\.<locals>\.)*", ""),
)


def normalise(text: str) -> str:
    """A message without what names the library: the types of arrays and the files of classes."""
    for pattern, name in _TYPENAMES:
        text = re.sub(pattern, name, text)
    return text


def outcome(call: Callable[[], Any]) -> tuple[str, str] | None:
    """The type and normalised text of what a call raises, or None."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, normalise(str(error))
    return None


def construct(
    side: Side, script: Callable[[Side, Any], Any], before: Callable[[Side, Any], Any] | None = None
) -> Any:
    """A module named Net whose constructor runs ``script(side, self)``, ``before`` ahead of super."""

    class Net(side.nn.Module):
        taken = 7

        def __init__(self):
            if before is not None:
                before(side, self)
            super().__init__()
            script(side, self)

    return Net()


def plain(side: Side, value: Any) -> Any:
    """A value as nested lists, whichever library it is of; a module as its class's name."""
    if isinstance(value, torch.nn.Module | ps.Module):
        return type(value).__name__
    if isinstance(value, list | tuple):
        return [plain(side, item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(side, item) for key, item in value.items()}
    if isinstance(value, torch.Tensor | jax.Array | np.ndarray | ps.Parameter | ps.Buffer):
        return side.numpy(value).tolist()
    return value


def registries(side: Side, module: Any, attributes: tuple[str, ...] = ()) -> dict[str, Any]:
    """A module's own registries in order, the unsaved names, and what these names read as."""
    return {
        "parameters": [(name, plain(side, value)) for name, value in module._parameters.items()],
        "buffers": [(name, plain(side, value)) for name, value in module._buffers.items()],
        "modules": [(name, plain(side, value)) for name, value in module._modules.items()],
        "unsaved": side.unsaved(module),
        "reads": {
            name: plain(side, getattr(module, name)) for name in attributes if hasattr(module, name)
        },
    }
