"""From open objects, which change, to a value that never does.

``close`` turns the module that the outermost constructor made into a value: it numbers the modules
and boxes in PyTorch's order, freezes the plain attributes, interns the definition and collects the
arrays. ``purestate._opening`` is the way back, on a copy.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purestate._abstract import is_undrawn
from purestate._attributes import Attribute, LeafRef, NodeRef, Reference, freeze
from purestate._base import Base, Origin, Token, set_parts
from purestate._definition import Definition, Leaf, Node, intern
from purestate._errors import BuildError
from purestate._opening import open_tables
from purestate._parameter import Box
from purestate._session import INTERNAL, Open, current_session, members
from purestate._traversal import named_modules


class Closed:
    """The life of a module that was built inside another one's constructor, after its end."""

    __slots__ = ("owner",)

    def __init__(self, owner: type):
        self.owner = owner


def close(root: Any) -> Any:
    """Turn an open module, in place, into a value. Its children belong to it from now on.

    Raises:
        AttributeError: When ``super().__init__()`` was never called.
        BuildError: For a cycle of modules, or an attribute that cannot be a constant.
    """
    definition, leaves = snapshot(root)
    for _, module in list(named_modules(members, root)):
        module.__dict__.clear()
        if module is not root:
            module.__dict__["_life"] = Closed(type(root))
    for attribute in definition.shadowing:
        if not attribute.refers:
            root.__dict__[attribute.name] = attribute.value
    set_parts(root, (leaves, definition))
    return root


def snapshot(root: Any) -> tuple[Definition, tuple[Any, ...]]:
    """The definition and leaves of an open module, which stays as it is. Raises as ``close``."""
    _check_started(root, "")
    _check_acyclic(root, "", [], set())
    tree = [module for _, module in named_modules(members, root)]
    nodes = {module: number for number, module in enumerate(tree)}
    boxes = {box: number for number, box in enumerate(boxes_of(root))}
    parameters = {box for module in tree for _, box in members(module, "parameters")}
    definition = intern(
        tuple(_close_node(module, nodes, boxes) for module in tree),
        tuple(_describe(box, box in parameters) for box in boxes),
    )
    return definition, tuple(
        _array(box, name) for box, name in zip(boxes, definition.names, strict=True)
    )


def boxes_of(root: Base) -> dict[Box, None]:
    """The distinct boxes below an open module, in leaf order."""
    boxes: dict[Box, None] = {}
    for _, module in named_modules(members, root):
        for kind in ("parameters", "buffers"):
            boxes.update((box, None) for _, box in members(module, kind) if box is not None)
    return boxes


def _check_started(module: Base, path: str) -> None:
    if "_parameters" not in module.__dict__:
        where = f" (at '{path}')" if path else ""
        raise AttributeError(
            f"{type(module).__name__}.__init__{where} did not call super().__init__().\n"
            "    write: super().__init__() as its first line"
        )
    if type(module).__hash__ is not object.__hash__:
        raise BuildError(
            f"{type(module).__name__} defines __eq__ or __hash__, and equal modules would become one: "
            "a module is told from another by identity.\n"
            "    write: @dataclass(eq=False), or a method of another name"
        )


def _check_acyclic(module: Base, path: str, above: list[Base], done: set[Base]) -> None:
    for name, child in members(module, "modules"):
        if child is None or child in done:
            continue
        child_path = f"{path}.{name}" if path else name
        _check_started(child, child_path)
        if child is module or any(child is other for other in above):
            raise BuildError(
                f"'{child_path}' is a module that contains it: a model is a tree of values and "
                "cannot contain itself.\n"
                "    write: pass what the child needs as an argument of its forward, or hold the "
                "parent in a plain list, self.parent = [parent], which is a reference"
            )
        _check_acyclic(child, child_path, [*above, module], done)
    done.add(module)


def _close_node(module: Base, nodes: dict[Base, int], boxes: dict[Box, int]) -> Node:
    own = module.__dict__

    def number(table, item):
        return None if item is None else table[item]

    unsaved = own["_non_persistent_buffers_set"]
    return Node(
        type(module),
        tuple((name, number(boxes, box)) for name, box in own["_parameters"].items()),
        tuple((name, number(boxes, box), name not in unsaved) for name, box in own["_buffers"].items()),
        tuple((name, number(nodes, child)) for name, child in own["_modules"].items()),
        tuple(
            _close_attribute(module, name, value, nodes, boxes)
            for name, value in [*own.items(), *own["_computed_names"].items()]
            if name not in INTERNAL
        ),
        bool(own["training"]),
        *own["_registered_hooks"],
    )


