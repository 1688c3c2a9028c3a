"""Which values of a pickle may be keys of dictionaries and items of sets.

A key is hashed, and what is hashed can hurt: a million nested tuples overflow the C stack, a tuple is
hashed anew each time it is used (and a tuple of the same tuple a thousand times, three levels deep, is
hashed a thousand million times), an object of a class runs code. So keys are plain values, and tuples
of a few of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.checkpoint._records import Placeholder
from bridge.checkpoint.errors import Unsafe


_MAX_DEPTH = 4
_MAX_PARTS = 64

# Not complex numbers: it is easy to make a million of them that have one hash.
_KEYS = frozenset([str, int, float, bool, type(None), bytes, Placeholder])


def check_key(key: object) -> None:
    """Refuse a dictionary key or set item whose hash could be costly or could run code."""
    if type(key) is tuple or type(key) is frozenset:
        _check_parts(key, _MAX_DEPTH, _MAX_PARTS)
    else:
        _check_plain_key(key)


def _check_parts(key: tuple[Any, ...] | frozenset[Any], depth: int, left: int) -> int:
    """Check the parts of a key; return how many more parts it may have."""
    if not depth:
        raise Unsafe("a dictionary key is a tuple nested too deep")
    left -= len(key)
    if left < 0:
        raise Unsafe(f"a dictionary key has more than {_MAX_PARTS} parts")
    for item in key:
        if type(item) is tuple or type(item) is frozenset:
            left = _check_parts(item, depth - 1, left)
        else:
            _check_plain_key(item)
    return left


def _check_plain_key(key: object) -> None:
    kind = type(key)
    if kind is int and not -(1 << 63) <= key < 1 << 64:  # pyright: ignore[reportOperatorIssue]
        raise Unsafe("a dictionary key is an integer beyond 64 bits")
    if kind not in _KEYS and not isinstance(key, np.dtype):
        raise Unsafe(
            f"a dictionary key must be text, a number, None or a tuple of these, not a {kind.__name__}"
        )
