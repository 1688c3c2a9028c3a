"""Structural change of a finished model: open a copy, change it by PyTorch's rules, close it."""

from collections.abc import Callable, Iterator
from typing import Any

from purestate._base import Base
from purestate._building import Open, session
from purestate._definition import Definition
from purestate._freeze import boxes_of, close, open_tables, snapshot
from purestate._lives import flatten, unflatten
from purestate._select import Selector, select


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
        leaves: tuple[Any, ...] = tuple(object() for _ in model.leaves)
        definition = model
    elif isinstance(model, Base):
        leaves, definition = flatten(model)
    else:
        raise TypeError(
            f"expected a model (purestate.Module) or a Definition, got {type(model).__name__}"
        )
    paths = select(definition, where, leaves).values()
    with session(Open()) as life:
        opened = open_tables(definition, leaves)
        life.copies[id(model)] = (model, opened)  # A part of the model, given back to it, is shared.
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
        for node in _postorder(definition, 0, set()):
            if chosen is None or node in chosen:
                root = _visit(root, opened[node], fn, definition.path_of[node])
        return close(root)


def _postorder(definition: Definition, node: int, seen: set[int]) -> Iterator[int]:
    seen.add(node)
    for _, child in definition.members(node, "modules"):
        if child is not None and child not in seen:
            yield from _postorder(definition, child, seen)
    yield node


def _visit(root: Any, opened: Any, fn: Callable[[Any], Any], path: str) -> Any:
    """Apply ``fn`` to the value of one open module, and put its result in the module's place."""
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
        return root
    # An array that is still the one of before keeps its box, and with it its ties to other modules.
    kept = {id(array): box for array, box in zip(leaves, boxes, strict=True)}
    replacement = open_tables(result._definition, result._leaves, kept)
    if opened is root:
        return replacement
    for module in root.modules():
        children = module.__dict__["_modules"]
        for name, child in children.items():
            if child is opened:
                children[name] = replacement
    return root
