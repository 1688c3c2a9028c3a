"""Layers that compare two inputs: the angle between them, the distance of them."""

import jax

from purestate._module import Module
from purestate.nn.functional._distance import cosine_similarity, pairwise_distance


__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """The cosine of the angle between vectors. Torch's name: ``torch.nn.CosineSimilarity``.

    Args:
        dim: The axis of the vectors.
        eps: The least norm to divide by; not negative.

    Shape:
        ``(*, D, *)`` twice, or shapes that broadcast, to ``(*, *)``.

    Raises:
        RuntimeError: In a call, when the shapes do not broadcast or the common dtype is not
            floating point.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: jax.Array, x2: jax.Array) -> jax.Array:
        """The cosines."""
        return cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The distance of two vectors, entry by entry of a batch. Torch's ``torch.nn.PairwiseDistance``.

    Args:
        p: The exponent of the norm.
        eps: Added to every difference.
        keepdim: Keep the last axis, of size one.

    Shape:
        ``(*, D)`` twice, or shapes that broadcast, to ``(*)``, or ``(*, 1)`` with ``keepdim``.

    Raises:
        RuntimeError: In a call, when the shapes do not broadcast.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: jax.Array, x2: jax.Array) -> jax.Array:
        """The distances."""
        return pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
