"""Where a pickle ends, told without executing it.

The legacy format has pickles in a row with raw numbers after them, and says nowhere how long each
is. This walk looks only at how many bytes each opcode takes, so that the bytes handed to the pickle
machine are the pickle and nothing more.
"""

from __future__ import annotations

from bridge.checkpoint._source import ByteSource
from bridge.checkpoint.errors import Truncated


_STOP = ord(".")
_FIRST_WINDOW = 1 << 16

#: Opcode to the length of its argument, where that is fixed and not zero.
_FIXED = {0x80: 1, ord("q"): 1, ord("h"): 1, ord("K"): 1, ord("M"): 2, ord("J"): 4, ord("r"): 4}
_FIXED |= {ord("j"): 4, ord("G"): 8, 0x95: 8}

#: Opcode to the width of the length in front of its argument.
_COUNTED = {ord("U"): 1, ord("C"): 1, 0x8A: 1, 0x8C: 1, ord("T"): 4, ord("B"): 4, ord("X"): 4}
_COUNTED |= {0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8}

#: Opcodes without an argument.
_BARE = frozenset(b"(.0)1NQRabestu]}\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94")

_GLOBAL = ord("c")
_KNOWN = _BARE | _FIXED.keys() | _COUNTED.keys() | {_GLOBAL}


def read_pickle(source: ByteSource, start: int) -> bytes:
    """Return the bytes of the pickle that starts at ``start``, up to its STOP.

    An opcode that the pickle machine does not know ends the walk as well: the machine will say so.
    """
    left = source.size - start
    data = source.read(start, min(left, _FIRST_WINDOW))
    at = 0
    while True:
        end, at = _walk(data, at)
        if end is not None:
            return data[:end]
        if len(data) >= left:
            raise Truncated(
                "the file ends in the middle of a pickle",
                advice="The download or copy is probably incomplete: fetch the file again",
                offset=start + at,
            )
        data += source.read(start + len(data), min(left - len(data), len(data)))


def _walk(data: bytes, at: int) -> tuple[int | None, int]:
    """Return the end of the pickle, or None and the opcode at which the data ends."""
    size = len(data)
    while at < size:
        code = data[at]
        step = 1 + _FIXED.get(code, 0)
        if code == _STOP or not (
            code in _BARE or code in _FIXED or code in _COUNTED or code == _GLOBAL
        ):
            return at + 1, at
        if (width := _COUNTED.get(code)) is not None:
            if at + 1 + width > size:
                return None, at
            step += width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
        elif code == _GLOBAL:
            module_end = data.find(b"\n", at)
            name_end = data.find(b"\n", module_end + 1)
            if module_end < 0 or name_end < 0:
                return None, at
            step = name_end + 1 - at
        if at + step > size:
            return None, at
        at += step
    return None, at
