"""What loss layers share: how they reduce, with torch's two deprecated ways to say it, and a weight."""

import sys
from typing import Any

from purestate._module import Module
from purestate.nn.functional._reduction import overridden


class _Loss(Module):
    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__()
        self.reduction = overridden(reduction, size_average, reduce, outside() + 1)


class _WeightedLoss(_Loss):
    def __init__(
        self,
        weight: Any = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


def outside() -> int:
    """The ``stacklevel`` with which the caller's warning points at the code that uses the package.

    Constructors call each other and are called by the metaclass: their number differs.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_globals["__name__"].startswith("purestate.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
