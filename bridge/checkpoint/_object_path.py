"""Where a value stands in an object, as messages say it: ``object['model'][0]``.

Places are only put into words when there is something to say, so a place costs one pair on the way.
"""

from __future__ import annotations

from typing import Any

from bridge.checkpoint.errors import CheckpointError, Unwritable, brief


#: What a value is in, and its key or index there; None for the object itself.
Path = tuple[Any, object] | None

#: Stands for the versions of a StateDict, which have no key.
METADATA = object()


def where(path: Path) -> str:
    """Return a place as the expression that leads to it."""
    steps = []
    while path is not None:
        path, step = path
        steps.append(".metadata" if step is METADATA else f"[{brief(step)}]")
    return "object" + "".join(reversed(steps))


def unwritable(value: object, path: str) -> CheckpointError:
    """Return the error for a value that no file of arrays has a place for."""
    return Unwritable(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be saved in a file of "
        "arrays and plain values",
        advice="Save its arrays and numbers in a dictionary instead",
        entry=path,
    )
