"""Opcodes of pickle protocol 2 whose form depends on what they carry, as Python's pickler has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from bridge.checkpoint.errors import Unwritable


#: How many items Python's pickler puts into a container at once.
BATCH = 1000

_SHORT_TUPLES = {0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}


def put(index: int) -> bytes:
    """Return what numbers the newest value."""
    return b"q%c" % index if index < 256 else b"r" + struct.pack("<I", index)


def get(index: int) -> bytes:
    """Return what refers to a numbered value."""
    return b"h%c" % index if index < 256 else b"j" + struct.pack("<I", index)


def integer(value: int) -> bytes:
    """Return what is an integer.

    Raises:
        Unwritable: If it has more bytes than PyTorch's reader takes.
    """
    if 0 <= value < 1 << 8:
        return b"K%c" % value
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    # to_bytes leaves a spare byte for some negative numbers; Python's pickles do not.
    if value < 0 and len(data) > 1 and data[-1] == 0xFF and data[-2] & 0x80:
        data = data[:-1]
    if len(data) > 255:
        raise Unwritable("an integer beyond 255 bytes, which torch.load refuses")
    return b"\x8a" + bytes([len(data)]) + data


def tuple_start(size: int) -> bytes:
    """Return what comes before a tuple's items."""
    return b"(" if size > 3 else b""


def tuple_end(size: int) -> bytes:
    """Return what comes after a tuple's items."""
    return _SHORT_TUPLES.get(size, b"t")


def batches(count: int) -> Iterator[int]:
    """Yield the sizes of the groups in which Python's pickler writes a plain dictionary."""
    while count >= BATCH:
        yield BATCH
        count -= BATCH
        if not count:
            # It only notices the end after a full group by opening another.
            yield 0
    if count:
        yield count
