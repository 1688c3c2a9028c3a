"""Rules for tangents that skip what does not move.

Without ``symbolic_zeros=True`` a rule gets zeros for what is not differentiated. It multiplies by them,
which takes time in forward mode, and gives NaN where a slope is infinite.
"""

from typing import Any

from jax.custom_derivatives import SymbolicZero


def moves(tangent: Any) -> bool:
    """Whether a tangent may be other than zero; None is that of an argument that is None."""
    return tangent is not None and not isinstance(tangent, SymbolicZero)
