"""A build in progress: what lasts from the start of the outermost constructor to its end.

While it runs every module it made is *open*: an ordinary object whose ``__dict__`` holds torch's own
registries and plain attributes. The session is the life of these modules, and it remembers what
identities the build has seen.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from purestate._base import Base
from purestate._parameter import Box, Buffer


REGISTRIES = ("_parameters", "_buffers", "_modules")
INTERNAL = frozenset(
    {
        *REGISTRIES,
        "_non_persistent_buffers_set",
        "_registered_hooks",
        "_computed_names",
        "training",
        "_life",
    }
)
"""The names in an open module's ``__dict__`` that are not plain attributes."""


class Open:
    """The life of a module under construction, and the identities its build has seen.

    One session lasts from the start of the outermost constructor to its end. A finished model that
    is assigned as a child becomes an open copy, the same copy each time it is assigned; the same
    array registered as two buffers becomes one box.

    Attributes:
        modules: The open copy of each node of each finished model, by its origin.
        boxes: The box of each leaf of each finished model, by its origin.
        arrays: The array and the box of each plain array that was registered as a buffer.
    """

    __slots__ = ("arrays", "boxes", "modules")

    def __init__(self) -> None:
        self.modules: dict[tuple[object, int], Any] = {}
        self.boxes: dict[tuple[object, int], Box] = {}
        self.arrays: dict[int, tuple[Any, Buffer]] = {}

    def forget(self) -> None:
        """Let go of everything."""
        self.modules.clear()
        self.boxes.clear()
        self.arrays.clear()


class _Local(threading.local):
    session: Open | None = None


_local = _Local()


def current_session() -> Open | None:
    """The session of the constructor that is running in this thread."""
    return _local.session


@contextmanager
def session(value: Any) -> Iterator[Any]:
    """Run with this session as the current one; None lets constructors finish their models.

    What the build has seen is forgotten at its end. Parts that it left out are open for ever, and would
    hold on to each other by way of the session, with their arrays, until Python looks for cycles.
    """
    previous = _local.session
    _local.session = value
    try:
        yield value
    finally:
        _local.session = previous
        if isinstance(value, Open):
            value.forget()


def members(module: Base, kind: str) -> Any:
    """The direct members of an open module, for ``purestate._traversal``."""
    return module.__dict__["_" + kind].items()
