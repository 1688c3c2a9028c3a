"""New containers out of the parts of another: what slicing, ``+`` and ``*`` make in each life.

* While it is built, a container is made of the very same open modules: they are shared.
* Of a value, an open copy is taken apart and closed again, so that shared modules and ties within
  the parts stay what they are.
* In a running call the parts must stay the call's own, or what they write and draw would be lost:
  they come as a :class:`Parts`, a tuple that can be called.
"""

from collections.abc import Callable, Iterable
from typing import Any

from purestate._base import Base
from purestate._freeze import close
from purestate._opening import adopt
from purestate._session import Open, current_session, session


class Parts(tuple[Any, ...]):
    """Modules of a running call: ``self.layers[:3]`` in ``forward``. Calling it runs them in order."""

    __slots__ = ()

    def __call__(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, index: Any) -> Any:
        taken: Any = super().__getitem__(index)
        return Parts(taken) if isinstance(index, slice) else taken

    def __add__(self, other: Iterable[Any]) -> "Parts":  # pyright: ignore[reportIncompatibleMethodOverride]
        return Parts((*self, *other))

    def __mul__(self, times: Any) -> "Parts":
        return Parts(super().__mul__(times))

    __rmul__ = __mul__


def is_running(module: Any) -> bool:
    """Whether this is ``self``, or a part of it, in ``forward``."""
    return module._life is not None and not isinstance(module._life, Open)


def opened(value: Any) -> Any:
    """A module in the form whose parts a constructor may register; anything else as it is."""
    return adopt(value) if isinstance(value, Base) else value


def assembled(container: Any, build: Callable[[Any], Any]) -> Any:
    """A new container out of the parts of one that is being built, or of a value.

    Args:
        container: The container.
        build: From the container in its open form to the new one, by calling a constructor.
    """
    if current_session() is not None:
        return build(opened(container))
    with session(Open()):
        return close(build(opened(container)))
