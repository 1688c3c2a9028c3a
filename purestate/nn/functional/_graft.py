"""A value from one place with its derivatives from another."""

import jax

from purestate.nn.functional._varying import varying_alike


def graft(value: jax.Array, source: jax.Array) -> jax.Array:
    """``value``, with the derivatives of ``source``."""
    return _grafted(*varying_alike((value, source)))


@jax.custom_jvp
def _grafted(value: jax.Array, source: jax.Array) -> jax.Array:
    del source
    return value


@_grafted.defjvp
def _grafted_jvp(primals, tangents):
    value, source = primals
    return _grafted(value, source), tangents[1]
