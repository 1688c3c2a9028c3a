"""Writing what was trained, and reading it back to see whether every bit is there."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

import bridge
from bridge.demo._errors import Mismatch


def write_and_compare(value: Any, path: Path) -> int:
    """Write a file, read it back and compare.

    Args:
        value: Arrays and plain values in dictionaries and lists.
        path: The file; its suffix chooses the format.

    Returns:
        How many tensors the file has.

    Raises:
        Mismatch: When what comes back differs from ``value`` anywhere, in bits, dtype, shape, order
            or a plain value.
    """
    bridge.save(value, path)
    written, written_tree = jax.tree_util.tree_flatten_with_path(value)
    read, read_tree = jax.tree_util.tree_flatten_with_path(bridge.load(path))
    if written_tree != read_tree:
        raise Mismatch(f"{path.name} came back with other names than were written")
    for (key, before), (_, after) in zip(written, read, strict=True):
        if not _same(before, after):
            name = jax.tree_util.keystr(key, simple=True, separator=".")
            raise Mismatch(f"{name} came back from {path.name} changed")
    return sum(_is_array(leaf) for _, leaf in read)


def _same(before: Any, after: Any) -> bool:
    if not _is_array(before):
        return type(before) is type(after) and before == after
    before, after = np.asarray(before), np.asarray(after)
    kinds = (before.dtype, before.shape) == (after.dtype, after.shape)
    return kinds and before.tobytes() == after.tobytes()


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | jax.Array)
