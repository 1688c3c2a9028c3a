"""Random keys from names: the draw of one array or layer depends on nothing but its own path."""

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def as_key(rng: "int | jax.Array | None") -> jax.Array | None:
    """A key from what a user may pass as ``rng``: a key, or an int as its seed."""
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool):
        return jax.random.key(rng)
    return rng  # pyright: ignore[reportReturnType]


def name_words(name: str) -> np.ndarray:
    """The 64 bits of a dotted name's hash, as the two uint32 that are folded into a key."""
    return np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), "<u4")


def fold_words(key: jax.Array, words: Sequence[Any] | np.ndarray | jax.Array) -> jax.Array:
    """A key for the name whose ``name_words`` these are; they may be traced."""
    return jax.random.fold_in(jax.random.fold_in(key, words[0]), words[1])


def fold_name(key: jax.Array, name: str) -> jax.Array:
    """A key for a dotted name: 64 bits of its hash are folded in."""
    return fold_words(key, name_words(name))
