"""Initialisers for arrays that take another one's place: they draw as that one would be drawn.

``purestate.init`` folds the key of an array from its name. An array that moves (``weight`` becomes
``weight_orig``) would then be drawn anew; ``drawn_as`` says which name counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from purestate._abstract import Initializer


def name_of_draw(init: Any, name: str) -> str:
    """The name whose key an initialiser gets."""
    rename = getattr(init, "drawn_as", None)
    return name if rename is None else rename(name)


@dataclass(frozen=True)
class Renamed:
    """Draws as an array of another name would be drawn.

    Attributes:
        init: How.
        rename: From the name here to the name there.
    """

    init: Initializer
    rename: Callable[[str], str]

    def drawn_as(self, name: str) -> str:
        """The name whose key it takes."""
        return name_of_draw(self.init, self.rename(name))

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """Draw."""
        return self.init(key, shape, dtype)
