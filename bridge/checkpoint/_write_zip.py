"""A zip archive laid out the way PyTorch 2.13 lays it out.

The records, their order, the padding that makes every record start at a multiple of 64, the data
descriptors and the ZIP64 end records are those of ``torch.save``; PyTorch can map such a file into
memory, and so can JAX use it without a copy. Nothing depends on the time, so equal objects give
equal files. Only the "serialization id" differs from PyTorch's: it is a checksum that PyTorch
computes with a hash of the C++ library, and that no reader looks at.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from bridge.checkpoint._arrays import array_bytes, chunks
from bridge.checkpoint._source import ALIGNMENT


_FULL32 = 0xFFFFFFFF
_UTF8 = 0x0800
_DESCRIPTOR = 0x0008


@dataclass(frozen=True)
class _Entry:
    name: bytes
    header: int
    size: int
    crc: int


class ZipWriter:
    """Write records to ``file``, which starts empty.

    Args:
        file: Where to write.
        folder: The name of the one top-level folder.
        wide: From which size or offset the 64-bit fields are used.
    """

    def __init__(self, file: BinaryIO, folder: str, *, wide: int = _FULL32) -> None:
        self._file = file
        self._folder = folder
        self._wide = wide
        self._at = 0
        self._entries: list[_Entry] = []

    def add(self, name: str, data: bytes | np.ndarray) -> None:
        """Append a record; an array is written in row-major order."""
        flat = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else array_bytes(data)
        full_name = f"{self._folder}/{name}".encode()
        header = self._at
        size = flat.nbytes
        self._write(self._local_header(full_name, header, size))
        crc = 0
        for chunk in chunks(flat):
            crc = zlib.crc32(chunk, crc)
            self._write(chunk)
        if size:
            layout = "<4sIQQ" if self._is_wide(size, header) else "<4sIII"
            self._write(struct.pack(layout, b"PK\x07\x08", crc, size, size))
        self._entries.append(_Entry(full_name, header, size, crc))

    def close(self) -> None:
        """Write the directory and the end records."""
        start = self._at
        for entry in self._entries:
            self._write(self._central_header(entry))
        end = self._at
        count = len(self._entries)
        size = end - start
        self._write(
            struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 0x031E, 45, 0, 0, count, count, size, start)
        )
        self._write(struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1))
        short = min(count, 0xFFFF)
        places = (min(size, _FULL32), min(start, _FULL32))
        self._write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, short, short, *places, 0))

    def serialization_id(self) -> bytes:
        """Return forty digits that depend on the records so far."""
        digest = hashlib.sha256()
        for entry in self._entries:
            digest.update(b"%s\0%d\0" % (entry.name.partition(b"/")[2], entry.crc))
        return b"%040d" % (int.from_bytes(digest.digest(), "big") % 10**40)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._at += len(data)

    def _is_wide(self, size: int, header: int) -> bool:
        return size >= self._wide or header >= self._wide

    def _local_header(self, name: bytes, header: int, size: int) -> bytes:
        wide = b""
        if self._is_wide(size, header):
            # PyTorch leaves the compressed size to the descriptor here too.
            fields = [size, 0] if size >= self._wide else []
            fields += [header] if header >= self._wide else []
            wide = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields)
        fixed = 30 + len(name) + len(wide) + 4
        padding = -(header + fixed) % ALIGNMENT
        flags = _UTF8 | (_DESCRIPTOR if size else 0)
        extra = len(wide) + 4 + padding
        return (
            struct.pack("<4s5H3I2H", b"PK\x03\x04", 0, flags, 0, 0, 0, 0, 0, 0, len(name), extra)
            + name
            + wide
            + struct.pack("<2sH", b"FB", padding)
            + b"Z" * padding
        )

    def _central_header(self, entry: _Entry) -> bytes:
        fields = []
        size, header = entry.size, entry.header
        if size >= self._wide:
            fields += [size, size]
            size = _FULL32
        if header >= self._wide:
            fields.append(header)
            header = _FULL32
        extra = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        flags = _UTF8 | (_DESCRIPTOR if entry.size else 0)
        name_and_extra = (len(entry.name), len(extra))
        return (
            struct.pack(
                "<4s6H3I5H2I",
                b"PK\x01\x02",
                *(0, 0, flags, 0, 0, 0),
                *(entry.crc, size, size),
                *(*name_and_extra, 0, 0, 0),
                *(0, header),
            )
            + entry.name
            + extra
        )


def write_torch_zip(file: BinaryIO, name: str, pickle: bytes, storages: list[np.ndarray]) -> None:
    """Write a checkpoint.

    Args:
        file: Where to write; starts empty.
        name: The file's final name, from which the top-level folder is called.
        pickle: The content of ``data.pkl``.
        storages: The storages 0, 1, ... in row-major order.
    """
    archive = ZipWriter(file, folder_name(name))
    archive.add("data.pkl", pickle)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", b"%d" % ALIGNMENT)
    archive.add("byteorder", sys.byteorder.encode())
    for index, storage in enumerate(storages):
        archive.add(f"data/{index}", storage)
    archive.add("version", b"3\n")
    archive.add(".data/serialization_id", archive.serialization_id())
    archive.close()


def folder_name(name: str) -> str:
    """Return what ``torch.save`` calls the top-level folder of a file of this name."""
    stem = name.rpartition(".")[0] if "." in name[1:] else name
    return stem if stem and stem.isascii() else "archive"
