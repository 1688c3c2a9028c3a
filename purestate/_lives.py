"""What differs between the lives of a module: how it is read, written, walked and copied.

Each function looks at ``module._life`` once. A value reads its one slot, a running view reads its
call, an open module reads torch's registries in its ``__dict__``.
"""

import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from purestate import _building as building
from purestate._attributes import resolve
from purestate._base import Base, Origin, origin, set_parts
from purestate._definition import Definition, Node
from purestate._errors import (
    REMEDIES,
    FrozenModelError,
    refuse_delete,
    refuse_method,
    refuse_write,
)
from purestate._freeze import Closed, copy_open
from purestate._parameter import Buffer
from purestate._running import Running
from purestate._session import REGISTRIES, Open, members
from purestate._traversal import Members


# The pytree. Flattening a value is one C call that reads a slot; a running view has nothing in it,
# so the same call falls through to __getattr__, which computes the pair.

flatten: Callable[[Any], Any] = operator.attrgetter("_parts")
_new = object.__new__
_lock = threading.Lock()


def unflatten(definition: Definition, leaves: Iterable[Any]) -> Any:
    """The value with this definition and these leaves, which may be anything JAX puts there."""
    module = _new(definition.cls)
    set_parts(module, (leaves, definition))
    if definition.shadowing:
        _shadow(module, definition)
    return module


def flatten_with_keys(module: Any) -> tuple[Any, Definition]:
    """The leaves with their dotted names, and the definition."""
    leaves, definition = flatten(module)
    return tuple(zip(definition.key_paths, leaves, strict=True)), definition


def _shadow(module: Base, definition: Definition) -> None:
    """Set the attributes that hide one of the class, where Python's own look-up finds them."""
    for attribute in definition.shadowing:
        value = attribute.value
        module.__dict__[attribute.name] = _resolved(module, value) if attribute.refers else value


# Reading.


def read(module: Base, name: str) -> Any:
    """``module.name`` where Python's own look-up found nothing.

    Raises:
        AttributeError: With torch's text, or saying what to write for a method that mutates.
    """
    life = module.__dict__.get("_life")
    if life is None:
        return _read_value(module, name)
    if type(life) is Running:
        return life.read(module, name)
    if type(life) is Closed:
        raise FrozenModelError(
            f"this {type(module).__name__} was built inside {life.owner.__name__}() and belongs to "
            "that model.\n"
            "    write: read it from there, as model.path.to.it"
        )
    return building.read(module, name)


def _read_value(module: Base, name: str) -> Any:
    node: Node = module._definition.nodes[0] if name != "_parts" else _unset(module)
    member = node.lookup.get(name)
    if member is None:
        return _read_special(module, node, name)
    kind, target = member
    if kind == "attribute":
        return _resolved(module, target.value) if target.refers else target.value
    if kind == "computed":
        return target.value.compute(module)
    if kind == "training" or target is None:
        return target
    if kind != "module":
        return module._leaves[target]
    view = _submodule(module, target)
    if name not in module.__dict__ and not hasattr(type(module), name):
        module.__dict__[name] = view  # Python's own look-up finds it from now on.
    return view


def _unset(module: Base) -> Any:
    raise AttributeError(
        f"this {type(module).__name__} was made without its constructor and holds nothing"
    )


def _read_special(module: Any, node: Node, name: str) -> Any:
    """Torch's registries as read-only mappings; a remedy for what only an object could do."""
    if name in REGISTRIES:
        kind = name.removeprefix("_")
        return MappingProxyType({key: _read_value(module, key) for key, _ in node.members(kind)})
    if name in REMEDIES:
        raise refuse_method(name)
    raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")


def _submodule(module: Base, node: int) -> Any:
    """A submodule as a model of its own, with its own leaves."""
    whole = origin(module)
    known = whole.token.views.get(whole.nodes[node])
    return _make_view(module, node, whole) if known is None else known


def _make_view(module: Base, node: int, whole: Origin) -> Any:
    definition, taken, nodes = module._definition.submodule(node)
    leaves = module._leaves
    view = unflatten(definition, tuple(leaves[leaf] for leaf in taken))
    view.__dict__["_origin"] = Origin(
        whole.token,
        tuple(whole.nodes[node] for node in nodes),
        tuple(whole.leaves[leaf] for leaf in taken),
    )
    # Of two threads that come here at once, one decides: a submodule is one object.
    with _lock:
        return whole.token.views.setdefault(whole.nodes[node], view)


