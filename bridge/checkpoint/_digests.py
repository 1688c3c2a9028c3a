"""Digests: whether numbers are the ones that were written.

Neither PyTorch's nor safetensors' readers notice a flipped bit. A file that is saved with digests
carries for each of its tensors (in a ``.pt`` file: each of its storages) the SHA-256 of the numbers
in row-major order, the first byte the least significant: the same on every machine, in every
format, and for every layout in memory. They are written as the JSON text of an object from names to
64 hexadecimal digits.

The functions here are pure.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from bridge.checkpoint._arrays import pieces
from bridge.checkpoint._json import parse_json
from bridge.checkpoint._packed import FLOAT4, pack
from bridge.checkpoint.errors import BadFormat, CheckpointError, brief


_HEX = re.compile(r"[0-9a-f]{64}")
_IN_TEXT = re.compile(r'":\s*"[0-9a-f]{64}"')

#: Where digests stand: a record of a ``.pt`` file, by storage, and a text of a safetensors file.
RECORD = ".data/sha256.json"
TEXT = "sha256"

#: What stands where a digest will stand once the numbers have been written.
BLANK = "0" * 64


class Sha256(Protocol):
    """A hash in the making."""

    def update(self, data: bytes | memoryview, /) -> None:
        """See more bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of the bytes so far."""
        ...


def digest(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's numbers, in row-major and little-endian order.

    Four-bit floats count as the bytes that two of them share in a file.
    """
    sha256 = hashlib.sha256()
    if array.dtype == FLOAT4:
        array = pack(array, "")
    swapped = array.dtype.isnative == (sys.byteorder == "big")
    for piece in pieces(array, swapped=swapped and array.dtype.byteorder != "|"):
        sha256.update(piece)
    return sha256.hexdigest()


def to_text(digests: Mapping[str, str]) -> str:
    """Return digests as a file has them."""
    return json.dumps(dict(digests), ensure_ascii=False, separators=(",", ":"))


def are_digests(text: str) -> bool:
    """Whether a text of a safetensors file is digests, if damaged ones, rather than anybody's note.

    The name of their place is a likely one for a note, too (the digest of a data set, in hexadecimal).
    Digests are a JSON object, empty or with one text at least as long as a digest. A text that is no
    JSON is what is left of them if a name with a whole digest is in it.
    """
    try:
        value = parse_json(text.encode("utf-8", "surrogatepass"))
    except CheckpointError:
        return _IN_TEXT.search(text) is not None
    if not isinstance(value, dict):
        return False
    return not value or any(type(found) is str and len(found) == len(BLANK) for found in value.values())


def from_text(text: str) -> dict[str, str]:
    """Return the digests in a file's text.

    Raises:
        BadFormat: If the text is anything but a JSON object of names and digests.
    """
    try:
        value = parse_json(text.encode("utf-8", "surrogatepass"))
    except BadFormat as error:
        raise BadFormat(f"digests that are {error.problem}") from error.__cause__
    if not isinstance(value, dict):
        raise BadFormat(f"digests must be a JSON object, not {brief(value)}")
    for name, found in value.items():
        if type(found) is not str or not _HEX.fullmatch(found):
            raise BadFormat(f"the digest of {brief(name)} is not 64 hexadecimal digits: {brief(found)}")
    return value
