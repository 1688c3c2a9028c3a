"""Options as users write them, made hashable: an int, a list or a tuple becomes a tuple of ints.

A jitted function needs its static options hashable and equal when they mean the same, or it would
compile twice. What the number of entries must be is checked by each function, in torch's words.
"""

import operator
from collections.abc import Sequence


IntOrInts = int | Sequence[int]


def ints(value: IntOrInts) -> tuple[int, ...]:
    """The option as a tuple; one int becomes a tuple of one."""
    if isinstance(value, Sequence):
        return tuple(map(operator.index, value))
    return (operator.index(value),)


def expanded(value: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A tuple of one repeated ``count`` times; any other tuple as it is."""
    return value * count if len(value) == 1 else value


def listed(values: Sequence[int]) -> str:
    """Sizes as torch prints them: ``[1, 2]``."""
    return str([int(value) for value in values])
