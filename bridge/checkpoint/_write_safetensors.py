"""Writing safetensors files: a plan first, then the bytes.

The names keep their order in the header. The numbers are laid out so that most tensors start at a
multiple of 64 (the header is padded with spaces, and tensors whose size is a multiple of 64 come
first), which lets JAX use them without a copy.

The format has no way to say that two names are one tensor. Two names are tied here when they have
the same array, or arrays of the same memory, shape and strides. Then there are two ways:

- ``"all"`` writes the numbers once for each name: any reader finds every name, at the cost of space
  and of the tie.
- ``"canonical"`` writes the first name only, and records ``{other name: first name}`` in the text
  table of the file, as ``safetensors.torch.save_model`` does: ``safetensors.torch.load_model`` and
  models that tie their own weights, such as those of Hugging Face, read it. A name that the text
  table needs for something else is written in full.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bridge.checkpoint._arrays import address, as_array, pieces
from bridge.checkpoint._digests import BLANK, TEXT, to_text
from bridge.checkpoint._dtypes import SAFETENSORS_CODE_OF
from bridge.checkpoint._memory import ALIGNMENT
from bridge.checkpoint._packed import FLOAT4, SAFETENSORS_FLOAT4, check_pairs, pack, stored_size
from bridge.checkpoint._safetensors import MAX_HEADER, OTHER_TEXTS
from bridge.checkpoint.errors import Unwritable, brief


_METADATA = "__metadata__"

#: What Hugging Face's libraries demand of a file before they load it into PyTorch.
DEFAULT_METADATA = {"format": "pt"}


class Plan(NamedTuple):
    """A file that could be written.

    Attributes:
        arrays: Name to array, in the order of the header.
        order: The names in the order of their numbers in the file.
        metadata: The text table.
        digests: Whether the text table gets the tensors' digests, too.
    """

    arrays: dict[str, np.ndarray]
    order: list[str]
    metadata: dict[str, str]
    digests: bool


def arrays_of(tensors: object) -> dict[str, np.ndarray]:
    """Return a mapping's values as arrays that a file has a place for.

    Raises:
        Unwritable: If it is no mapping of names to such arrays.
    """
    if not isinstance(tensors, Mapping):
        raise Unwritable(
            f"a .safetensors file holds a mapping of names to arrays, not a {type(tensors).__name__}",
            advice="Save it as .pt, or save one of its state dicts",
        )
    arrays = {}
    converted: dict[int, tuple[Any, np.ndarray | None]] = {}
    for name, value in tensors.items():
        if type(name) is not str or name == _METADATA:
            raise Unwritable(f"{brief(name)} cannot name a tensor in a .safetensors file")
        if id(value) not in converted:
            # The value is kept, too, lest another one gets its place in memory.
            converted[id(value)] = value, as_array(value, name)
        array = converted[id(value)][1]
        if array is not None and array.dtype == FLOAT4:
            check_pairs(array, name)
        elif array is None or array.dtype not in SAFETENSORS_CODE_OF:
            what = type(value).__name__ if array is None else f"{array.dtype} array"
            raise Unwritable(
                f"a .safetensors file has no place for a {what}",
                advice="Save it as .pt, or leave this entry out",
                entry=name,
            )
        arrays[name] = array
    return arrays


def tied(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Return the names whose array an earlier name has, with that name."""
    first: dict[object, str] = {}
    result = {}
    for name, array in arrays.items():
        # Arrays without numbers have no memory that could be the same.
        memory = (address(array), array.shape, array.strides, array.dtype)
        kept = first.setdefault(memory if array.nbytes else id(array), name)
        if kept != name:
            result[name] = kept
    return result


def plan(
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None,
    *,
    ties: str = "all",
    digests: bool = False,
) -> Plan:
    """Decide what a file holds and in which order.

    Args:
        arrays: What :func:`arrays_of` returned, or some of it.
        metadata: The text table; ``{"format": "pt"}`` if None.
        ties: "all" or "canonical".
        digests: Whether to write digests.

    Raises:
        Unwritable: If ``metadata`` is not text for text, or needs a key that is taken.
    """
    table = dict(DEFAULT_METADATA if metadata is None else metadata)
    for key, text in table.items():
        if type(key) is not str or type(text) is not str:
            raise Unwritable(f"__metadata__ maps text to text; entry {brief(key)} does not")
    if digests and TEXT in table:
        raise Unwritable(
            f"__metadata__ has an entry {TEXT!r} already, where the digests have their place"
        )
    written = dict(arrays)
    if ties == "canonical":
        # A table that came from such a file says of a name what is said here.
        dropped = {
            name: kept
            for name, kept in tied(arrays).items()
            if name not in OTHER_TEXTS and table.get(name, kept) == kept
        }
        table.update(dropped)
        written = {name: array for name, array in arrays.items() if name not in dropped}
    return Plan(written, sorted(written, key=lambda name: _place(written[name])), table, digests)


def write_safetensors(file: BinaryIO, plan: Plan) -> None:
    """Write a planned file; ``file`` starts empty, and can be sought in when there are digests."""
    hashes = dict.fromkeys(plan.arrays, BLANK) if plan.digests else {}
    file.write(header(plan, hashes))
    for name in plan.order:
        sha256 = hashlib.sha256() if plan.digests else None
        array = plan.arrays[name]
        if array.dtype == FLOAT4:
            array = pack(array, name)
        for piece in pieces(array, swapped=sys.byteorder == "big"):
            if sha256 is not None:
                sha256.update(piece)
            file.write(piece)
        if sha256 is not None:
            hashes[name] = sha256.hexdigest()
    if plan.digests:
        # The numbers were read once, for both; all digests are equally long.
        file.seek(0)
        file.write(header(plan, hashes))


def header(plan: Plan, hashes: Mapping[str, str]) -> bytes:
    """Return the bytes before the numbers.

    Raises:
        Unwritable: If it cannot be: a name is no text, or there are too many.
    """
    metadata = dict(plan.metadata)
    if plan.digests:
        metadata[TEXT] = to_text(hashes)
    offsets = {}
    at = 0
    for name in plan.order:
        size = stored_size(plan.arrays[name])
        offsets[name] = [at, at + size]
        at += size
    table: dict[str, Any] = {_METADATA: metadata} if metadata else {}
    for name, array in plan.arrays.items():
        table[name] = {
            "dtype": _code(array.dtype),
            "shape": array.shape,
            "data_offsets": offsets[name],
        }
    try:
        text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unwritable("a name is no valid text") from error
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise Unwritable(f"a header of {len(text)} bytes; {MAX_HEADER} is the limit")
    return len(text).to_bytes(8, "little") + text


def _place(array: np.ndarray) -> tuple[bool, int]:
    return stored_size(array) % ALIGNMENT != 0, -array.dtype.itemsize


def _code(dtype: np.dtype) -> str:
    return SAFETENSORS_FLOAT4 if dtype == FLOAT4 else SAFETENSORS_CODE_OF[dtype]
