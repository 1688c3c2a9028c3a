"""Dropout: layers that zero at random in training and return the input in evaluation.

The random key comes from the call's ``rng``. It is asked for only where something is drawn: in
training, with ``0 < p < 1``.
"""

from typing import Any

import jax

from purestate._module import Module
from purestate.nn.functional._dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)


__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def _key(self) -> Any:
        return self.next_key() if self.training and 0 < self.p < 1 else None

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero entries, and scale the others by ``1 / (1 - p)``. Torch's name: ``torch.nn.Dropout``.

    Args:
        p: Probability of an entry to be zeroed.
        inplace: Accepted for torch's sake; nothing is done in place.

    Shape:
        Any shape to the same shape and dtype.

    Raises:
        ValueError: When ``p`` is outside of [0, 1].
        MissingRngError: In a training call without ``rng``.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with entries zeroed."""
        return dropout(input, self.p, self.training, rng=self._key())


class Dropout1d(_DropoutNd):
    """Zero whole channels of one axis. Torch's name: ``torch.nn.Dropout1d``.

    Arguments and errors as :class:`Dropout`.

    Shape:
        ``(N, C, L)`` or ``(C, L)`` to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with channels zeroed."""
        return dropout1d(input, self.p, self.training, rng=self._key())


class Dropout2d(_DropoutNd):
    """Zero whole channels of two axes. Torch's name: ``torch.nn.Dropout2d``.

    Arguments and errors as :class:`Dropout`.

    Shape:
        ``(N, C, H, W)`` or ``(N, C, L)`` to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with channels zeroed."""
        return dropout2d(input, self.p, self.training, rng=self._key())


class Dropout3d(_DropoutNd):
    """Zero whole channels of three axes. Torch's name: ``torch.nn.Dropout3d``.

    Arguments and errors as :class:`Dropout`.

    Shape:
        ``(N, C, D, H, W)`` or ``(C, D, H, W)`` to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with channels zeroed."""
        return dropout3d(input, self.p, self.training, rng=self._key())


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance, for SELU. Torch's name: ``torch.nn.AlphaDropout``.

    Arguments and errors as :class:`Dropout`.

    Shape:
        Any shape to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with entries set to the negative saturation of SELU, rescaled."""
        return alpha_dropout(input, self.p, self.training, rng=self._key())


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels. Torch's name: ``torch.nn.FeatureAlphaDropout``.

    Arguments and errors as :class:`Dropout`.

    Shape:
        ``(N, C, *)`` to the same shape and dtype.
    """

    def forward(self, input: jax.Array) -> jax.Array:
        """The input with channels set to the negative saturation of SELU, rescaled."""
        return feature_alpha_dropout(input, self.p, self.training, rng=self._key())
