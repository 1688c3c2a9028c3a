"""Surgery: ties made and cut, containers made longer and shorter. The model stays as it was.

What puts a module or an array somewhere is in ``bridge._registration``; to put another module in the
place of each one of a kind, ``purestate.map_modules(model, fn, where)``.
"""

import copy
from collections.abc import Iterable
from typing import Any

from purestate._edit import edit
from purestate._select import Selector


def tie(model: Any, name: str, to: str) -> Any:
    """The model with one array under two names: ``self.head.weight = self.embed.weight``.

    Args:
        model: A model.
        name: The dotted name of the parameter or buffer that gives up its own array.
        to: The dotted name of the one whose array both have from now on.

    Raises:
        AttributeError: For a name that is not one of a parameter or buffer.
        ValueError: When the shapes or dtypes differ, or one is a parameter and one a buffer.
    """

    def change(root: Any) -> None:
        registry, last = _place(root, name)
        other, key = _place(root, to)
        old, new = registry[last], other[key]
        if type(old) is not type(new):
            raise ValueError(f"'{name}' and '{to}' are not both parameters, or both buffers")
        if (old.data.shape, old.data.dtype) != (new.data.shape, new.data.dtype):
            raise ValueError(
                f"cannot tie '{name}' of shape {old.data.shape} and dtype {old.data.dtype} to '{to}' "
                f"of shape {new.data.shape} and dtype {new.data.dtype}"
            )
        registry[last] = new

    return edit(model, change)


def untie(model: Any, name: str) -> Any:
    """The model with an array of its own under a name that was tied; the values stay.

    Args:
        model: A model.
        name: The dotted name; the other names of the tie stay tied to each other.

    Raises:
        AttributeError: For a name that is not one of a parameter or buffer.
    """

    def change(root: Any) -> None:
        registry, last = _place(root, name)
        registry[last] = copy.copy(registry[last])

    return edit(model, change)


def _place(root: Any, name: str) -> tuple[dict[str, Any], str]:
    """The registry that holds a parameter or buffer of an open model, and its key there."""
    path, _, last = name.rpartition(".")
    own = root.get_submodule(path).__dict__
    for registry in ("_parameters", "_buffers"):
        if own[registry].get(last) is not None:
            return own[registry], last
    raise AttributeError(f"{type(root).__name__} has no parameter or buffer '{name}'")


def append(model: Any, module: Any, *, at: Selector = "") -> Any:
    """The model with a module at the end of a container (``Sequential.append``).

    Args:
        model: A model.
        module: The module; appended to several containers by one call, it is shared.
        at: The containers; the root by default.

    Raises:
        SelectorError: When ``at`` matches nothing.
        KeyError: When the next number is taken, where torch overwrites.
        AttributeError: When it is not a container.
    """
    return edit(model, lambda container: container.append(module), at)


def extend(model: Any, modules: Iterable[Any], *, at: Selector = "") -> Any:
    """The model with modules at the end of a container (``Sequential.extend``). See :func:`append`."""
    modules = list(modules)
    return edit(model, lambda container: container.extend(modules), at)


def insert(model: Any, index: int, module: Any, *, at: Selector = "") -> Any:
    """The model with a module before the one at an index; the others are renumbered.

    Args:
        model: A model.
        index: The place, from the end where it is negative.
        module: The module.
        at: The containers; the root by default.

    Raises:
        SelectorError: When ``at`` matches nothing.
        IndexError: For an index outside of it.
    """
    return edit(model, lambda container: container.insert(index, module), at)


def pop(model: Any, index: int | slice | str, *, at: Selector = "") -> Any:
    """The model without the modules at an index, a slice or a key; the others are renumbered.

    Args:
        model: A model.
        index: Of a ``Sequential`` or ``ModuleList`` the index or slice, of a ``ModuleDict`` the key.
        at: The containers; the root by default.

    Raises:
        SelectorError: When ``at`` matches nothing.
        IndexError: For an index outside of it.
        KeyError: For a key that is not there.
    """
    return edit(model, lambda container: container.__delitem__(index), at)
