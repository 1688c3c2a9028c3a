"""Random keys from names: the draw of one array or layer depends on nothing but its own path."""

import hashlib

import jax
import numpy as np


def as_key(rng: "int | jax.Array | None") -> jax.Array | None:
    """A key from what a user may pass as ``rng``: a key, or an int as its seed."""
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        return jax.random.key(rng)
    return rng  # pyright: ignore[reportReturnType]


def fold_name(key: jax.Array, name: str) -> jax.Array:
    """A key for a dotted name: 64 bits of its hash are folded in."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    first, second = np.frombuffer(digest, "<u4")
    return jax.random.fold_in(jax.random.fold_in(key, first), second)
