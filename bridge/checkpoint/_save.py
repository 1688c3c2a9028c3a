"""Saving: which format a file gets is told by its name, as PyTorch's and Hugging Face's tools do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bridge.checkpoint.errors import CheckpointError, Unwritable


PathLike = str | os.PathLike[str]
Ties = Literal["all", "canonical"]

_SAFETENSORS = ".safetensors"


def save(
    obj: Any,
    path: PathLike,
    *,
    metadata: Mapping[str, str] | None = None,
    digests: bool = False,
    ties: Ties = "all",
    shard_size: int | str | None = None,
) -> None:
    """Write ``obj`` to a file that PyTorch, or any reader of safetensors, opens.

    A path that ends in ``.safetensors`` gets that format, and ``obj`` must map names to arrays. Any
    other path gets PyTorch's zip format, and ``obj`` may nest dictionaries, lists, tuples, numbers,
    text and bytes around its arrays; ``torch.load(path, weights_only=True)`` reads it. Arrays are
    NumPy's, or convert to it, as JAX's do; NumPy scalars become zero-dimensional tensors.

    In a PyTorch file arrays that lie in the memory of another array in ``obj`` are tensors of one
    storage, so ties stay ties. A safetensors file has no ties: see ``ties``.

    The file is replaced in one step, and the set of files that an earlier save with ``shard_size`` left
    under the same path is removed: when saving fails, or the process is killed, the old file is
    still there. A new file gets the mode that the umask leaves, an old one keeps its own; a symbolic
    link stays, and the file it points to is replaced.

    With ``shard_size`` the arrays of a mapping are spread over several files. A path that ends in
    ``.safetensors``, ``.bin``, ``.pt``, ``.pth`` or ``.ckpt`` names them as Hugging Face does:
    ``pytorch_model.bin`` gives ``pytorch_model-00001-of-00003.bin`` and so on, and
    ``pytorch_model.bin.index.json``. Any other path is a folder, made if need be, for
    ``model.safetensors``. What fits into one file is written to one, without an index. The names in
    that folder which an earlier save with the same path left are removed. At every moment the files
    and their index are the earlier save's or this one's, never of both; let one process at a time
    save to a folder.

    Args:
        obj: What to save.
        path: The file to write or replace; with ``shard_size``, a file or a folder.
        metadata: The text table of a safetensors file; ``{"format": "pt"}`` if not given.
        digests: Write the SHA-256 of every tensor's bytes into the file, so that a reader can tell
            whether they are still the ones that were written.
        ties: How a safetensors file has names whose arrays are the same object or memory: "all"
            writes the numbers for each name; "canonical" writes the first name, and the others into
            the text table, as ``safetensors.torch.save_model`` does.
        shard_size: How many bytes of arrays a file may hold: a number, or text as ``"5GB"`` (10**9)
            or ``"5GiB"`` (2**30). An array that is larger, or tied arrays that are, get a file of
            their own.

    Raises:
        Unwritable: If the format has no place for something in ``obj``, or an array of JAX is spread
            over several processes; the text says where it is.
        ValueError: If ``ties`` or ``shard_size`` is none of the above.
        OSError: If the file cannot be written.
    """
    # Who only reads, as the command line often does, should not wait for what writes.
    from bridge.checkpoint._atomic import write_atomically
    from bridge.checkpoint._pickle_writer import dump
    from bridge.checkpoint._write_safetensors import arrays_of, plan, write_safetensors
    from bridge.checkpoint._write_shards import forget_set, size_in_bytes, write_shards
    from bridge.checkpoint._write_zip import write_torch_zip

    if ties not in ("all", "canonical"):
        raise ValueError(f"ties must be 'all' or 'canonical', not {ties!r}")
    name = os.fspath(path)
    try:
        if shard_size is not None:
            limit = size_in_bytes(shard_size)
            write_shards(obj, name, limit, metadata=metadata, digests=digests, ties=ties)
            return
        if name.endswith(_SAFETENSORS):
            planned = plan(arrays_of(obj), metadata, ties=ties, digests=digests)
            write_atomically(path, lambda file: write_safetensors(file, planned))
        else:
            if metadata is not None:
                raise Unwritable("metadata has a place in .safetensors files only")
            pickle, storages = dump(obj)
            final = Path(name).name
            write_atomically(
                path, lambda file: write_torch_zip(file, final, pickle, storages, digests=digests)
            )
        forget_set(name)
    except CheckpointError as error:
        raise error.locate(file=name) from error.__cause__
