"""Plain attributes as constants of a definition: frozen to be read, keyed to be compared.

Whatever ``self.x = value`` assigns that is not a parameter, buffer or module is part of the
definition, which is immutable and compared by value. So every attribute has two forms: the frozen
value that reading gives back (a list becomes a :class:`FrozenList`, equal to it and refusing to
change), and a hashable key in which ``1``, ``1.0`` and ``True`` differ and arrays count by shape,
dtype and bytes.

An attribute may also refer to what is registered: ``self.blocks = [self.a, self.b]``, a bound
method, a list of weights. Such references are kept as node and leaf numbers and are resolved when
the attribute is read, so that they always mean the current arrays.
"""

import contextlib
import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purestate._errors import BuildError
from purestate._frozen import FrozenDict, FrozenList, like, pack, unpack
from purestate._warning import warn


LARGE_CONSTANT = 1 << 20
"""Bytes above which an unregistered array warns: it is baked into every compiled program."""


class NodeRef(NamedTuple):
    """Stands in an attribute for a registered module. ``node`` is None outside of a submodule."""

    node: int | None


class LeafRef(NamedTuple):
    """Stands in an attribute for a registered parameter or buffer."""

    leaf: int | None


class MethodRef(NamedTuple):
    """Stands in an attribute for a bound method of a registered module."""

    node: int | None
    function: Callable[..., Any]


Reference = NodeRef | LeafRef | MethodRef


class Attribute(NamedTuple):
    """One plain attribute: its name, frozen value, comparison key, and whether it has references."""

    name: str
    value: Any
    key: Hashable
    refers: bool

    def __reduce__(self):
        return (_unpacked, (self.name, pack(self.value), self.key, self.refers))


def _unpacked(name: str, value: Any, key: Hashable, refers: bool) -> Attribute:
    return Attribute(name, unpack(value), key, refers)


class Identity:
    """A hashable key for an object that has no value semantics: equal only to itself."""

    __slots__ = ("target",)

    def __init__(self, target: Any):
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.target is other.target

    def __hash__(self) -> int:
        return id(self.target)


