"""The state dict inside a TorchScript archive.

``torch.jit.save`` writes a program: the module as a pickle of attributes, and the source of its
classes as text. The text is not run. It tells, for each class, which attributes it has and which of
them are parameters and buffers; with that, walking the attributes gives the names, the order and the
values of ``torch.jit.load(file).state_dict()``. Torch drops an attribute that the text does not
declare; a part of the model that would be lost so is an error here. So is one whose name the text
cannot tell: names are written into it as they are, and torch cannot load what comes of a quote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bridge._state_dict_type import StateDict
from bridge.checkpoint._module_walk import NameBudget, check_name
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import BadFormat, brief


_CLASS = re.compile(r"^class ([A-Za-z_][A-Za-z0-9_]*)\(Module\):$", re.MULTILINE)
# An attribute whose name is no identifier, "0" of a ModuleList, is declared in a dictionary.
_DECLARED = re.compile(
    r'^  (?:__annotations__\["(.*)"\] = |([A-Za-z_][A-Za-z0-9_]*) : )(.*)$', re.MULTILINE
)
_LIST = r"^  {} = (?:\[(.*)\]$)?"
# A name with one of these is written as it is, so that the text of its class does not say it.
_UNSAYABLE = re.compile(r'["\n]|\\\Z')
# A text that does not end is taken to the end: to look for another in it takes quadratic time.
_NAME = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)')


class ScriptClasses:
    """The module classes of an archive, from its source text.

    Args:
        sources: Module path (``__torch__.models``) to source text.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._names: dict[str, tuple[list[str], list[str]]] = {}
        self._declared: dict[str, dict[str, str]] = {}
        for module, text in sources.items():
            starts = list(_CLASS.finditer(text))
            ends = [match.start() for match in starts[1:]] + [len(text)]
            for match, end in zip(starts, ends, strict=False):
                body = text[match.end() : end]
                path = f"{module}.{match[1]}"
                self._names[path] = (_listed(body, "__parameters__"), _listed(body, "__buffers__"))
                self._declared[path] = {
                    quoted or name: kind for quoted, name, kind in _DECLARED.findall(body)
                }

    def __contains__(self, path: str) -> bool:
        return path in self._names

    def tensors(self, path: str, state: Mapping[Any, Any]) -> list[str]:
        """Return the names of a module's parameters and buffers that are tensors, in this order.

        Args:
            path: The module's class.
            state: Its attributes.

        Raises:
            BadFormat: If they are not those that the class has.
        """
        for name, value in state.items():
            if isinstance(value, np.ndarray) and type(name) is str and _UNSAYABLE.search(name):
                raise BadFormat(f"the text of {path} cannot tell what its attribute {brief(name)} is")
        parameters, buffers = self._names[path]
        for name in parameters + buffers:
            if name not in state:
                raise BadFormat(f"a {path} lacks its parameter or buffer {brief(name)}")
        # Torch counts what may be None among parameters, but not among buffers.
        buffers = [name for name in buffers if self._declared[path].get(name) != "Optional[Tensor]"]
        return [name for name in parameters + buffers if isinstance(state[name], np.ndarray)]

    def check_declared(self, path: str, name: str) -> None:
        """Check that a class declares an attribute.

        Raises:
            BadFormat: It does not.
        """
        if name not in self._declared[path]:
            raise BadFormat(f"the text of {path} does not declare its attribute {brief(name)}")


def _listed(body: str, attribute: str) -> list[str]:
    match = re.search(_LIST.format(attribute), body, re.MULTILINE)
    if match and match[1] is None:
        raise BadFormat(f"a list of {attribute} does not end on its line")
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
    for name in classes.tensors(module.path, state):
        classes.check_declared(module.path, name)
        result[budget.spend(prefix + name)] = state[name]
    inside = above | {id(module)}
    for name, child in state.items():
        check_name(name)
        if isinstance(child, Placeholder) and _is_module(child, classes) and id(child) not in inside:
            classes.check_declared(module.path, name)
            _walk(child, budget.spend(f"{prefix}{name}."), classes, result, budget, inside)


def _is_module(value: Placeholder, classes: ScriptClasses) -> bool:
    return isinstance(value.state, dict) and value.path in classes
