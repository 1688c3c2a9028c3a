"""An array that lies in pieces, in one file or several.

A distributed checkpoint holds, of every tensor, the blocks that each process had. :class:`Chunked`
knows where each block belongs and opens it when some of it is wanted, so that a process that wants a
part reads only the blocks that overlap it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bridge.checkpoint._parts import aligned, read_part
from bridge.checkpoint.errors import BadFormat, Unsupported


_MAX_CELLS = 1 << 24


class Chunk:
    """One block of an array.

    Args:
        offsets: Where it starts, along each axis.
        sizes: How long it is.
        opens: Gives the block; called when it is first wanted.
    """

    def __init__(
        self, offsets: tuple[int, ...], sizes: tuple[int, ...], opens: Callable[[], np.ndarray]
    ) -> None:
        self.offsets = offsets
        self.sizes = sizes
        self._opens = opens
        self._array: np.ndarray | None = None

    def array(self) -> np.ndarray:
        """The block."""
        if self._array is None:
            self._array = self._opens()
        return self._array


class Chunked:
    """An array in pieces; ``np.asarray`` puts it together.

    Attributes:
        shape: The whole array's.
        dtype: Its dtype.
        chunks: Its pieces, which tile it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, chunks: Sequence[Chunk]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.chunks = tuple(chunks)
        _check_tiling(shape, self.chunks)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes its elements take."""
        return self.size * self.dtype.itemsize

    def whole(self) -> np.ndarray | None:
        """The array where one piece is all of it, as it lies in its file; else None."""
        if len(self.chunks) == 1 and self.chunks[0].sizes == self.shape:
            return self.chunks[0].array()
        return None

    def part(self, index: tuple[slice, ...] = ()) -> np.ndarray:
        """A part in memory of its own (``read_part``)."""
        index = index or (slice(None),) * self.ndim
        ranges = [range(n)[along] for n, along in zip(self.shape, index, strict=True)]
        result = aligned([len(along) for along in ranges], self.dtype)
        for chunk in self.chunks:
            source, target = [], []
            for along, offset, size in zip(ranges, chunk.offsets, chunk.sizes, strict=True):
                low, high = max(along.start, offset), min(along.stop, offset + size)
                source.append(slice(low - offset, high - offset))
                target.append(slice(low - along.start, high - along.start))
            if all(along.start < along.stop for along in source):
                piece = read_part(chunk.array(), tuple(source))
                if piece.shape == result.shape:
                    return piece
                result[tuple(target)] = piece
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in pieces is put together in new memory")
        result = self.part()
        return result if dtype is None else result.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"Chunked(shape={self.shape}, dtype={self.dtype}, {len(self.chunks)} pieces)"


def part_of(array: np.ndarray | Chunked, index: tuple[slice, ...] = ()) -> np.ndarray:
    """Return a part of an array, in pieces or not, in memory of its own."""
    return array.part(index) if isinstance(array, Chunked) else read_part(array, index)


def _check_tiling(shape: tuple[int, ...], chunks: tuple[Chunk, ...]) -> None:
    """Check that the pieces cover the array and that no two overlap."""
    for chunk in chunks:
        if not len(chunk.offsets) == len(chunk.sizes) == len(shape) or any(
            offset + size > n for offset, size, n in zip(chunk.offsets, chunk.sizes, shape, strict=True)
        ):
            raise BadFormat(
                f"a piece of size {chunk.sizes} at {chunk.offsets} lies outside of the shape {shape}"
            )
    if 0 in shape:
        return
    held = [chunk for chunk in chunks if 0 not in chunk.sizes]
    covered = sum(math.prod(chunk.sizes) for chunk in held)
    if covered == math.prod(shape) and len(held) == 1:
        return
    # Every edge of a piece is a line through the array; between the lines are cells, which belong to
    # one piece each.
    lines = [
        np.unique([edge for c in held for edge in (c.offsets[i], c.offsets[i] + c.sizes[i])])
        for i in range(len(shape))
    ]
    if math.prod(max(len(along) - 1, 1) for along in lines) > _MAX_CELLS:
        raise Unsupported(f"an array of shape {shape} lies in {len(held)} pieces without any order")
    cells = np.zeros([max(len(along) - 1, 1) for along in lines], np.bool_)
    for chunk in held:
        window = tuple(
            slice(*np.searchsorted(along, (offset, offset + size)))
            for along, offset, size in zip(lines, chunk.offsets, chunk.sizes, strict=True)
        )
        if cells[window].any():
            raise BadFormat(f"two pieces of an array of shape {shape} overlap at {chunk.offsets}")
        cells[window] = True
    if covered != math.prod(shape):
        raise BadFormat(f"the pieces of an array of shape {shape} have {covered} of its elements")
