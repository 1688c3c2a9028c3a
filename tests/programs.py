"""Traced programs: what is in them, at any depth."""

from collections.abc import Iterator
from typing import Any

from jax.extend.core import Jaxpr, Primitive, jaxprs_in_params


def equations(jaxpr: Jaxpr, primitive: Primitive) -> Iterator[Any]:
    """The equations of a primitive."""
    for equation in jaxpr.eqns:
        if equation.primitive is primitive:
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner, primitive)
