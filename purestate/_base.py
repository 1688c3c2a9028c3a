"""The bare module object: its one slot, for the files that stand below the class users see."""

import weakref
from typing import Any, NamedTuple


class Token:
    """Stands for one finished model. ``views`` are the submodules that were read from it and live."""

    __slots__ = ("views",)

    def __init__(self) -> None:
        self.views: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class Origin(NamedTuple):
    """Which model a value was read from, and where its nodes and leaves are in it.

    By this a shared submodule is one object under all its paths, and a constructor that registers
    two parts of one model shares what they share. It holds numbers and a token, and none of the
    model's arrays.
    """

    token: Token
    nodes: tuple[int, ...]
    leaves: tuple[int, ...]


class Base:
    """A module without behaviour.

    A value has ``_parts = (leaves, definition)``, the very pair that flattening returns: one slot
    to read, one to set. A running view has none, and computes it when asked.

    Attributes:
        _life: None for a value; the session while it is built; the view's place in a call.
    """

    __slots__ = ("__dict__", "__weakref__", "_parts")

    _life: Any = None
    _parts: tuple[tuple[Any, ...], Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` in the call that this view belongs to."""
        return self._life.invoke(self, args, kwargs)

    @property
    def _leaves(self) -> tuple[Any, ...]:
        """The arrays, one per distinct parameter or buffer."""
        return self._parts[0]

    @property
    def _definition(self) -> Any:
        """Everything else."""
        return self._parts[1]


def origin(module: Base) -> Origin:
    """The origin of a value; a model that was read from no other is its own."""
    known = module.__dict__.get("_origin")
    if known is None:
        definition = module._definition
        nodes, leaves = range(len(definition.nodes)), range(len(definition.leaves))
        # Of two threads that come here at once, one decides.
        known = module.__dict__.setdefault("_origin", Origin(Token(), tuple(nodes), tuple(leaves)))
    return known


set_parts = vars(Base)["_parts"].__set__
"""``set_parts(module, (leaves, definition))``: past the refusal to assign."""
