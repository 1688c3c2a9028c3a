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
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from bridge.checkpoint._memory import aligned_empty
from bridge.checkpoint.errors import Truncated


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
        path: Where it is, if it has a path.
        copy: Whether blocks are owned memory rather than mapped.
        skim: Whether the numbers are of no interest: nothing is done that would read them.

    Attributes:
        size: How many bytes there are.
        copy: As given; a file that is only skimmed is never copied.
        skim: As given.
    """

    def __init__(
        self, descriptor: int, path: str = "", *, copy: bool = True, skim: bool = False
    ) -> None:
        self.size = os.fstat(descriptor).st_size
        self.copy = copy and not skim
        self.skim = skim
        self._descriptor = descriptor
        self._path = os.path.abspath(path) if path else ""
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
                self._map.append(np.frombuffer(MappedFile.of(self._descriptor, self._path), np.uint8))
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
    """A read-only map that knows its file, for reading parts of it into memory.

    A checkpoint may consist of a thousand files, a process may often have as many open, and a map
    keeps one descriptor itself. So none is kept beside it: to be read, the file is opened again at its
    path. If another file stands there by now, the bytes are copied out of the map, which has the old.
    """

    _path = ""
    _identity = (-1, -1)

    @classmethod
    def of(cls, descriptor: int, path: str = "") -> MappedFile:
        """Map an open file.

        Args:
            descriptor: The file. It is not closed here, nor needed afterwards.
            path: Its absolute path, if it has one.
        """
        try:
            mapped = cls(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ, **_UNTRACKED)
        except ValueError:  # An empty file has no map.
            raise _shortened(0) from None
        mapped._path = path
        mapped._identity = _identity(descriptor)
        return mapped

    @contextmanager
    def opened(self) -> Iterator[ReadsAt]:
        """Open the file for several reads."""
        descriptor = self._open()
        if descriptor is None:
            yield _OutOfMap(self)
            return
        try:
            yield _OutOfFile(descriptor)
        finally:
            os.close(descriptor)

    def pread(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the file's bytes from ``offset``."""
        with self.opened() as file:
            file.pread(offset, view)

    def _open(self) -> int | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        if _identity(descriptor) == self._identity:
            return descriptor
        os.close(descriptor)
        return None


#: From 3.13 on, Python can do without a descriptor for each map.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def _identity(descriptor: int) -> tuple[int, int]:
    """What tells a file from any other; a map keeps its file, and so its number, from being reused."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


class ReadsAt(Protocol):
    """A file that is read at offsets."""

    def pread(self, offset: int, view: memoryview, /) -> object:
        """Fill ``view`` with the bytes from ``offset``."""
        ...


class _OutOfFile(NamedTuple):
    descriptor: int

    def pread(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the bytes from ``offset``."""
        pread_into(self.descriptor, offset, view)


class _OutOfMap(NamedTuple):
    mapped: MappedFile

    def pread(self, offset: int, view: memoryview) -> None:
        """Fill ``view`` with the bytes from ``offset``."""
        view[:] = memoryview(self.mapped)[offset : offset + len(view)]


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
