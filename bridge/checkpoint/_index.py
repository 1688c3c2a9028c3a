"""The index of a checkpoint in several files, and which files an index may name.

Hugging Face's libraries write ``model.safetensors.index.json`` (or ``pytorch_model.bin.index.json``)
next to the files: a JSON object whose ``weight_map`` gives, for every tensor, the file that holds it.
The text comes from whoever made the checkpoint, and a file name in it is a request to open that file.
Two rules keep the request inside the folder:

- A name is a plain file name. No separators, no ``..``, no drive, nothing but a name that a listing
  of the folder could show.
- What stands under that name may be a symbolic link, and is followed, if the link belongs to the
  owner of the folder (or to the reader, or to root). Hugging Face's own cache is made of such links
  (``snapshots/<revision>/model.safetensors -> ../../blobs/<hash>``), and people link large files by
  hand. A link in a folder was put there by someone who may write to the folder, and who could have
  put any bytes in its place; text in a JSON file cannot make one. A link that somebody else left in a
  folder where everyone may write is refused.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any

from bridge.checkpoint._json import parse_json
from bridge.checkpoint.errors import BadFormat, NotACheckpoint, Truncated, Unsafe, Unsupported, brief


#: The index of the largest public models has about 15 MB; its objects take ten times that in memory.
MAX_INDEX = 64 << 20
_MAX_NAME = 255


@dataclass(frozen=True)
class Index:
    """What an index says.

    Attributes:
        weight_map: Name of each tensor to the name of its file, in the order of the index.
        total_size: How many bytes the tensors have together, or None where it does not say.
    """

    weight_map: dict[str, str]
    total_size: int | None


def parse_index(data: bytes) -> Index:
    """Return what the bytes of an index say.

    Raises:
        NotACheckpoint: If they are other JSON.
        BadFormat: If they are no JSON.
        Unsafe: If they name a file outside the folder.
    """
    value = parse_json(data)
    weight_map = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(weight_map, dict):
        raise NotACheckpoint(
            "this JSON file is no index of a checkpoint: it has no weight_map",
            advice="Name the checkpoint's folder, or its file of tensors",
        )
    for name, file in weight_map.items():
        try:
            check_plain_name(file)
        except (BadFormat, Unsafe) as error:
            raise error.locate(entry=name, record="weight_map") from None
    return Index(weight_map, _total_size(value.get("metadata")))


def _total_size(metadata: Any) -> int | None:
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    # Some writers put a float here; the number decides nothing, so it is only kept where it is exact.
    return int(size) if isinstance(size, int | float) and size == size // 1 else None


def check_plain_name(name: object) -> str:
    """Return a file's name if it is a plain one, which cannot leave the folder.

    Raises:
        BadFormat: If it is no text, or empty or too long.
        Unsafe: If it is a path.
    """
    if type(name) is not str or not 0 < len(name) <= _MAX_NAME:
        raise BadFormat(f"a file's name must be text of 1 to {_MAX_NAME} characters, not {brief(name)}")
    # Backslashes, colons and trailing dots and spaces have meanings on Windows, and no use elsewhere.
    parts = name in (".", "..") or any(sign in name for sign in "/\\:\0") or name[-1] in ". "
    if parts or not name.isprintable():
        raise Unsafe(
            f"the file's name {brief(name)} is a path; a name inside the folder is expected",
            advice="A checkpoint's files lie side by side in one folder: do not use this one",
        )
    return name


def file_in(folder: str, name: str) -> str:
    """Return the path of a file of the folder, after checking what stands there.

    Args:
        folder: The folder.
        name: A plain name (:func:`check_plain_name`).

    Raises:
        Truncated: If there is no such file.
        Unsafe: If it is a link that neither the folder's owner nor the reader made.
        Unsupported: If it is no regular file.
    """
    path = os.path.join(folder, check_plain_name(name))
    try:
        link = os.lstat(path)
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in _trusted(folder):
            raise Unsafe(
                f"{name!r} is a link that somebody else put into the folder",
                advice="Copy the file it shows, if you trust it",
            )
        status = os.stat(path)
    except OSError as error:
        raise Truncated(
            f"the file {name!r} is missing from the folder ({error.strerror})",
            advice="The download or copy is probably incomplete: fetch the folder again",
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise Unsupported(f"{name!r} is not a regular file", advice="Copy the content to a file first")
    return path


def _trusted(folder: str) -> set[int]:
    reader = os.geteuid() if hasattr(os, "geteuid") else 0
    return {os.stat(folder).st_uid, reader, 0}
