"""What a layer's constructor needs besides PyTorch's own rules.

* ``in_constructor``: a method that changes its module in place works while the module is being
  built, and on a finished one says what to write instead.
* ``single``, ``pair``, ``triple``: one int per spatial axis, from one int or an iterable of them.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

from purestate._errors import FrozenModelError
from purestate._session import Open


def in_constructor(remedy: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method for constructors only.

    Args:
        remedy: The line that does the same to a finished model, for the error.
    """

    def guard(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self._life, Open):
                raise FrozenModelError(
                    f"{type(self).__name__}.{method.__name__} changes a module in place, and a "
                    f"finished model is a value that never changes.\n    write: {remedy}"
                )
            return method(self, *args, **kwargs)

        return checked

    return guard


draws_again = in_constructor(
    "model = purestate.init(Model(...), key)   (a new model draws all its values)"
)
"""For the ``reset_parameters`` of the layers."""


def repeated(value: Any, count: int) -> tuple[Any, ...]:
    """An iterable as a tuple of whatever length it has; anything else ``count`` times."""
    return tuple(value) if isinstance(value, Iterable) else (value,) * count


def single(value: Any) -> tuple[Any, ...]:
    """One entry for the one axis."""
    return repeated(value, 1)


def pair(value: Any) -> tuple[Any, ...]:
    """One entry for each of two axes."""
    return repeated(value, 2)


def triple(value: Any) -> tuple[Any, ...]:
    """One entry for each of three axes."""
    return repeated(value, 3)
