"""Structural change of a finished model: open a copy, change it by PyTorch's rules, close it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from purestate._base import Base, origin
from purestate._definition import Definition
from purestate._freeze import boxes_of, close, snapshot
from purestate._lives import flatten, unflatten
from purestate._opening import open_tables
from purestate._parameter import Parameter
from purestate._select import Selector, select
from purestate._session import Open, session


class StandIn:
    """What stands for an array when only a definition is edited: nobody knows its dtype."""

    shape, dtype = (), np.dtype(np.float32)


def edit(model: Any, change: Callable[[Any], Any], where: Selector = "") -> Any:
    """The model after ``change`` to the selected modules; a definition gives a definition.

    Args:
        model: A model, or a Definition (whose arrays are then stand-ins nobody may read).
        change: Given each selected module of an open copy, mutates it in place, with the methods a
            constructor would use.
        where: Which modules; the root by default.

    Raises:
        SelectorError: When ``where`` matches nothing.
    """
    if isinstance(model, Definition):
        leaves: tuple[Any, ...] = tuple(StandIn() for _ in model.leaves)
        definition, source = model, None
    elif isinstance(model, Base):
        leaves, definition = flatten(model)
        # A part of the model that is given back to it is shared with it.
        source = origin(model) if model._life is None else None
    else:
        raise TypeError(
            f"expected a model (purestate.Module) or a Definition, got {type(model).__name__}"
        )
    paths = select(definition, where, leaves).values()
    with session(Open()):
        opened = open_tables(definition, leaves, source)
        for module in [opened.get_submodule(path) for path in paths]:
            change(module)
        if isinstance(model, Definition):
            return snapshot(opened)[0]
        return close(opened)


def map_modules(model: Any, fn: Callable[[Any], Any], where: Selector | None = None) -> Any:
    """The model with ``fn`` applied to its modules, children before parents.

    The pure form of ``torch.nn.Module.apply``. A shared module is visited once, and a tie stays one
    array.

    Args:
        model: A model.
        fn: ``module -> module``; what it returns takes the place of what it was given, and may be of
            another class.
        where: Which modules; all when None.

    Raises:
        TypeError: When ``fn`` returns something else than a module.
    """
    leaves, definition = flatten(model)
    chosen = None if where is None else select(definition, where, leaves)
    with session(Open()):
        root = open_tables(definition, leaves)
        opened = {node: root.get_submodule(path) for node, path in definition.path_of.items()}
        # Where each module is registered, to put another one there.
        slots: dict[Any, list[tuple[dict[str, Any], str]]] = {}
        for parent in opened.values():
            children = parent.__dict__["_modules"]
            for name, child in children.items():
                slots.setdefault(child, []).append((children, name))
        for node in _postorder(definition, 0, set()):
            if chosen is None or node in chosen:
                result = _visit(opened[node], fn, definition.path_of[node])
                for children, name in slots.get(opened[node], ()):
                    children[name] = result
                root = result if node == 0 else root
        return close(root)


def _postorder(definition: Definition, node: int, seen: set[int]) -> Iterator[int]:
    seen.add(node)
    for _, child in definition.members(node, "modules"):
        if child is not None and child not in seen:
            yield from _postorder(definition, child, seen)
    yield node


def _visit(opened: Any, fn: Callable[[Any], Any], path: str) -> Any:
    """The open module that ``fn`` makes of the value of one: itself with new arrays, or another."""
    definition, leaves = snapshot(opened)
    value = unflatten(definition, leaves)
    with session(None):
        result = fn(value)
    if not isinstance(result, Base):
        raise TypeError(
            f"the function given to map_modules returned {type(result).__name__} for '{path}'; it "
            "takes a module and returns a module"
        )
    boxes = list(boxes_of(opened))
    if result._definition is definition:
        for box, array in zip(boxes, result._leaves, strict=True):
            box.data = array
        return opened
    # An array that is still the one of before keeps its box, and with it its ties to other modules.
    kept: dict[tuple[int, bool], list[Any]] = {}
    for array, box in zip(leaves, boxes, strict=True):
        kept.setdefault((id(array), isinstance(box, Parameter)), []).append(box)
    return open_tables(result._definition, result._leaves, kept=kept)
