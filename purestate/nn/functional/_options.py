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


def per_axis(value: IntOrInts, count: int) -> tuple[int, ...]:
    """One int ``count`` times; a sequence as it is, whatever its length: torch's ``_pair``."""
    entries = ints(value)
    return entries if isinstance(value, Sequence) else entries * count


def expanded(value: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A tuple of one repeated ``count`` times; any other tuple as it is."""
    return value * count if len(value) == 1 else value


def listed(values: Sequence[int]) -> str:
    """Sizes as torch prints them: ``[1, 2]``; a symbolic size by its name."""
    return f"[{', '.join(str(int(value) if isinstance(value, int) else value) for value in values)}]"


def axis(dim: int, ndim: int) -> int:
    """An axis counted from the start; a scalar counts as having one.

    Raises:
        IndexError: There is no such axis.
    """
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise IndexError(
            "Dimension out of range "
            f"(expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count
