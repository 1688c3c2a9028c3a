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

import functools
import hashlib
import types
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purestate._errors import BuildError


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


class Identity:
    """A hashable key for an object that has no value semantics: equal only to itself."""

    __slots__ = ("target",)

    def __init__(self, target: Any):
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.target is other.target

    def __hash__(self) -> int:
        return id(self.target)


def _refuse(self, *args, **kwargs) -> NoReturn:
    del args, kwargs
    raise TypeError(
        f"this {type(self).__mro__[1].__name__} is a constant of a finished model and cannot change.\n"
        "    write: copy it first, or hold what changes in a buffer"
    )


class FrozenList(list):
    """A list that is equal to the one assigned and refuses to change."""

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self):
        return (FrozenList, (list(self),))


class FrozenDict(dict):
    """A dict that is equal to the one assigned and refuses to change."""

    update = pop = popitem = clear = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __reduce__(self):
        return (FrozenDict, (dict(self),))


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
    if isinstance(value, float):
        return value, (float, value.hex()), False
    if value is None or isinstance(value, bool | int | str | bytes | complex | type):
        return value, (type(value), value), False
    if isinstance(value, Tracer):
        raise BuildError(
            f"{where} is a traced array; a plain attribute is a constant and outlives the trace.\n"
            "    write: self.register_buffer(name, value), or build the model outside of jit/grad/vmap"
        )
    if isinstance(value, jax.Array | np.ndarray):
        return _freeze_array(value, where)
    if type(value) is list or type(value) is FrozenList:
        items, keys, refers = _freeze_items(value, refer, where)
        return FrozenList(items), (list, keys), refers
    if isinstance(value, tuple):
        items, keys, refers = _freeze_items(value, refer, where)
        rebuild = getattr(type(value), "_make", type(value))
        return rebuild(items), (type(value), keys), refers
    if type(value) is dict or type(value) is FrozenDict:
        items, keys, refers = _freeze_items(value.values(), refer, where)
        return FrozenDict(zip(value, items, strict=True)), (dict, tuple(value), keys), refers
    if isinstance(value, set | frozenset):
        return frozenset(value), (frozenset, frozenset((type(v), v) for v in value)), False
    if type(value) is functools.partial:
        return _freeze_partial(value, refer, where)
    if isinstance(value, types.FunctionType):
        _check_closure(value, refer, where)
    if isinstance(value, types.MethodType):
        receiver = refer(value.__self__)
        if isinstance(receiver, NodeRef):
            return MethodRef(receiver.node, value.__func__), MethodRef, True
    try:
        hash(value)
    except TypeError:
        return value, Identity(value), False
    return value, (type(value), value), False


def _freeze_items(values, refer, where) -> tuple[list[Any], tuple[Hashable, ...], bool]:
    frozen = [freeze(item, refer, where) for item in values]
    return [f[0] for f in frozen], tuple(f[1] for f in frozen), any(f[2] for f in frozen)


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
        warnings.warn(
            f"{where} is an unregistered array of {data.nbytes / 2**20:.1f} MiB: it does not train, "
            "is not saved, is not moved, and is copied into every compiled program. "
            "self.register_buffer(name, value, persistent=False) holds it as an argument instead.",
            stacklevel=2,
        )
    content = data.tobytes() if data.nbytes <= 64 else hashlib.sha256(data.tobytes()).digest()
    return value, (type(value).__name__, data.shape, str(value.dtype), content), False


def _check_closure(function: types.FunctionType, refer, where: str) -> None:
    for cell in function.__closure__ or ():
        try:
            captured = cell.cell_contents
        except ValueError:
            continue  # An empty cell: a name that is not assigned yet.
        if refer(captured) is not None:
            raise BuildError(
                f"{where} is a function that closes over the module being built; it would keep the "
                "arrays of today for ever.\n"
                "    write: a method of the class, or functools.partial(function, self.part)"
            )


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
        rebuild = getattr(type(value), "_make", type(value))
        return rebuild([resolve(item, node, leaf) for item in value])
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
        rebuild = getattr(type(value), "_make", type(value))
        return rebuild([renumber(item, nodes, leaves) for item in value])
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
    value = resolve(value, node, leaf)
    if isinstance(value, FrozenList):
        return [thaw(item, node, leaf) for item in value]
    if isinstance(value, FrozenDict):
        return {key: thaw(item, node, leaf) for key, item in value.items()}
    return value
