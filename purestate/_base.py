"""The bare module object: its slots, for the files that stand below the class users see."""

from typing import Any


class Base:
    """A module without behaviour.

    Attributes:
        _leaves: The arrays of a value, one per distinct parameter or buffer.
        _definition: Everything else about a value.
        _life: None for a value; the session while it is built; the view's place in a call.
    """

    __slots__ = ("__dict__", "__weakref__", "_definition", "_leaves")

    _life: Any = None
    _leaves: tuple[Any, ...]
    _definition: Any
