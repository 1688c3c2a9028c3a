"""Containers of modules: Sequential, ModuleList, ModuleDict, and torch's deprecated Container.

Their children are registered under ``"0"``, ``"1"``, ... or under keys. Reading (indexing, slicing,
``len``, iteration) works in all lives of a module. What changes a container in place (``append``,
``insert``, ``del``) works while it is being built, by torch's rules; a finished one says what to
write instead. One defect is mended: ``append`` and its kin never overwrite a module.
"""

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from typing import Any

from purestate._building import typename
from purestate._lives import graph
from purestate._module import Module
from purestate._opening import adopt
from purestate._scan import DEEP, in_turn
from purestate._warning import warn
from purestate.nn._construction import in_constructor
from purestate.nn._parts import Parts, assembled, is_running, opened


__all__ = ["Container", "ModuleDict", "ModuleList", "Sequential"]


_ADD = "model = bridge.register_module(model, name, module, at=path)"
_PUT = "model = bridge.set_submodule(model, path, module)"
_DELETE = "model = bridge.delete(model, name, at=path)   (or take a slice, which is a new model)"


def _slots(container: Module) -> Any:
    """The keys in order, each with what stands for its child; ``_modules`` would make every child."""
    tree = graph(container)
    return tree.members(tree.root, "modules")


