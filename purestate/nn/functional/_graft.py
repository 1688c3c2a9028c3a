"""A value from one place with its derivatives from another."""

import jax


@jax.custom_jvp
def graft(value: jax.Array, source: jax.Array) -> jax.Array:
    """``value``, with the derivatives of ``source``."""
    del source
    return value


@graft.defjvp
def _graft_jvp(primals, tangents):
    value, source = primals
    return graft(value, source), tangents[1]
