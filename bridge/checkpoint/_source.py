"""Bytes of a file, read with bounds.

Every reader of this package gets its bytes from here. A request beyond the end of the file is
refused *before* memory is set aside for it, so a forged length field can cost no more than the
file's own size.

Structure (directories, headers, pickles) is read into memory, never looked up in a map of the file.
Numbers come as a **block**, either mapped or owned. A mapped block is the file itself, seen through
the page cache: it takes no time and no memory until it is used, and then costs one pass over the
bytes. An owned block is a copy, aligned to 64 bytes, which is what JAX needs to use it as it is.

An array over a mapped block remembers its file: :func:`place_of` says where its numbers lie, so that
a part of it can be read into owned memory without paging in the rest.
"""

from __future__ import annotations

import copy
import mmap
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from bridge.checkpoint.errors import Truncated


ALIGNMENT = 64
_PIECE = 1 << 20
_INCOMPLETE = "The download or copy is probably incomplete: fetch the file again"


class ByteSource(Protocol):
    """Something with bytes at offsets."""

    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        ...


class FileBytes:
    """An open file of known size, or a part of one.

    Args:
        descriptor: The file, open for reading. It is not closed here.
        copy: Whether blocks are owned memory rather than mapped.
        skim: Whether the numbers are of no interest: nothing is done that would read them.

    Attributes:
        size: How many bytes there are.
        copy: As given; a file that is only skimmed is never copied.
        skim: As given.
    """

    def __init__(self, descriptor: int, *, copy: bool = True, skim: bool = False) -> None:
        self.size = os.fstat(descriptor).st_size
        self.copy = copy and not skim
        self.skim = skim
        self._descriptor = descriptor
        self._start = 0
        self._map: list[np.ndarray] = []  # the one map of the file, when it has been made

    def window(self, start: int, size: int) -> FileBytes:
        """Return the ``size`` bytes from ``start`` as a file of its own; both share one map."""
        self._check(start, size)
        part = copy.copy(self)
        part._start = self._start + start
        part.size = size
        return part

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        self._check(offset, count)
        at = self._start + offset
        data = os.pread(self._descriptor, count, at)
        while len(data) < count:  # one call gives 2 GiB at most
            more = os.pread(self._descriptor, count - len(data), at + len(data))
            if not more:
                raise _shortened(offset + len(data))
            data += more
        return data

    def pieces(self, offset: int, count: int) -> Iterator[memoryview]:
        """Yield ``count`` bytes from ``offset`` in pieces, each valid until the next."""
        self._check(offset, count)
        buffer = memoryview(bytearray(min(count, _PIECE)))
        for done in range(0, count, _PIECE):
            piece = buffer[: min(_PIECE, count - done)]
            pread_into(self._descriptor, self._start + offset + done, piece)
            yield piece

    def block(self, offset: int, count: int) -> np.ndarray:
        """Return ``count`` bytes from ``offset`` as a read-only ``uint8`` array."""
        self._check(offset, count)
        if not count:
            return np.empty(0, np.uint8)
        at = self._start + offset
        if not self.copy:
            if not self._map:
                self._map.append(np.frombuffer(MappedFile.of(self._descriptor), np.uint8))
            if at + count > len(self._map[0]):
                raise _shortened(offset)
            return self._map[0][at : at + count]
        block = aligned_empty(count)
        pread_into(self._descriptor, at, memoryview(cast("Any", block)))
        block.flags.writeable = False
        return block

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Truncated(
                f"{count} bytes are needed here, but the file has {self.size} bytes in all",
                advice=_INCOMPLETE,
                offset=offset,
            )


class MappedFile(mmap.mmap):
    """A read-only map that keeps its file open, for reading parts of it into memory."""

    _descriptor: int = -1

    @classmethod
    def of(cls, descriptor: int) -> MappedFile:
        """Map an open file."""
        try:
            mapped = cls(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        except ValueError:  # An empty file has no map.
            raise _shortened(0) from None
        mapped._descriptor = os.dup(descriptor)
        return mapped

    def pread(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the file's bytes from ``offset``."""
        pread_into(self._descriptor, offset, view)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Place(NamedTuple):
    """Where an array's numbers lie: in a file, from the byte of element ``[0, ..., 0]``."""

    file: MappedFile
    offset: int


def place_of(array: np.ndarray) -> Place | None:
    """Return where a mapped array's numbers lie in its file; None if it is in memory."""
    root: Any = array
    last = array
    while isinstance(root, np.ndarray | memoryview):
        last = root if isinstance(root, np.ndarray) else last
        root = root.base if isinstance(root, np.ndarray) else root.obj
    if not isinstance(root, MappedFile):
        return None
    # The outermost array that views the map starts where the map does.
    return Place(root, array.ctypes.data - last.ctypes.data)


def pread_into(descriptor: int, offset: int, view: memoryview) -> None:
    """Fill ``view`` with the bytes of an open file from ``offset``."""
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise _shortened(offset + done)
        done += count


def _shortened(offset: int) -> Truncated:
    return Truncated("the file became shorter while it was read", offset=offset)


def aligned_empty(nbytes: int) -> np.ndarray:
    """Return an uninitialised ``uint8`` array whose memory starts at a multiple of 64."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]
