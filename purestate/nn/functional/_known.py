"""Whether the values of an array can be looked at."""

import math

import jax
import numpy as np
from jax.core import Tracer


def known(array: jax.Array | np.ndarray) -> bool:
    """Whether a check can see values: not while they are traced, nor where another host has them.

    Looking waits for the array to be computed. An empty array has no values.
    """
    if isinstance(array, Tracer):
        return False
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        return False
    return math.prod(array.shape) > 0
