"""The state dict inside a TorchScript archive.

``torch.jit.save`` writes a program: the module as a pickle of attributes, and the source of its
classes as text. The text is not run. It tells, for each class, which attributes are parameters and
buffers and which are plain tensors; with that, walking the attributes gives the names, the order
and the values of ``torch.jit.load(file).state_dict()``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._module_walk import NameBudget, check_name
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat


_CLASS = re.compile(r"^class ([A-Za-z_][A-Za-z0-9_]*)\(Module\):$", re.MULTILINE)
_LIST = r"^  {} = \[(.*)\]$"
# A text that does not end is taken to the end: to look for another in it takes quadratic time.
_NAME = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)')


class ScriptClasses:
    """The module classes of an archive, from its source text.

    Args:
        sources: Module path (``__torch__.models``) to source text.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._names: dict[str, tuple[list[str], list[str]]] = {}
        for module, text in sources.items():
            starts = list(_CLASS.finditer(text))
            ends = [match.start() for match in starts[1:]] + [len(text)]
            for match, end in zip(starts, ends, strict=False):
                body = text[match.end() : end]
                self._names[f"{module}.{match[1]}"] = (
                    _listed(body, "__parameters__"),
                    _listed(body, "__buffers__"),
                )

    def __contains__(self, path: str) -> bool:
        return path in self._names

    def tensors(self, path: str) -> list[str]:
        """Return the names of a class's parameters, then of its buffers."""
        parameters, buffers = self._names[path]
        return parameters + buffers


def _listed(body: str, attribute: str) -> list[str]:
    match = re.search(_LIST.format(attribute), body, re.MULTILINE)
    return _NAME.findall(match[1]) if match else []


def script_state_dict(root: object, classes: ScriptClasses, size: int) -> StateDict:
    """Return the state dict of the module that an archive's ``data.pkl`` describes.

    Args:
        root: What the pickle holds.
        classes: The classes of the archive.
        size: How many bytes the pickle has.
    """
    if not isinstance(root, Placeholder) or not _is_module(root, classes):
        raise BadFormat("the TorchScript archive does not hold a module")
    result = StateDict()
    _walk(root, "", classes, result, NameBudget(size), frozenset())
    return result


def _walk(
    module: Placeholder,
    prefix: str,
    classes: ScriptClasses,
    result: StateDict,
    budget: NameBudget,
    above: frozenset[int],
) -> None:
    state: dict[Any, Any] = module.state
    for name in classes.tensors(module.path):
        if isinstance(state.get(name), np.ndarray):
            result[budget.spend(prefix + name)] = state[name]
    inside = above | {id(module)}
    for name, child in state.items():
        check_name(name)
        if isinstance(child, Placeholder) and _is_module(child, classes) and id(child) not in inside:
            _walk(child, budget.spend(f"{prefix}{name}."), classes, result, budget, inside)


def _is_module(value: Placeholder, classes: ScriptClasses) -> bool:
    return isinstance(value.state, dict) and value.path in classes