class _Numbered(Module):
    """What Sequential and ModuleList share: children in order, deletion that renumbers."""

    def __len__(self) -> int:
        return len(_slots(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return getattr(self, self._key_at(index))
        if is_running(self):
            return Parts(list(self)[index])
        return assembled(self, lambda container: container._sliced(index))

    def _key_at(self, index: Any) -> str:
        size = len(self)
        index = operator.index(index)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return self._name_of(index % size)

    def _name_of(self, position: int) -> str:
        """The key of the child at a position."""
        return list(_slots(self))[position][0]

    @in_constructor(_PUT)
    def __setitem__(self, index: int, module: Any) -> None:
        setattr(self, self._key_at(index), module)

    @in_constructor(_DELETE)
    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            keys = [self._name_of(position) for position in range(len(self))[index]]
        else:
            keys = [self._key_at(index)]
        for key in keys:
            delattr(self, key)
        self._renumber()

    def _renumber(self) -> None:
        children = self._modules.values()
        vars(self)["_modules"] = {str(i): child for i, child in enumerate(children)}

    @in_constructor(_DELETE)
    def pop(self, key: int | slice) -> Any:
        """Take a child, or a slice of them, out. In a constructor."""
        taken: Any = self[key]
        del self[key]
        return taken

    @in_constructor(_ADD)
    def append(self, module: Any) -> Any:
        """Add a child at the end. In a constructor.

        Raises:
            KeyError: When its number is taken already (torch would overwrite that child).
        """
        self.add_module(self._next_key(), module)
        return self

    def _next_key(self) -> str:
        key = str(len(self))
        if key in self._modules:
            raise KeyError(
                f"cannot number another module: the names {list(self._modules)} of this "
                f"{type(self).__name__} have '{key}' already"
            )
        return key

    def _inserted(self, index: int, module: Any) -> None:
        """Make room at an index and put a module there; nothing changes if a key is missing."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        children = dict(self._modules)
        self._next_key()
        for position in range(len(children), index, -1):
            children[str(position)] = children[str(position - 1)]
        children[str(index)] = None if module is None else adopt(module)
        vars(self)["_modules"] = children


class Sequential(_Numbered):
    """Modules that run one after the other. Torch's name: ``torch.nn.Sequential``.

    A slice is a new Sequential with the same keys, and so with the same names in a ``state_dict``;
    ``a + b`` and ``a * n`` number their modules anew, and ``a * n`` shares them.

    Args:
        *args: Modules, named ``"0"``, ``"1"``, ...; or one ``OrderedDict`` of names to modules.

    Shape:
        The input of the first module to the output of the last; without modules, the input.

    Raises:
        TypeError: For something that is not a module.
        IndexError: For an index outside of it.
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named = args[0].items()
        else:
            named = ((str(index), module) for index, module in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        """The output of the last module; many equal ones run as a scan (``purestate.scan``)."""
        return in_turn(list(self), input, (), {}, least=DEEP)

    def _sliced(self, index: slice) -> "Sequential":
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def __add__(self, other: Any) -> Any:
        _check_addend(other)
        if is_running(self) or is_running(other):
            return Parts((*self, *other))
        return assembled(self, lambda container: Sequential(*container, *opened(other)))

    @in_constructor("model = model + other")
    def __iadd__(self, other: Any) -> Any:
        _check_addend(other)
        return self.extend(other)

    def __mul__(self, times: Any) -> Any:
        self._check_factor(times)
        if is_running(self):
            return Parts(list(self) * times)
        return assembled(self, lambda container: Sequential(*list(container) * times))

    __rmul__ = __mul__

    @in_constructor("model = model * times")
    def __imul__(self, times: Any) -> Any:
        self._check_factor(times)
        originals = [self._modules[str(position)] for position in range(len(self))]
        return self.extend(originals * (times - 1))

    def _check_factor(self, times: Any) -> None:
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")

    @in_constructor(_ADD)
    def insert(self, index: int, module: Any) -> "Sequential":
        """Put a module before the one at an index. In a constructor."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        self._inserted(index + size if index < 0 else index, module)
        return self

    @in_constructor(_ADD)
    def extend(self, sequential: Iterable[Any]) -> "Sequential":
        """Add modules at the end. In a constructor."""
        for module in list(opened(sequential)):
            self.append(module)
        return self


def _check_addend(other: Any) -> None:
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but {type(other)} is given."
        )


class ModuleList(_Numbered):
    """A list of modules, without a ``forward``. Torch's name: ``torch.nn.ModuleList``.

    A slice is a new ModuleList, numbered anew. Equal neighbours are one line of ``repr``.

    Args:
        modules: An iterable of modules.

    Raises:
        TypeError: For something that is not a module, or not an iterable.
        IndexError: For an index outside of it.
    """

    def __init__(self, modules: Iterable[Any] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _name_of(self, position: int) -> str:
        return str(position)

    def _sliced(self, index: slice) -> "ModuleList":
        return type(self)(list(self)[index])

    def __add__(self, other: Iterable[Any]) -> Any:
        if is_running(self):
            return Parts(chain(self, other))
        return assembled(self, lambda container: ModuleList(chain(container, opened(other))))

    @in_constructor("model = model + modules")
    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    @in_constructor(_ADD)
    def insert(self, index: int, module: Any) -> None:
        """Put a module before the one at an index. In a constructor."""
        self._inserted(index, module)

    @in_constructor(_ADD)
    def extend(self, modules: Iterable[Any]) -> "ModuleList":
        """Add modules at the end. In a constructor."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}"
            )
        for module in list(opened(modules)):
            self.append(module)
        return self

    def __repr__(self) -> str:
        runs: list[list[Any]] = []  # [first index, last index, repr]
        for index, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = index
            else:
                runs.append([index, index, text])
        if not runs:
            return f"{type(self).__name__}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"


class ModuleDict(Module):
    """Modules by name, in the order they came, without a ``forward``. Torch's ``torch.nn.ModuleDict``.

    Args:
        modules: A mapping, or an iterable of pairs, of names to modules.

    Raises:
        TypeError: For something that is not a module, or a name that is not a string.
        KeyError: For a name with a dot, an empty name, or one of an attribute (``"keys"``).
        ValueError: For a pair of another length.
    """

    def __init__(self, modules: Any = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    @in_constructor(_PUT)
    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    @in_constructor(_DELETE)
    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> KeysView[str]:
        """The names, in order."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Any]:
        """The names and modules, in order."""
        return self._modules.items()

    def values(self) -> ValuesView[Any]:
        """The modules, in order."""
        return self._modules.values()

    @in_constructor(_DELETE)
    def clear(self) -> None:
        """Remove every module. In a constructor."""
        self._modules.clear()

    @in_constructor(_DELETE)
    def pop(self, key: str) -> Any:
        """Take a module out. In a constructor."""
        return self._modules.pop(key)

    @in_constructor(_ADD)
    def update(self, modules: Any) -> None:
        """Add modules, or put others in the place of those of the same name. In a constructor.

        Args:
            modules: A mapping, or an iterable of pairs, of names to modules.
        """
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}"
            )
        if isinstance(modules, ModuleDict | Mapping):
            pairs: Iterable[Any] = list(opened(modules).items())
        else:
            pairs = checked_pairs(modules, "ModuleDict")
        for key, module in pairs:
            self[key] = module


class Container(Module):
    """Children given by name. Torch's name, deprecated there: ``torch.nn.Container``.

    Write a subclass of ``Module`` instead.

    Args:
        **kwargs: The modules, by the names to register them under; None for no module.
    """

    def __init__(self, **kwargs: Any):
        if type(self) is Container:
            _warn_deprecated()
        super().__init__()
        for key, value in kwargs.items():
            self.add_module(key, value)

    def __init_subclass__(cls, **kwargs: Any):
        _warn_deprecated()
        super().__init_subclass__(**kwargs)


def _warn_deprecated() -> None:
    warn(
        "`nn.Container` is deprecated. All of its functionality is now implemented in `nn.Module`. "
        "Subclass that instead.",
        FutureWarning,
    )


def checked_pairs(pairs: Iterable[Any], owner: str) -> Iterator[tuple[Any, Any]]:
    """Pairs one by one, with torch's errors for what is not a pair."""
    for place, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{owner} update sequence element #{place} should be Iterable; is{type(pair).__name__}"
            )
        items: Any = pair
        if len(items) != 2:
            raise ValueError(
                f"{owner} update sequence element #{place} has length {len(items)}; 2 is required"
            )
        yield items[0], items[1]
