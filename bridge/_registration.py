"""Registration after construction: each function returns a model with one more, or one less, slot.

The checks, their order and the error texts are those of ``torch.nn.Module``; they are applied to an
open copy, so a refused registration leaves nothing behind.
"""

from typing import Any

from bridge._places import in_its_module
from purestate._edit import edit
from purestate._parameter import Parameter
from purestate._select import Selector


@in_its_module
def register_parameter(model: Any, name: str, value: Any, *, at: Selector = "") -> Any:
    """The model with a parameter registered (``torch.nn.Module.register_parameter``).

    Args:
        model: A model.
        name: Without dots. A parameter of that name is replaced, and may change its shape.
        value: An array, an ``nn.Parameter`` (to say ``requires_grad=False``), or None to reserve
            the name.
        at: Which modules get it; the root by default. Each gets a parameter of its own.

    Raises:
        KeyError: For a name with a dot, an empty name, or one that something else has.
        TypeError: For a value that is not an array.
    """
    if value is not None and not hasattr(value, "dtype"):
        register = value  # Torch's own check names the type.
        return edit(model, lambda module: module.register_parameter(name, register), at)

    def change(module: Any) -> None:
        trains = getattr(value, "requires_grad", True)
        data = value.data if isinstance(value, Parameter) else value
        module.register_parameter(name, None if value is None else Parameter(data, trains))

    return edit(model, change, at)


@in_its_module
def register_buffer(
    model: Any, name: str, value: Any, persistent: bool = True, *, at: Selector = ""
) -> Any:
    """The model with a buffer registered (``torch.nn.Module.register_buffer``).

    Args:
        model: A model.
        name: Without dots. A buffer of that name is replaced, value and flag.
        value: An array, or None to reserve the name.
        persistent: Whether it is part of the ``state_dict``.
        at: Which modules get it; the root by default.

    Raises:
        KeyError: For a name with a dot, an empty name, or one that something else has.
        TypeError: For a value that is not an array.
    """
    return edit(model, lambda module: module.register_buffer(name, value, persistent), at)


@in_its_module
def register_module(model: Any, name: str, module: Any, *, at: Selector = "") -> Any:
    """The model with a child registered (``torch.nn.Module.register_module``).

    Registered at several places by one call, it is one shared module.

    Raises:
        TypeError: For something that is not a module.
        KeyError: For a name with a dot, an empty name, or one that something else has.
    """
    return edit(model, lambda parent: parent.register_module(name, module), at)


def set_submodule(model: Any, target: str, module: Any, strict: bool = False) -> Any:
    """The model with a module put at a dotted path (``torch.nn.Module.set_submodule``).

    Args:
        model: A model.
        target: The path; its parent must exist.
        module: The module to put there.
        strict: Whether there must be a module at the path already.

    Raises:
        ValueError: For an empty path or something that is not a module.
        AttributeError: When the parent does not exist, or the name is not a module's.
    """
    return edit(model, lambda root: root.set_submodule(target, module, strict))


@in_its_module
def delete(model: Any, name: str, *, at: Selector = "") -> Any:
    """The model without a parameter, buffer, child or plain attribute (``del module.name``).

    Raises:
        AttributeError: When there is no such name.
    """
    return edit(model, lambda module: module.__delattr__(name), at)
