"""What the names in a PyTorch file mean.

PyTorch's files name about a hundred functions and classes that this package reads. Each stands in the
table of `_globals.py` under its exact module and name, next to a function of ours that does its job
on NumPy arrays; nothing is imported because a file says so. A name that is there to run code is
refused (`_refusals.py`). Any other becomes a :class:`~bridge.checkpoint.Placeholder`: an inert record
of what the file says about it.
"""

from __future__ import annotations

from typing import Any

from bridge._state_dict_type import StateDict
from bridge.checkpoint._globals import ALIASES, TABLE, Global, StorageClass
from bridge.checkpoint._numpy_objects import NumpyArray, NumpyDtype
from bridge.checkpoint._rebuild import OldTensor
from bridge.checkpoint._records import Placeholder
from bridge.checkpoint._refusals import refuse
from bridge.checkpoint._tensors import Storage, Storages, naturals
from bridge.checkpoint.errors import BadFormat, Unsafe, brief


class TorchVocabulary:
    """The meaning of the names in a PyTorch file (see ``Vocabulary``).

    Args:
        storages: Where persistent ids find their storages.
        size: How many bytes the pickle has: its values cannot have more items than that.
        id_parts: How many parts the persistent id of a storage has: 6 in the legacy format, where
            the last says which part of another storage it is.
    """

    def __init__(self, storages: Storages, size: int, *, id_parts: int = 5) -> None:
        self._storages = storages
        self._id_parts = id_parts
        self._copied = 0
        self._may_copy = size + _ROOM

    def find(self, module: str, name: str) -> object:
        """Return the table's entry for ``module.name``, or a placeholder for it."""
        found = TABLE.get((ALIASES.get(module, module), name))
        if found is None:
            refuse(module, name)
            return Placeholder(f"{module}.{name}")
        return found

    def call(self, function: object, args: tuple[Any, ...]) -> object:
        """Call a function of the table, or note the call of another."""
        if type(function) is Global:
            make = function.make
            if function.copies and args:
                self._spend(args)
            if make is not None and function.least <= len(args) <= function.most:
                return make(*args)
            raise function.refusal(args)
        return self.new(function, args, {})

    def _spend(self, args: tuple[Any, ...]) -> None:
        """Count what is copied: one large value can be an argument of many calls."""
        self._copied += sum(len(arg) for arg in args if isinstance(arg, _SIZED))
        if self._copied > self._may_copy:
            raise Unsafe("the pickle has its values copied over and over")

    def new(self, cls: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Make an object of a class of the table, or note what one of another is made from."""
        if type(cls) is Placeholder and cls.args is None:
            return Placeholder(cls.path, args, kwargs)
        if type(cls) is Placeholder:
            raise Unsafe(f"the pickle calls an object of {cls.path}")
        if not isinstance(cls, Global):
            raise BadFormat(f"the pickle calls a {type(cls).__name__}")
        if kwargs:
            raise BadFormat(f"{cls.path} takes no named arguments")
        return self.call(cls, args)

    def build(self, instance: object, state: object) -> None:
        """Give an object its state."""
        match instance:
            case Placeholder(args=None):
                raise Unsafe(f"the pickle changes {instance.path} itself")
            case Placeholder():
                instance.state = state
            case StateDict():
                if isinstance(state, dict) and isinstance(metadata := state.get("_metadata"), dict):
                    self._spend((metadata, *metadata.values()))
                _build_state_dict(instance, state)
            case OldTensor() | NumpyArray() | NumpyDtype():
                self._spend(state if isinstance(state, tuple) else ())
                instance.build(state)
            case _:
                raise BadFormat(f"a {type(instance).__name__} is given attributes")

    def persistent(self, identity: object) -> object:
        """Return the storage that a persistent id names; where it lived does not matter."""
        if type(identity) is not tuple or not identity:
            raise BadFormat(f"a persistent id must be a tuple, not {brief(identity)}")
        # Types first: comparing an array with text would compare its elements.
        kind = identity[0] if type(identity[0]) is str else ""
        if kind == "module" and len(identity) == 4 and isinstance(identity[1], Placeholder):
            return identity[1]  # the others are its source file and source code
        if kind != "storage" or len(identity) != self._id_parts:
            raise BadFormat(f"a persistent id {brief(identity[0])} of {len(identity)} parts")
        parts: tuple[Any, ...] = identity
        cls, key, numel = parts[1], parts[2], parts[4]
        if not isinstance(cls, StorageClass):
            raise BadFormat(f"a storage of class {type(cls).__name__}")
        if type(key) not in (str, int):
            raise BadFormat(f"a storage key of type {type(key).__name__}")
        storage = self._storages.declare(str(key), cls.dtype, numel)
        if len(identity) == 6 and identity[5] is not None:
            return _storage_view(storage, identity[5])
        return storage


_SIZED = (str, bytes, bytearray, tuple, list, dict, set, frozenset)
_ROOM = 1 << 20


def _storage_view(root: Storage, view: object) -> Storage:
    if type(view) is not tuple or len(view) != 3 or root.dtype is None:
        raise BadFormat("a storage's view must be (key, offset, length)")
    key, offset, numel = view
    offset, numel = naturals((offset, numel), "a storage's view")
    return root.window(str(key), offset, numel)


def _build_state_dict(instance: StateDict, state: object) -> None:
    # Attributes other than ``_metadata`` are users' own and have no place in a StateDict.
    metadata = state.get("_metadata") if isinstance(state, dict) else None
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise BadFormat(f"_metadata must be a dictionary, not {type(metadata).__name__}")
    for path, entry in metadata.items():
        if type(path) is not str or not isinstance(entry, dict):
            raise BadFormat("_metadata must map module paths to dictionaries")
    instance.metadata = {path: dict(entry) for path, entry in metadata.items()}