def _at(module: Any, path: str) -> Any:
    """The view at a path, through the views on the way, which each parent keeps."""
    for name in path.split(".") if path else ():
        module = _read_value(module, name) if name not in module.__dict__ else module.__dict__[name]
    return module


def _resolved(module: Base, value: Any) -> Any:
    definition, leaves = module._definition, module._leaves

    def node(index: int | None) -> Any:
        if index is None:
            raise _outside(module)
        return _at(module, definition.path_of[index])

    def leaf(index: int | None) -> Any:
        if index is None:
            raise _outside(module)
        return leaves[index]

    return resolve(value, node, leaf)


def _outside(module: Base) -> AttributeError:
    return AttributeError(
        f"this attribute of {type(module).__name__} refers to a part of the model that is not below "
        "it.\n    write: read or call it from the whole model"
    )


# Writing.


def write(module: Base, name: str, value: Any) -> None:
    """``module.name = value``."""
    life = module._life
    if isinstance(life, Open):
        if isinstance(getattr(type(module), name, None), property):
            object.__setattr__(module, name, value)
        elif name in module.__dict__.get("_computed_names", ()):
            module.__dict__["_computed_names"][name].assign(module, value)
        else:
            building.assign(module, name, value)
    elif type(life) is Running:
        life.write(module, name, value)
    else:
        raise refuse_write(type(module), name, _kind(module, name))


def delete(module: Base, name: str) -> None:
    """``del module.name``."""
    if not isinstance(module._life, Open):
        raise refuse_delete(type(module), name)
    if name in module.__dict__.get("_computed_names", ()):
        raise AttributeError(
            f"'{name}' of {type(module).__name__} is computed from other arrays, which deleting it "
            f"would leave behind.\n    write: {module.__dict__['_computed_names'][name].removal}"
        )
    building.delete(module, name)


def _kind(module: Base, name: str) -> str | None:
    if module._life is not None:
        return None
    member = module._definition.nodes[0].lookup.get(name)
    return None if member is None else member.kind


def names(module: Base) -> Iterator[str]:
    """The registered names and attributes, for ``dir``."""
    view = graph(module)
    for kind in ("parameters", "buffers", "modules"):
        yield from (name for name, _ in view.members(view.root, kind))
    if module._life is None:
        yield from module._definition.nodes[0].lookup
    elif isinstance(module._life, Open):
        yield from module.__dict__.get("_computed_names", ())


# Walking.


class Graph(NamedTuple):
    """A module tree for ``purestate._traversal``, and what its tokens are.

    Attributes:
        members: The direct members of a node.
        root: The node of the module asked.
        array: From the token of a parameter or buffer to its array.
        module: From a path below the root and its token to the module.
    """

    members: Members
    root: Any
    array: Callable[[Any], Any]
    module: Callable[[str, Any], Any]


def graph(module: Any) -> Graph:
    """The tree below a module, in whichever life it is."""
    life = module._life
    if life is None:
        definition = module._definition
        return Graph(
            definition.members,
            0,
            module._leaves.__getitem__,
            lambda path, node: _at(module, path),
        )
    if type(life) is Running:
        call = life.call
        return Graph(call.definition.members, life.index, call.read, lambda path, node: call.view(node))
    return Graph(members, module, _open_array, lambda path, child: child)


def _open_array(box: Any) -> Any:
    return box.data if isinstance(box, Buffer) and not box.tagged else box


# Copying.


def copy(module: Any) -> Any:
    """``copy.copy``: another object with the same arrays."""
    if isinstance(module._life, Open):
        twin = _new(type(module))
        twin.__dict__.update(module.__dict__)
        return twin
    leaves, definition = flatten(module)
    return unflatten(definition, leaves)


def deepcopy(module: Any, memo: dict[int, Any]) -> Any:
    """``copy.deepcopy``: a model that shares nothing that could change.

    JAX arrays are immutable and stay; numpy leaves are copied. While a model is built, the copy is
    a part of its own: equal arrays, no ties to the original.
    """
    if isinstance(module._life, Open):
        return copy_open(module, memo)
    leaves, definition = flatten(module)
    leaves = tuple(leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves)
    return unflatten(definition, leaves)


def reduce(module: Any) -> Any:
    """Pickling: the definition re-enters the intern table, the arrays go as arrays."""
    leaves, definition = flatten(module)
    return unflatten, (definition, tuple(leaves))