class Typed:
    """A hashable key for a value: equal to an equal value of the very same type."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Typed)
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __reduce__(self):
        return (_unpacked_key, (pack(self.value),))


def _unpacked_key(value: Any) -> Typed:
    return Typed(unpack(value))


def freeze(
    value: Any, refer: Callable[[Any], Reference | None], where: str
) -> tuple[Any, Hashable, bool]:
    """``(frozen value, key, has references)`` of one attribute.

    Args:
        value: What the constructor assigned.
        refer: The reference for a registered module, parameter or buffer; None for anything else.
        where: ``Class.attribute``, for errors.

    Raises:
        BuildError: For a JAX tracer, or a function that closes over the module being built.
    """
    reference = refer(value)
    if reference is not None:
        return reference, type(reference), True
    if isinstance(value, Reference):
        return value, type(value), True  # Out of reach of a submodule that was edited on its own.
    if isinstance(value, np.generic):
        return value, (type(value), str(value.dtype), value.tobytes()), False
    if isinstance(value, float):
        return value, (type(value), value.hex()), False
    if isinstance(value, complex):
        return value, (type(value), value.real.hex(), value.imag.hex()), False
    if value is None or isinstance(value, bool | int | str | bytes | type):
        return value, (type(value), value), False
    if isinstance(value, slice):
        return value, (slice, str(value)), False
    if isinstance(value, Tracer):
        raise BuildError(
            f"{where} is a traced array; a plain attribute is a constant and outlives the trace.\n"
            "    write: self.register_buffer(name, value), or build the model outside of jit/grad/vmap"
        )
    if isinstance(value, jax.Array | np.ndarray):
        return _freeze_array(value, where)
    if isinstance(value, list):
        items, keys, refers = _freeze_items(value, refer, where)
        return FrozenList(items), (list, keys), refers
    if isinstance(value, tuple):
        items, keys, refers = _freeze_items(value, refer, where)
        return like(value, items), (type(value), keys), refers
    if isinstance(value, dict):
        items, keys, refers = _freeze_items(value.values(), refer, where)
        names = tuple(freeze(key, refer, where)[1] for key in value)
        return FrozenDict(zip(value, items, strict=True)), (dict, names, keys), refers
    if isinstance(value, set | frozenset):
        members = frozenset(freeze(item, refer, where)[1] for item in value)
        return frozenset(value), (frozenset, members), False
    if type(value) is functools.partial:
        return _freeze_partial(value, refer, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _freeze_dataclass(value, refer, where)
    if isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__"):
        _check_closure(value, refer, where)
    if isinstance(value, types.MethodType):
        receiver = refer(value.__self__)
        if isinstance(receiver, NodeRef):
            return MethodRef(receiver.node, value.__func__), MethodRef, True
    try:
        hash(value)
    except TypeError:
        return value, Identity(value), False
    return value, Typed(value), False


def _freeze_items(values, refer, where) -> tuple[list[Any], tuple[Hashable, ...], bool]:
    frozen = [freeze(item, refer, where) for item in values]
    return [f[0] for f in frozen], tuple(f[1] for f in frozen), any(f[2] for f in frozen)


def _freeze_dataclass(value: Any, refer, where) -> tuple[Any, Hashable, bool]:
    """Frozen ones compare by their fields, others by identity; neither may hold what is registered."""
    fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    _, keys, refers = _freeze_items(fields, refer, where)
    if refers:
        raise BuildError(
            f"{where} is a {type(value).__name__} that holds a registered module or parameter, and a "
            "dataclass cannot follow it.\n    write: hold them in a list, tuple or dict"
        )
    frozen = value.__dataclass_params__.frozen
    return value, (type(value), keys) if frozen else Identity(value), False


def _freeze_partial(value: functools.partial, refer, where) -> tuple[Any, Hashable, bool]:
    parts = (value.func, value.args, dict(value.keywords))
    (function, args, keywords), key, refers = freeze(parts, refer, where)
    if refers:
        return PartialRef(function, args, keywords), (functools.partial, key), True
    return value, (functools.partial, key), False


class PartialRef(NamedTuple):
    """A ``functools.partial`` with references among its parts."""

    function: Any
    args: Any
    keywords: Any


def _freeze_array(value: Any, where: str) -> tuple[Any, Hashable, bool]:
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
        data = value
    elif jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(value))
    else:
        data = np.asarray(value)
    if data.nbytes > LARGE_CONSTANT:
        warn(
            f"{where} is an unregistered array of {data.nbytes / 2**20:.1f} MiB: it does not train, "
            "is not saved, is not moved, and is copied into every compiled program. "
            "self.register_buffer(name, value, persistent=False) holds it as an argument instead.",
        )
    content = data.tobytes() if data.nbytes <= 64 else hashlib.sha256(data.tobytes()).digest()
    weak = getattr(value, "weak_type", False)
    return value, (type(value).__name__, data.shape, str(value.dtype), weak, content), False


def _check_closure(function: Any, refer, where: str, seen: set[int] | None = None) -> None:
    """Refuse a function that holds the module being built in a cell, a default or what it wraps."""
    seen = set() if seen is None else seen
    if id(function) in seen:
        return
    seen.add(id(function))
    held = [*(getattr(function, "__defaults__", None) or ())]
    held += (getattr(function, "__kwdefaults__", None) or {}).values()
    held.append(getattr(function, "__wrapped__", None))
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # An empty cell: a name that is not assigned yet.
            held.append(cell.cell_contents)
    while held:
        item = held.pop()
        if isinstance(item, list | tuple):
            held += item
        elif isinstance(item, dict):
            held += item.values()
        elif isinstance(item, functools.partial):
            held += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, types.MethodType):
            held += [item.__self__, item.__func__]
        elif refer(item) is not None:
            raise BuildError(
                f"{where} is a function that closes over the module being built; it would keep the "
                "arrays of today for ever.\n"
                "    write: a method of the class, or functools.partial(function, self.part)"
            )
        elif isinstance(item, types.FunctionType) or hasattr(item, "__wrapped__"):
            _check_closure(item, refer, where, seen)


def resolve(value: Any, node: Callable[[int | None], Any], leaf: Callable[[int | None], Any]) -> Any:
    """The attribute as it is read: every reference replaced by what it stands for now."""
    if isinstance(value, NodeRef):
        return node(value.node)
    if isinstance(value, LeafRef):
        return leaf(value.leaf)
    if isinstance(value, MethodRef):
        return types.MethodType(value.function, node(value.node))
    if isinstance(value, PartialRef):
        function, args, keywords = (resolve(part, node, leaf) for part in value)
        return functools.partial(function, *args, **keywords)
    if isinstance(value, FrozenList):
        return FrozenList(resolve(item, node, leaf) for item in value)
    if isinstance(value, FrozenDict):
        return FrozenDict((key, resolve(item, node, leaf)) for key, item in value.items())
    if isinstance(value, tuple):
        return like(value, [resolve(item, node, leaf) for item in value])
    return value


def renumber(value: Any, nodes: dict[int, int], leaves: dict[int, int]) -> Any:
    """The same frozen value with its references in another numbering; None where they leave it."""

    def node(index):
        return None if index is None else nodes.get(index)

    if isinstance(value, NodeRef):
        return NodeRef(node(value.node))
    if isinstance(value, LeafRef):
        return LeafRef(None if value.leaf is None else leaves.get(value.leaf))
    if isinstance(value, MethodRef):
        return MethodRef(node(value.node), value.function)
    if isinstance(value, PartialRef):
        return PartialRef(*(renumber(part, nodes, leaves) for part in value))
    if isinstance(value, FrozenList):
        return FrozenList(renumber(item, nodes, leaves) for item in value)
    if isinstance(value, FrozenDict):
        return FrozenDict((key, renumber(item, nodes, leaves)) for key, item in value.items())
    if isinstance(value, tuple):
        return like(value, [renumber(item, nodes, leaves) for item in value])
    return value


def references(value: Any) -> Iterator[Reference]:
    """The references in a frozen value, in order; its key leaves them out."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, FrozenDict):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, FrozenList | tuple):
        for item in value:
            yield from references(item)


def thaw(value: Any, node: Callable[[int | None], Any], leaf: Callable[[int | None], Any]) -> Any:
    """The attribute as a constructor would hold it: plain containers, live references."""
    if isinstance(value, Reference) and value[0] is None:
        return value
    if isinstance(value, Reference | PartialRef):
        return resolve(value, node, leaf)
    if isinstance(value, FrozenList):
        return [thaw(item, node, leaf) for item in value]
    if isinstance(value, FrozenDict):
        return {key: thaw(item, node, leaf) for key, item in value.items()}
    if isinstance(value, tuple):
        return like(value, [thaw(item, node, leaf) for item in value])
    return value
