"""Shapes: how torch prints one, and what two broadcast to."""

from collections.abc import Sequence

import jax.numpy as jnp

from purestate.nn.functional._options import listed


def shown(shape: Sequence[int]) -> str:
    """A shape as torch prints it: ``torch.Size([2, 3])``."""
    return f"torch.Size({listed(shape)})"


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape that both broadcast to.

    Raises:
        RuntimeError: There is none.
    """
    count = max(len(a), len(b))
    for axis in range(count - 1, -1, -1):
        place = axis - count
        one = a[place] if -place <= len(a) else 1
        other = b[place] if -place <= len(b) else 1
        if one != other and 1 not in (one, other):
            raise RuntimeError(
                f"The size of tensor a ({one}) must match the size of tensor b ({other}) at "
                f"non-singleton dimension {axis}"
            )
    return jnp.broadcast_shapes(tuple(a), tuple(b))
