"""Attributes that are computed when they are read: what a parametrized or pruned weight is.

PyTorch gives the module another class with a property, or sets the attribute anew before each call.
Here it is a plain attribute of the definition that says how to compute: it stays with the model in
every copy, file and transform, it cannot be stale, and the class stays what it was. In a call it is
computed once, when it is first read.
"""

import abc
from typing import Any


class Computed(abc.ABC):
    """An attribute that stands for a function of its module; hashable, and compared by value.

    Attributes:
        class_prefix: What ``repr`` puts before the name of the module's class.
        removal: The line that makes a plain name of it again, for errors.
    """

    __slots__ = ()

    class_prefix = ""
    removal = ""

    @abc.abstractmethod
    def compute(self, module: Any) -> Any:
        """The value, of a finished model or of one that runs."""

    @abc.abstractmethod
    def assign(self, module: Any, value: Any) -> None:
        """``module.name = value`` while the module is being built.

        Raises:
            RuntimeError: When no arrays give that value.
        """

    @abc.abstractmethod
    def write(self, module: Any, value: Any, path: str) -> None:
        """``self.name = value`` in ``forward``: write the buffers that it is computed from.

        Args:
            module: The module, which runs.
            value: What was assigned.
            path: Where the module is, for errors.

        Raises:
            FrozenModelError: When it is not computed from buffers.
        """


def class_name(module: Any) -> str:
    """The name of a module's class as ``repr`` shows it."""
    life = module._life
    node = module._definition.nodes[0] if life is None else getattr(life, "node", None)
    attributes = (
        [a.value for a in node.attributes]
        if node
        else module.__dict__.get("_computed_names", {}).values()
    )
    prefixes = dict.fromkeys(a.class_prefix for a in attributes if isinstance(a, Computed))
    return "".join(prefixes) + type(module).__name__
