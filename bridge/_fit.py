"""A value fitted to a file format: what the format has no place for, all of it at once.

Writing stops at the first thing that it cannot write. A person who converts a file wants to know all
of them, and to leave them out with one word. So a value is fitted first: containers are copied
without what has no place, and that is named. An entry of a dictionary goes whole: a list of which one
item cannot be written is not shortened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bridge._cast import FLOATS
from bridge._entries import TENSORS, brief_text, dtype_name
from bridge._state_dict_type import StateDict
from bridge.checkpoint._dtypes import SAFETENSORS_CODE_OF, TORCH_NAME_OF
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint._storages import dense


LEFT_OUT: Any = object()

#: A tensor may look this many times larger than its storage, or this large, and still be written out.
_LARGER = 8
_LARGE = 1 << 30

_SIMPLE = (type(None), bool, float, str, bytes, bytearray, complex)
_KEYS = (str, int, float, bool, type(None), bytes, tuple)
_LONGEST_INTEGER = 255 * 8 - 1


class Fitted(NamedTuple):
    """What became of a value.

    Attributes:
        value: The value in new containers; ``LEFT_OUT`` if nothing of it has a place.
        unfit: The dotted names of what has no place, and what it is.
    """

    value: Any
    unfit: dict[str, str]


def fit(
    value: Any,
    *,
    table: bool,
    dtype: np.dtype | None = None,
    new: Mapping[int, np.ndarray] | None = None,
) -> Fitted:
    """Copy a value without what a format has no place for.

    Args:
        value: What a reader returned.
        table: Whether the format is safetensors' table of tensors, rather than PyTorch's pickle.
        dtype: What floating-point arrays will be cast to, if they will.
        new: Arrays to put in the place of others, by the ``id`` of those.
    """
    walk = _Fit(table, dtype, new or {})
    if table and isinstance(value, dict):
        return Fitted(walk.table(value), walk.unfit)
    return Fitted(walk.visit(value, ""), walk.unfit)


class _Fit:
    def __init__(self, table: bool, dtype: np.dtype | None, new: Mapping[int, np.ndarray]) -> None:
        self.unfit: dict[str, str] = {}
        self._codes = SAFETENSORS_CODE_OF if table else TORCH_NAME_OF
        self._in_full = table
        self._dtype = dtype
        self._new = new
        self._done: dict[int, Any] = {}

    def table(self, value: dict[Any, Any]) -> StateDict:
        result = StateDict(metadata=getattr(value, "metadata", None))
        for name, item in value.items():
            if type(name) is not str or name == "__metadata__":
                self._unfit(brief_text(name), "a name that a tensor cannot have here")
            elif not isinstance(item, np.ndarray | np.generic):
                self._unfit(name, _what(item))
            elif (found := self.visit(item, name)) is not LEFT_OUT:
                result[name] = found
        return result

    def visit(self, value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value, name)
        if not isinstance(value, dict | list | tuple | set):
            return value if _is_simple(value) else self._unfit(name, _what(value))
        if id(value) not in self._done:
            self._done[id(value)] = self._container(value, name)
        return self._done[id(value)]

    def _array(self, value: Any, name: str) -> Any:
        dtype = value.dtype.newbyteorder("=")
        if self._dtype is not None and dtype in FLOATS and isinstance(value, np.ndarray):
            dtype = self._dtype
        if dtype not in self._codes:
            return self._unfit(name, f"a tensor of {dtype_name(dtype)}")
        if isinstance(value, np.ndarray) and value.nbytes > _LARGE:
            written = value if self._in_full else dense(value)[0]
            low, high = np.lib.array_utils.byte_bounds(value)
            if written.nbytes > _LARGER * (high - low):
                return self._unfit(name, f"{value.nbytes} bytes over a storage of {high - low}")
        return self._new.get(id(value), value)

    def _container(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return self._dict(value, name)
        if isinstance(value, set):
            unfit = [item for item in value if not _is_key(item, (*_KEYS, complex))]
            return self._unfit(name, f"a set with {_what(unfit[0])}") if unfit else value
        if isinstance(value, tuple):
            items = self._items(enumerate(value), name)
            return LEFT_OUT if LEFT_OUT in map(_mark, items) else tuple(items)
        # A list can contain itself.
        result = self._done[id(value)] = []
        result += self._items(enumerate(value), name)
        return LEFT_OUT if LEFT_OUT in map(_mark, result) else result

    def _items(self, pairs: Iterable[tuple[Any, Any]], name: str) -> list[Any]:
        return [self.visit(item, _below(name, key)) for key, item in pairs]

    def _dict(self, value: dict[Any, Any], name: str) -> Any:
        result: dict[Any, Any] = {}
        if isinstance(value, StateDict):
            result = StateDict(metadata=value.metadata)
        elif isinstance(value, Counter):
            result = Counter()
        self._done[id(value)] = result
        for key, item in value.items():
            below = _below(name, key)
            if not _is_key(key, _KEYS):
                self._unfit(below, f"an entry whose key is {_what(key)}")
            elif (found := self.visit(item, below)) is not LEFT_OUT:
                result[key] = found
        return result

    def _unfit(self, name: str, what: str) -> Any:
        self.unfit[name] = what
        return LEFT_OUT


def _mark(value: Any) -> Any:
    """Return something that can be compared with ``LEFT_OUT``; arrays cannot."""
    return value if value is LEFT_OUT else None


def _below(name: str, key: Any) -> str:
    step = key if type(key) is str else brief_text(key)
    return f"{name}.{step}" if name else step


def _is_simple(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() <= _LONGEST_INTEGER
    return type(value) in _SIMPLE or (isinstance(value, np.dtype) and value in TORCH_NAME_OF)


def _is_key(key: Any, kinds: tuple[type, ...]) -> bool:
    if type(key) is tuple:
        return all(_is_simple(item) or _is_key(item, kinds) for item in key)
    return type(key) in kinds and (type(key) is not int or _is_simple(key))


def _what(value: Any) -> str:
    if isinstance(value, Placeholder):
        return f"{'the name' if value.args is None else 'an object of class'} {value.path}"
    if isinstance(value, (dict, list, tuple, set, *TENSORS)):
        return f"a {type(value).__name__}"
    return brief_text(value)
