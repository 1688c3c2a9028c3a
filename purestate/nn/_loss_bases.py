"""What loss layers share: how they reduce, with torch's two deprecated ways to say it, and a weight."""

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
        self.reduction = overridden(reduction, size_average, reduce)


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
