"""Warnings that point at the line of the user's code, whatever lies between."""

import sys
import warnings


_INSIDE = ("purestate", "bridge", "jax", "abc")  # The metaclass is an ABCMeta.


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the code that uses the package.

    Layers call functions, constructors each other, the metaclass calls them and JAX what it traces:
    a number of frames would be right for one way to get here and wrong for the next.
    """
    level, frame = 2, sys._getframe(1)
    while _is_inside(frame.f_globals.get("__name__", "")) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_inside(name: str) -> bool:
    return name.partition(".")[0] in _INSIDE
