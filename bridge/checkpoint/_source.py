"""Bytes of a file, read with bounds.

Every reader of this package gets its bytes from here. A request beyond the end of the file is
refused *before* memory is allocated for it, so a forged length field can cost no more than the
file's own size. Array contents are read into memory that belongs to the array (never a map of the
file: a file that changes later must not change arrays, and one that shrinks must not crash them),
aligned to 64 bytes, which is what JAX needs to use a NumPy array without copying it.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np

from bridge.checkpoint.errors import Truncated


ALIGNMENT = 64
_WINDOW = 1 << 20


class ByteSource(Protocol):
    """Something with bytes at offsets."""

    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        ...


class RawFile(Protocol):
    """The part of an unbuffered binary file that reading needs."""

    def seek(self, offset: int, /) -> int:
        """Move to ``offset``."""
        ...

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill ``buffer`` from the current place; return how many bytes came."""
        ...


class FileBytes:
    """An open file of known size.

    Args:
        file: The file, opened unbuffered for reading.
        size: Its size in bytes when it was opened.
        skim: Leave array contents unread. Arrays then have their shapes and dtypes but arbitrary
            values: enough for a listing, at the cost of the headers only.
    """

    def __init__(self, file: RawFile, size: int, *, skim: bool = False) -> None:
        self.size = size
        self.skim = skim
        self._file = file

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        self._check(offset, count)
        buffer = bytearray(count)
        self._fill(offset, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, offset: int, array: np.ndarray) -> None:
        """Fill a contiguous ``uint8`` array from ``offset``; do nothing when skimming."""
        self._check(offset, array.nbytes)
        if not self.skim and array.nbytes:
            self._fill(offset, memoryview(cast("bytes", array)))

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Truncated(
                f"{count} bytes are needed here, but the file has {self.size} bytes in all",
                advice="The download or copy is probably incomplete: fetch the file again",
                offset=offset,
            )

    def _fill(self, offset: int, view: memoryview) -> None:
        self._file.seek(offset)
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])
            if not count:
                raise Truncated("the file became shorter while it was read", offset=offset + done)
            done += count


class MemoryBytes:
    """Bytes that are already in memory, such as an inflated record."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Truncated(f"{count} bytes are needed here, but the record ends", offset=offset)
        return self._data[offset : offset + count]


def aligned_empty(nbytes: int) -> np.ndarray:
    """Return an uninitialised ``uint8`` array whose memory starts at a multiple of 64."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]


class ByteReader:
    """A cursor over ``[start, end)`` of a source that reads ahead in windows.

    Attributes:
        end: Where the readable range ends.
    """

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self.end = end
        self._source = source
        self._base = start
        self._window = b""
        self._next = 0

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._base + self._next

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        stop = self._next + count
        if stop > len(self._window):
            self._refill(count)
            stop = self._next + count
        chunk = self._window[self._next : stop]
        self._next = stop
        return chunk

    def byte(self) -> int:
        """Return the next byte as an integer."""
        if self._next >= len(self._window):
            self._refill(1)
        value = self._window[self._next]
        self._next += 1
        return value

    def line(self, limit: int) -> bytes:
        """Return the bytes up to the next newline, which is consumed; at most ``limit``."""
        stop = self._window.find(b"\n", self._next)
        if stop < 0:
            self._refill(min(limit + 1, self.end - self.position))
            stop = self._window.find(b"\n", self._next)
        if stop < 0 or stop - self._next > limit:
            raise Truncated(f"no line end within {limit} bytes", offset=self.position)
        chunk = self._window[self._next : stop]
        self._next = stop + 1
        return chunk

    def _refill(self, count: int) -> None:
        position = self.position
        if count > self.end - position:
            raise Truncated(
                f"{count} bytes are needed here, but {max(self.end - position, 0)} are left",
                advice="The download or copy is probably incomplete: fetch the file again",
                offset=position,
            )
        ahead = max(count, min(_WINDOW, self.end - position))
        self._window = self._source.read(position, ahead)
        self._base = position
        self._next = 0
