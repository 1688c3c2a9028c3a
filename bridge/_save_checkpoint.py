"""save_checkpoint: a model's state_dict in a file, with the model's own ties.

Files tell ties by memory (see ``bridge.checkpoint.save``), a model by its definition. Mostly the two
agree. Two parameters that were made of one array, or filled from one tensor of a file without a
copy, share memory and are not tied: one of them is copied here, so that the file says what the model
says.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bridge._state_dict import state_dict
from bridge.checkpoint._arrays import is_spread, spread
from bridge.checkpoint._save import save
from bridge.checkpoint._storages import storage_groups
from purestate._abstract import UninitializedArray, is_undrawn
from purestate._errors import uninitialized
from purestate._lives import flatten, unflatten
from purestate._select import Selector


def save_checkpoint(
    model: Any,
    path: str | os.PathLike[str],
    *,
    where: Selector | None = None,
    metadata: Mapping[str, str] | None = None,
    digests: bool = False,
    ties: Literal["all", "canonical"] = "all",
    shard_size: int | str | None = None,
) -> None:
    """Save a model's parameters and persistent buffers under torch's names.

    What is written is :func:`bridge.state_dict` of the model, the way ``bridge.save`` writes it;
    ``torch_module.load_state_dict(torch.load(path))`` and ``safetensors.torch.load_model`` read it.
    An array that JAX narrowed when the model got it (an int64 counter, a float64 table) is written in
    its wide dtype again, as ``bridge.state_dict`` gives it. Arrays are tied in the file exactly if
    they are tied in the model.

    Args:
        model: A model whose arrays all have values.
        path: The file to write or replace: ``.safetensors`` or PyTorch's format, by its name. With
            ``shard_size``, a file or a folder.
        where: Only what is in these modules and below them; names stay full names.
        metadata: The text table of a safetensors file.
        digests: Write the SHA-256 of every tensor into the file.
        ties: "all" or "canonical": how a safetensors file has tied names.
        shard_size: How many bytes of arrays a file may hold, as ``"5GB"`` or a number.

    Raises:
        UninitializedError: If an array has no value yet.
        SelectorError: If ``where`` matches nothing.
        Unwritable: If the format has no place for something, for example extra state that is not an
            array in a safetensors file; if an array is spread over several processes.
        OSError: If the file cannot be written; the old file is then as it was.
    """
    saved = state_dict(_apart(model), where=where)
    undrawn = [name for name, value in saved.items() if is_undrawn(value)]
    if undrawn:
        lazy = [name for name in undrawn if isinstance(saved[name], UninitializedArray)]
        raise uninitialized(undrawn, lazy)
    for name, value in saved.items():
        if is_spread(value):
            raise spread(name).locate(file=os.fspath(path))
    save(saved, path, metadata=metadata, digests=digests, ties=ties, shard_size=shard_size)


def _apart(model: Any) -> Any:
    """Return the model with leaves that share no memory."""
    leaves, definition = flatten(model)
    values = {
        at: np.asarray(leaf)
        for at, leaf in enumerate(leaves)
        # A random key's dtype is not NumPy's, and no file has a place for it.
        if not is_undrawn(leaf) and isinstance(leaf.dtype, np.dtype) and not is_spread(leaf)
    }
    shared = _sharing(values)
    if not shared:
        return model
    return unflatten(
        definition, tuple(values[at].copy() if at in shared else leaf for at, leaf in enumerate(leaves))
    )


def _sharing(values: Mapping[int, np.ndarray]) -> set[int]:
    """Return the positions of the arrays that lie in another one's memory."""
    positions: Sequence[int] = list(values)
    groups = storage_groups(list(values.values()))
    return {positions[at] for at, group in enumerate(groups) if at != group}
