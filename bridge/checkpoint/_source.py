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

import mmap
import os
from collections.abc import Iterator
from typing import Any, Protocol, cast

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
    """An open file of known size.

    Args:
        descriptor: The file, open for reading. It is not closed here.
        copy: Whether blocks are owned memory rather than mapped.
        skim: Whether the numbers are of no interest: nothing is done that would read them.
    """

    def __init__(self, descriptor: int, *, copy: bool = True, skim: bool = False) -> None:
        self.size = os.fstat(descriptor).st_size
        self.copy = copy and not skim
        self.skim = skim
        self._descriptor = descriptor
        self._map: np.ndarray | None = None

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly ``count`` bytes from ``offset``."""
        self._check(offset, count)
        data = os.pread(self._descriptor, count, offset)
        while len(data) < count:  # one call gives 2 GiB at most
            more = os.pread(self._descriptor, count - len(data), offset + len(data))
            if not more:
                raise Truncated("the file became shorter while it was read", offset=offset + len(data))
            data += more
        return data

    def pieces(self, offset: int, count: int) -> Iterator[memoryview]:
        """Yield ``count`` bytes from ``offset`` in pieces, each valid until the next."""
        self._check(offset, count)
        buffer = memoryview(bytearray(min(count, _PIECE)))
        for done in range(0, count, _PIECE):
            piece = buffer[: min(_PIECE, count - done)]
            pread_into(self._descriptor, offset + done, piece)
            yield piece

    def block(self, offset: int, count: int) -> np.ndarray:
        """Return ``count`` bytes from ``offset`` as a read-only ``uint8`` array."""
        self._check(offset, count)
        if not count:
            return np.empty(0, np.uint8)
        if not self.copy:
            if self._map is None:
                self._map = np.frombuffer(_MappedFile.of(self._descriptor, self.size), np.uint8)
            return self._map[offset : offset + count]
        block = aligned_empty(count)
        pread_into(self._descriptor, offset, memoryview(cast("Any", block)))
        block.flags.writeable = False
        return block

    def _check(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.size:
            raise Truncated(
                f"{count} bytes are needed here, but the file has {self.size} bytes in all",
                advice=_INCOMPLETE,
                offset=offset,
            )


class _MappedFile(mmap.mmap):
    """A read-only map that keeps its file open, for reading parts of it into memory."""

    descriptor: int = -1

    @classmethod
    def of(cls, descriptor: int, size: int) -> _MappedFile:
        """Map the first ``size`` bytes of an open file."""
        mapped = cls(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        mapped.descriptor = os.dup(descriptor)
        return mapped

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Place:
    """Where an array's numbers lie in a file.

    Attributes:
        offset: The byte at which element ``[0, ..., 0]`` starts.
    """

    def __init__(self, mapped: _MappedFile, offset: int) -> None:
        self.offset = offset
        # Holding the map keeps the descriptor open.
        self._mapped = mapped

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the file's bytes from ``offset`` (from the start of the file)."""
        pread_into(self._mapped.descriptor, offset, view)


def place_of(array: np.ndarray) -> Place | None:
    """Return where a mapped array's numbers lie in its file; None if it is in memory."""
    root: Any = array
    last = array
    while isinstance(root, np.ndarray | memoryview):
        last = root if isinstance(root, np.ndarray) else last
        root = root.base if isinstance(root, np.ndarray) else root.obj
    if not isinstance(root, _MappedFile):
        return None
    # The outermost array that views the map starts where the map does.
    return Place(root, array.ctypes.data - last.ctypes.data)


def owned(array: np.ndarray) -> np.ndarray:
    """Return an array's numbers in row-major order in aligned memory, read-only.

    A mapped array is read from its file rather than copied out of the map, so that the file's pages
    do not come to stay in this process. An array in aligned memory is returned as it is.
    """
    place = place_of(array)
    dense = array.flags.c_contiguous
    if place is None and dense and array.ctypes.data % ALIGNMENT == 0:
        return array
    block = aligned_empty(array.nbytes)
    result = np.ndarray(array.shape, array.dtype, cast("Any", block))
    if place is not None and dense:
        place.read_into(place.offset, memoryview(cast("Any", block)))
    else:
        np.copyto(result, array)
    result.flags.writeable = False
    return result


def pread_into(descriptor: int, offset: int, view: memoryview) -> None:
    """Fill ``view`` with the bytes of an open file from ``offset``."""
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if not count:
            raise Truncated("the file became shorter while it was read", offset=offset + done)
        done += count


def aligned_empty(nbytes: int) -> np.ndarray:
    """Return an uninitialised ``uint8`` array whose memory starts at a multiple of 64."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]
