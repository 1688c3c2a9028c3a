"""One change for both lives: a finished model gives another, and in a constructor it is in place.

``self.fc = bridge.parametrize.weight_norm(nn.Linear(3, 3))`` is a line of ``__init__`` as well as of a
script. In the first case the layer is still open, and stays the very object it is.
"""

from collections.abc import Callable
from typing import Any

from purestate._base import Base
from purestate._definition import Definition
from purestate._edit import edit
from purestate._freeze import snapshot
from purestate._lives import flatten
from purestate._parameter import Box
from purestate._select import Selector, select
from purestate._session import Open


def is_open(module: Any) -> bool:
    """Whether a module is under construction."""
    return isinstance(module, Base) and isinstance(module._life, Open)


def changed(model: Any, change: Callable[[Any, str], None], at: Selector = "") -> Any:
    """The model after ``change(module, path)`` to the selected modules, which are open then.

    Args:
        model: A model, or a module under construction, which is changed in place and returned.
        change: Mutates the open module; ``path`` is where it is.
        at: Which modules.

    Raises:
        TypeError: For a Definition, which has no arrays to compute from.
        SelectorError: When ``at`` matches nothing.
    """
    if isinstance(model, Definition):
        raise TypeError(
            "this change computes from the arrays, and a Definition has none.\n"
            "    write: change the model, and split it afterwards"
        )
    if not isinstance(model, Base):
        raise TypeError(f"expected a model (purestate.Module), got {type(model).__name__}")
    opened = is_open(model)
    if opened and at == "":
        change(model, "")
        return model
    definition, leaves = snapshot(model) if opened else flatten(model)[::-1]
    paths = list(select(definition, at, leaves).values())

    def apply(root: Any) -> None:
        for module, path in [(root.get_submodule(path), path) for path in paths]:
            change(module, path)

    if opened:
        apply(model)
        return model
    return edit(model, apply)


def box_of(module: Any, name: str) -> Box | None:
    """The box of a parameter or buffer of an open module, or None."""
    own = module.__dict__
    box = own["_parameters"].get(name)
    return own["_buffers"].get(name) if box is None else box


def remember(box: Any, like: Any, stored_dtype: str | None) -> None:
    """Let an array made of another one be saved in the wide dtype that the other one is saved in.

    Args:
        box: The box of the new array.
        like: What it was made of.
        stored_dtype: That one's; None where nothing was narrowed.
    """
    if box.dtype == like.dtype:
        box.stored_dtype = stored_dtype


def size(array: Any) -> str:
    """A shape as torch prints it."""
    return f"torch.Size({list(array.shape)})"
