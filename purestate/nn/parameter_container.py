"""Containers of parameters: ParameterList and ParameterDict.

An array becomes a Parameter; anything else is kept as a plain attribute. Which entries belong to
the container is its own record (``_size``, ``_keys``), so that a parameter assigned as an attribute
stays out of ``len``. In ``forward`` the entries are the current arrays.
"""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, NoReturn

import jax
import numpy as np

from purestate._module import Module
from purestate._parameter import Box, Parameter
from purestate.nn._construction import in_constructor
from purestate.nn._parts import assembled, is_running, opened
from purestate.nn.container import checked_pairs
from purestate.nn.functional._dtypes import scalar_type


__all__ = ["ParameterDict", "ParameterList"]


_PUT = "model = purestate.replace(model, {name: value})"
_ADD = "model = bridge.register_parameter(model, name, value, at=path)"
_DELETE = "model = bridge.delete(model, name, at=path)"


def _is_array(value: Any) -> bool:
    """Whether torch would have a tensor here."""
    return isinstance(value, jax.Array | np.ndarray | jax.ShapeDtypeStruct | Box)


def _wrapped(value: Any) -> Any:
    """An array as a Parameter; anything else as it is."""
    return Parameter(value) if _is_array(value) and not isinstance(value, Parameter) else value


def _line(container: Module, key: Any, value: Any, dtype: str) -> str:
    """One entry as torch prints it."""
    if not _is_array(value):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if str(key) in container._parameters else "Tensor"
    size = "x".join(map(str, value.shape))
    return f"  ({key}): {kind} containing: [torch.{dtype} of size {size}]"


class ParameterList(Module):
    """A list of parameters, named ``"0"``, ``"1"``, ... Torch's name: ``torch.nn.ParameterList``.

    Args:
        values: An iterable of arrays, parameters, or any constants.

    Raises:
        TypeError: For something that is not an iterable, or is an array.
        IndexError: For an index outside of it.
        RuntimeError: When it is called.
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: it has no ``forward``."""
        raise RuntimeError("ParameterList should not be called.")

    def _key_at(self, index: Any) -> str:
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return str(index % len(self))

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return getattr(self, self._key_at(index))
        if is_running(self):
            return list(self)[index]
        return assembled(self, lambda container: type(container)(list(container)[index]))

    @in_constructor(_PUT)
    def __setitem__(self, index: int, param: Any) -> None:
        setattr(self, self._key_at(index), _wrapped(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[index] for index in range(len(self)))

    @in_constructor(_ADD)
    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    @in_constructor(_ADD)
    def append(self, value: Any) -> "ParameterList":
        """Add an entry at the end. In a constructor."""
        setattr(self, str(len(self)), _wrapped(value))
        self._size += 1
        return self

    @in_constructor(_ADD)
    def extend(self, values: Iterable[Any]) -> "ParameterList":
        """Add entries at the end. In a constructor."""
        if not isinstance(values, Iterable) or _is_array(values):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in list(opened(values)):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """As torch prints it."""
        return "\n".join(
            _line(self, index, value, value.dtype.name if _is_array(value) else "")
            for index, value in enumerate(self)
        )


class ParameterDict(Module):
    """Parameters by name. Torch's name: ``torch.nn.ParameterDict``.

    As in torch, a plain mapping is added in sorted order; an ``OrderedDict``, another ParameterDict
    and pairs keep theirs.

    Args:
        parameters: A mapping, or an iterable of pairs, of names to arrays, parameters or constants.

    Raises:
        TypeError: For a name that is not a string, or something that is not an iterable.
        KeyError: For a name with a dot, an empty name, or one of an attribute (``"keys"``).
        ValueError: For a pair of another length.
        RuntimeError: When it is called.
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: it has no ``forward``."""
        raise RuntimeError("ParameterDict should not be called.")

    def _key_to_attr(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    @in_constructor(_PUT)
    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._key_to_attr(key), _wrapped(value))
        self._keys[key] = None

    @in_constructor(_DELETE)
    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> Any:
        """A ParameterDict of the same parameters; in ``forward``, a dict of the arrays."""
        if is_running(self):
            return dict(self.items())
        return assembled(self, lambda container: ParameterDict(OrderedDict(container.items())))

    def __or__(self, other: Any) -> Any:
        if is_running(self):
            return self.copy() | dict(other.items())
        return assembled(self, lambda container: _updated(container.copy(), other))

    def __ror__(self, other: Any) -> Any:
        if isinstance(other, ParameterDict):
            return other.__or__(self)
        return _updated(other.copy(), self)

    @in_constructor(_ADD)
    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    @in_constructor(_ADD)
    def setdefault(self, key: str, default: Any = None) -> Any:
        """The entry of this name, which becomes ``default`` if there is none. In a constructor."""
        if key not in self:
            self[key] = default
        return self[key]

    @in_constructor(_DELETE)
    def clear(self) -> None:
        """Remove every entry. In a constructor."""
        for key in list(self._keys):
            del self[key]

    @in_constructor(_DELETE)
    def pop(self, key: str) -> Any:
        """Take an entry out. In a constructor."""
        value = self[key]
        del self[key]
        return value

    @in_constructor(_DELETE)
    def popitem(self) -> tuple[str, Any]:
        """Take the last entry out. In a constructor."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The entry of this name, or ``default``."""
        if key not in self:
            return default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """A ParameterDict with one value under every one of these names."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """The names, in order."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """The names and entries, in order."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The entries, in order."""
        return (self[key] for key in self._keys)

    @in_constructor(_ADD)
    def update(self, parameters: Any) -> None:
        """Add entries, or put others in the place of those of the same name. In a constructor.

        Args:
            parameters: A mapping, or an iterable of pairs, of names to entries.
        """
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(parameters, OrderedDict | ParameterDict):
            pairs = list(opened(parameters).items())
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = checked_pairs(parameters, "ParameterDict")
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        """As torch prints it."""
        return "\n".join(
            _line(self, key, value, f"{scalar_type(value.dtype)}Tensor" if _is_array(value) else "")
            for key, value in self.items()
        )


def _updated(target: Any, other: Any) -> Any:
    target.update(other)
    return target
