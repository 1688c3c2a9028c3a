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
from typing import BinaryIO

import numpy as np

from bridge.checkpoint._arrays import pieces
from bridge.checkpoint._digests import RECORD, Sha256, digest, to_text
from bridge.checkpoint._memory import ALIGNMENT


_FULL32 = 0xFFFFFFFF
_UTF8 = 0x0800
_DESCRIPTOR = 0x0008

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_PADDING = struct.Struct("<2sH")

#: Up to this size a record is put together in memory and written at once.
_SMALL = 64 << 10

#: Where the digests of the storages are, by their keys. PyTorch does not look at records that it


class ZipWriter:
    """Write records to ``file``, which starts empty.

    Args:
        file: Where to write.
        folder: The name of the one top-level folder.
        wide: From which size or offset the 64-bit fields are used.
    """

    def __init__(self, file: BinaryIO, folder: str, *, wide: int = _FULL32) -> None:
        self._file = file
        self._prefix = f"{folder}/".encode()
        self._wide = wide
        self._at = 0
        self._directory: list[bytes] = []
        self._records = hashlib.sha256()

    def add(self, name: str, data: bytes | np.ndarray, sha256: Sha256 | None = None) -> None:
        """Append a record.

        Args:
            name: Its name in the folder.
            data: Its content; an array is written in row-major order.
            sha256: A hash that is to see the content, too.
        """
        short_name = name.encode()
        full_name = self._prefix + short_name
        at = self._at
        size = len(data) if isinstance(data, bytes) else data.nbytes
        head = self._local_header(full_name, at, size)
        if size <= _SMALL:
            content = data if isinstance(data, bytes) else data.tobytes()
            crc = zlib.crc32(content)
            if sha256 is not None:
                sha256.update(content)
            self._write(b"".join((head, content, self._descriptor(at, size, crc))))
        else:
            self._write(head)
            crc = 0
            for piece in [data] if isinstance(data, bytes) else pieces(data):
                crc = zlib.crc32(piece, crc)
                if sha256 is not None:
                    sha256.update(piece)
                self._write(piece)
            self._write(self._descriptor(at, size, crc))
        self._directory.append(self._central_header(full_name, at, size, crc))
        self._records.update(b"%s\0%d\0" % (short_name, crc))

    def close(self) -> None:
        """Write the directory and the end records."""
        start = self._at
        for header in self._directory:
            self._write(header)
        end = self._at
        count = len(self._directory)
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
        return b"%040d" % (int.from_bytes(self._records.digest(), "big") % 10**40)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._at += len(data)

    def _is_wide(self, size: int, header: int) -> bool:
        return size >= self._wide or header >= self._wide

    def _local_header(self, name: bytes, at: int, size: int) -> bytes:
        wide = b""
        if self._is_wide(size, at):
            # PyTorch leaves the compressed size to the descriptor here too.
            fields = [size, 0] if size >= self._wide else []
            fields += [at] if at >= self._wide else []
            wide = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields)
        padding = -(at + _LOCAL.size + len(name) + len(wide) + _PADDING.size) % ALIGNMENT
        flags = _UTF8 | (_DESCRIPTOR if size else 0)
        extra = len(wide) + _PADDING.size + padding
        fixed = _LOCAL.pack(b"PK\x03\x04", 0, flags, 0, 0, 0, 0, 0, 0, len(name), extra)
        return b"".join((fixed, name, wide, _PADDING.pack(b"FB", padding), b"Z" * padding))

    def _descriptor(self, at: int, size: int, crc: int) -> bytes:
        if not size:
            return b""
        layout = "<4sIQQ" if self._is_wide(size, at) else "<4sIII"
        return struct.pack(layout, b"PK\x07\x08", crc, size, size)

    def _central_header(self, name: bytes, at: int, size: int, crc: int) -> bytes:
        fields = []
        flags = _UTF8 | (_DESCRIPTOR if size else 0)
        if size >= self._wide:
            fields += [size, size]
            size = _FULL32
        if at >= self._wide:
            fields.append(at)
            at = _FULL32
        extra = struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""
        start = (b"PK\x01\x02", 0, 0, flags, 0, 0, 0, crc, size, size)
        return _CENTRAL.pack(*start, len(name), len(extra), 0, 0, 0, 0, at) + name + extra


def write_torch_zip(
    file: BinaryIO, name: str, pickle: bytes, storages: list[np.ndarray], *, digests: bool = False
) -> None:
    """Write a checkpoint.

    Args:
        file: Where to write; starts empty.
        name: The file's final name, from which the top-level folder is called.
        pickle: The content of ``data.pkl``.
        storages: The storages 0, 1, ... in row-major order.
        digests: Add a record with the SHA-256 of every storage.
    """
    archive = ZipWriter(file, folder_name(name))
    archive.add("data.pkl", pickle)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", b"%d" % ALIGNMENT)
    archive.add("byteorder", sys.byteorder.encode())
    hashes: dict[str, str] = {}
    for index, storage in enumerate(storages):
        sha256 = hashlib.sha256() if digests and sys.byteorder == "little" else None
        archive.add(f"data/{index}", storage, sha256)
        if digests:
            hashes[str(index)] = digest(storage) if sha256 is None else sha256.hexdigest()
    archive.add("version", b"3\n")
    if digests:
        archive.add(RECORD, to_text(hashes).encode())
    archive.add(".data/serialization_id", archive.serialization_id())
    archive.close()


def folder_name(name: str) -> str:
    """Return what ``torch.save`` calls the top-level folder of a file of this name."""
    stem = name.rpartition(".")[0] if "." in name[1:] else name
    return stem if stem and stem.isascii() else "archive"
