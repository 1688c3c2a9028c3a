"""From a value to open objects: fresh modules and boxes with the same arrays, to be changed.

``adopt`` is how a finished model becomes a child of one that is being built; ``purestate._edit`` opens
a whole model to change it. ``purestate._freeze`` is the way back.
"""

from typing import Any

from purestate._abstract import UninitializedArray
from purestate._attributes import thaw
from purestate._base import Base, Origin, Token, origin as origin_of
from purestate._computed import Computed
from purestate._definition import Definition
from purestate._parameter import (
    Box,
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)
from purestate._session import Open, current_session


def adopt(child: Base) -> Base:
    """The open module to register for a child: itself, or the open copy of a finished model.

    Parts of one model, and the model itself, are opened into one copy (``purestate._base.Origin``),
    so what they share stays shared whatever order they are registered in.
    """
    if current_session() is None or isinstance(child._life, Open):
        return child
    return open_tables(child._definition, child._leaves, origin_of(child))


def open_tables(
    definition: Definition,
    leaves: tuple[Any, ...],
    origin: Origin | None = None,
    kept: dict[tuple[int, bool], list[Box]] | None = None,
) -> Any:
    """The open form of a definition with these leaves (arrays, or any stand-ins for them).

    Args:
        definition: The structure.
        leaves: One per leaf of the definition.
        origin: Where the nodes and leaves come from; those the session opened before are used again.
        kept: Boxes to use again, by the ``id`` of the leaf they hold and whether it is a parameter.
    """
    life = current_session() or Open()
    source = origin or Origin(Token(), tuple(range(len(definition.nodes))), tuple(range(len(leaves))))
    parameters = {leaf for node in definition.nodes for _, leaf in node.parameters}
    boxes = []
    for leaf, (description, value) in enumerate(zip(definition.leaves, leaves, strict=True)):
        key = source.token, source.leaves[leaf]
        if key not in life.boxes:
            reusable = (kept or {}).get((id(value), leaf in parameters))
            box = reusable.pop() if reusable else _open_box(leaf in parameters, value)
            box.requires_grad, box.stored_dtype = description
            life.boxes[key] = box
        boxes.append(life.boxes[key])
    keys = [(source.token, number) for number in source.nodes]
    fresh = [number for number, key in enumerate(keys) if key not in life.modules]
    for number in fresh:
        life.modules[keys[number]] = object.__new__(definition.nodes[number].cls)
    modules = [life.modules[key] for key in keys]

    def module_at(index: int | None) -> Any:
        return None if index is None else modules[index]

    def box_at(index: int | None) -> Any:
        return None if index is None else boxes[index]

    for number in fresh:
        module, node = modules[number], definition.nodes[number]
        module.__dict__.update(
            _life=life,
            training=node.training,
            _registered_hooks=(node.hooks, node.registered),
            _computed_names={},
            _parameters={name: box_at(leaf) for name, leaf in node.parameters},
            _buffers={name: box_at(leaf) for name, leaf, _ in node.buffers},
            _non_persistent_buffers_set={name for name, _, keep in node.buffers if not keep},
            _modules={name: module_at(child) for name, child in node.modules},
        )
        for attribute in node.attributes:
            own = module.__dict__
            own = own["_computed_names"] if isinstance(attribute.value, Computed) else own
            own[attribute.name] = thaw(attribute.value, module_at, box_at)
    return modules[0]


def _open_box(parameter: bool, value: Any) -> Box:
    lazy = isinstance(value, UninitializedArray)
    box: Box
    if parameter:
        box = object.__new__(UninitializedParameter if lazy else Parameter)
    else:
        box = object.__new__(UninitializedBuffer if lazy else Buffer)
        # A lazy buffer is read as its box, which has ``materialize``.
        box.persistent, box.tagged = True, lazy
    box.data = value
    return box
