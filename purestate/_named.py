"""NamedArrays: an immutable mapping from dotted name to array that flattens like a tuple.

``params`` and ``buffers`` are these. A plain dict of arrays costs JAX four times as much to flatten
and comes back sorted by name; here the names are one interned object and the arrays a tuple, so
that ``jax.grad``, optax and ``jax.tree.map`` give the same type, in the same order, at the price of
a tuple.
"""

import json
import operator
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.export

from purestate._abstract import UninitializedArray


class Names:
    """A tuple of names with their positions. Equal tuples are ONE object, compared by identity."""

    __slots__ = ("__weakref__", "index", "names")

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.index = {name: position for position, name in enumerate(names)}
        if len(self.index) != len(names):
            raise ValueError("a name stands twice in NamedArrays")

    def __reduce__(self):
        return (intern_names, (self.names,))


_interned: weakref.WeakValueDictionary[tuple[str, ...], Names] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def intern_names(names: tuple[str, ...]) -> Names:
    """The one Names object for a tuple of names."""
    with _lock:
        known = _interned.get(names)
        if known is None:
            known = _interned[names] = Names(names)
    return known


class NamedArrays(Mapping[str, Any]):
    """An immutable mapping ``{dotted name: array}``, a JAX pytree.

    Args:
        items: A mapping or an iterable of pairs; the order is kept.
    """

    # The pair (values, names) that flattening returns: one slot to read, one to set.
    __slots__ = ("__weakref__", "_parts")

    _parts: tuple[tuple[Any, ...], Names]

    def __init__(self, items: Any = ()):
        pairs = dict(items)
        object.__setattr__(self, "_parts", (tuple(pairs.values()), intern_names(tuple(pairs))))

    @property
    def _values(self) -> tuple[Any, ...]:
        return self._parts[0]

    @property
    def _names(self) -> Names:
        return self._parts[1]

    def __getitem__(self, name: str) -> Any:
        return self._values[self._names.index[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.names)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._names.index

    def __or__(self, other: Mapping[str, Any]) -> "NamedArrays":
        return NamedArrays({**self, **other})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("NamedArrays is immutable.\n    write: params = params | {name: array}")

    __delattr__ = __setattr__  # pyright: ignore[reportAssignmentType]

    def __hash__(self) -> int:
        return hash((self._names, tuple(map(id, self._values))))

    def __eq__(self, other: object) -> bool:
        """Identity of the arrays under equal names: values are compared with jnp or numpy."""
        if not isinstance(other, NamedArrays):
            return NotImplemented
        return self._names is other._names and all(
            a is b for a, b in zip(self._values, other._values, strict=True)
        )

    def __reduce__(self):
        return (unflatten, (self._names, self._values))

    def __repr__(self) -> str:
        def describe(value: Any) -> str:
            if isinstance(value, UninitializedArray) or not hasattr(value, "dtype"):
                return repr(value)
            return f"{value.dtype}{list(value.shape)}"

        return "NamedArrays({" + ", ".join(f"{k!r}: {describe(v)}" for k, v in self.items()) + "})"


_new = object.__new__
_set_parts = vars(NamedArrays)["_parts"].__set__


def unflatten(names: Names, values: Any) -> NamedArrays:
    """The mapping with these names and values, which may be anything JAX puts there."""
    arrays = _new(NamedArrays)
    _set_parts(arrays, (values, names))
    return arrays


def _flatten_with_keys(arrays: NamedArrays) -> tuple[Any, Names]:
    keys = map(jax.tree_util.DictKey, arrays._names.names)
    return tuple(zip(keys, arrays._values, strict=True)), arrays._names


jax.tree_util.register_pytree_with_keys(
    NamedArrays, _flatten_with_keys, unflatten, operator.attrgetter("_parts")
)


def _to_bytes(names: Names) -> bytes:
    return json.dumps(names.names).encode()


def _from_bytes(data: bytes) -> Names:
    return intern_names(tuple(map(str, json.loads(data))))


# So that an exported function of parameters can be stored: the names, and no code.
jax.export.register_pytree_node_serialization(
    NamedArrays,
    serialized_name="purestate.NamedArrays",
    serialize_auxdata=_to_bytes,
    deserialize_auxdata=_from_bytes,
)