def _close_attribute(
    module: Base, name: str, value: Any, nodes: dict[Base, int], boxes: dict[Box, int]
) -> Attribute:
    where = f"{type(module).__name__}.{name}"
    life = current_session()

    def refer(item: Any) -> Reference | None:
        if isinstance(item, Base):
            source = item.__dict__.get("_origin")
            if life is not None and source is not None:
                item = life.modules.get((source.token, source.nodes[0]), item)
            return NodeRef(nodes[item]) if item in nodes else None
        if isinstance(item, Box):
            return LeafRef(boxes[item]) if item in boxes else None
        return None

    return Attribute(name, *freeze(_settled(value, refer, nodes, where), refer, where))


def _settled(
    item: Any, refer: Callable[[Any], Reference | None], nodes: dict[Base, int], where: str
) -> Any:
    """An unregistered module or box is a constant: close it on its own."""
    if refer(item):
        return item
    if isinstance(item, Box):
        return item.data
    if isinstance(item, Base) and isinstance(item.__dict__.get("_life"), Open):
        return _close_unregistered(item, where, nodes)
    if isinstance(item, list) or type(item) is tuple:
        items = [_settled(part, refer, nodes, where) for part in item]
        return tuple(items) if type(item) is tuple else items
    if isinstance(item, dict):
        return {key: _settled(part, refer, nodes, where) for key, part in item.items()}
    return item


def _close_unregistered(module: Base, where: str, nodes: dict[Base, int]) -> Base:
    _check_started(module, "")
    for path, inner in named_modules(members, module):
        if inner in nodes:
            raise BuildError(
                f"{where} holds an unregistered {type(module).__name__} that contains the "
                f"registered module '{path}'; it would keep the arrays of today for ever.\n"
                "    write: register it too (nn.ModuleList for a list of modules)"
            )
    return close(module)


def _describe(box: Box, is_parameter: bool) -> Leaf:
    return Leaf(is_parameter and box.requires_grad, box.stored_dtype or _narrowed(box.data))


def _narrowed(data: Any) -> str | None:
    """The 64-bit dtype of numpy or abstract input that JAX narrows while x64 is off."""
    if not (isinstance(data, np.ndarray | np.generic) or is_undrawn(data)):
        return None
    return data.dtype.name if jax.dtypes.canonicalize_dtype(data.dtype) != data.dtype else None


def _array(box: Box, name: str) -> Any:
    """The leaf: numpy input becomes a JAX array, without silent loss of integers."""
    data = box.data
    if isinstance(data, np.ndarray | np.generic):
        return narrow(data, name)
    if is_undrawn(data):
        return data.update(dtype=jax.dtypes.canonicalize_dtype(data.dtype))
    return data


def settle(box: Box, name: str) -> None:
    """Give an open box the array that its leaf would be; the dtype that JAX narrows is remembered."""
    box.stored_dtype = box.stored_dtype or _narrowed(box.data)
    box.data = _array(box, name)


def narrow(data: Any, name: str) -> jax.Array:
    """A JAX array of a numpy array: a copy; integers that do not fit the narrower dtype raise.

    Raises:
        OverflowError: For an int64 or uint64 value outside its 32-bit range while x64 is off.
    """
    target = jax.dtypes.canonicalize_dtype(data.dtype)
    if target != data.dtype and np.issubdtype(target, np.integer) and np.size(data):
        info = np.iinfo(target)
        if data.min() < info.min or data.max() > info.max:
            raise OverflowError(
                f"'{name}' holds {data.dtype.name} values outside of {target.name} "
                f"([{data.min()}, {data.max()}]), and JAX is in 32-bit mode.\n"
                '    write: jax.config.update("jax_enable_x64", True)'
            )
    return jnp.array(data, dtype=target)


def copy_open(module: Any, memo: dict[int, Any]) -> Any:
    """A copy of an open module: equal arrays in boxes of its own, shared only within one ``deepcopy``.

    Args:
        module: The open module; it stays as it is.
        memo: ``copy.deepcopy``'s, by which modules copied in one go keep what they share.
    """
    definition, leaves = snapshot(module)
    parts = [part for _, part in named_modules(members, module)]
    boxes = list(boxes_of(module))
    source = Origin(Token(), tuple(range(len(parts))), tuple(range(len(boxes))))
    life: Open = module._life
    for known, originals in ((life.modules, parts), (life.boxes, boxes)):
        for number, original in enumerate(originals):
            if id(original) in memo:
                known[source.token, number] = memo[id(original)]
    twin = open_tables(definition, leaves, source)
    for known, originals in ((life.modules, parts), (life.boxes, boxes)):
        for number, original in enumerate(originals):
            memo[id(original)] = known[source.token, number]
    return twin
