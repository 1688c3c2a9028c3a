"""The bare module object: its one slot, for the files that stand below the class users see."""

from typing import Any


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

    @property
    def _leaves(self) -> tuple[Any, ...]:
        """The arrays, one per distinct parameter or buffer."""
        return self._parts[0]

    @property
    def _definition(self) -> Any:
        """Everything else."""
        return self._parts[1]


set_parts = vars(Base)["_parts"].__set__
"""``set_parts(module, (leaves, definition))``: past the refusal to assign."""
