"""The directory of a zip archive, read with suspicion.

A zip archive says everything twice: once in the central directory at its end, once in a header in
front of each record. Readers that trust different copies see different files, and that is how
malicious archives hide. This parser takes the central directory and demands that the local headers
agree, that no record overlaps another or the directory, and that no name occurs twice, even in
another letter case. It reads ZIP64, data descriptors (by ignoring them: the directory has the
sizes) and padding fields, which is all that PyTorch writes.
"""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from typing import NamedTuple

from bridge.checkpoint._source import FileBytes
from bridge.checkpoint.errors import BadFormat, Truncated, Unsafe, Unsupported


LOCAL = b"PK\x03\x04"
_CENTRAL = b"PK\x01\x02"
_END = b"PK\x05\x06"
_END64 = b"PK\x06\x06"
_LOCATOR64 = b"PK\x06\x07"

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_CENTRAL_HEADER = struct.Struct("<4s6H3I5H2I")
_END_RECORD = struct.Struct("<4s4H2IH")
_END64_RECORD = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_RECORD = struct.Struct("<4sIQI")

_FULL32 = 0xFFFFFFFF
_STORED = 0
_DEFLATED = 8
MAX_INFLATED = 64 << 20
_MAX_COMMENT = 0xFFFF


class Record(NamedTuple):
    """One record of an archive.

    Attributes:
        name: Its full name.
        header: Where its local header starts.
        start: Where its bytes start.
        stored: How many bytes it takes up in the file.
        size: How many bytes it has.
        deflated: Whether it is compressed.
        crc: The CRC-32 of its bytes, or 0 where the writer left that out.
    """

    name: str
    header: int
    start: int
    stored: int
    size: int
    deflated: bool
    crc: int


def read_directory(file: FileBytes, spare: int = MAX_INFLATED) -> list[Record]:
    """Return the records of the archive, in the directory's order.

    Args:
        file: The archive.
        spare: How many bytes more than the archive has its compressed records may have together.
    """
    start, size, count = _find_directory(file)
    records = [_with_start(file, entry, start) for entry in _entries(file, start, size, count)]
    _check_names(records)
    _check_overlaps(records)
    _check_inflated(records, file.size + spare)
    return records


def read_record(file: FileBytes, record: Record) -> bytes:
    """Return a small record's bytes, inflated if need be."""
    data = file.read(record.start, record.stored)
    if not record.deflated:
        return data
    if record.size > MAX_INFLATED:
        raise Unsafe(
            f"a compressed record claims {record.size} bytes; {MAX_INFLATED} is the limit",
            record=record.name,
        )
    try:
        # One byte more than declared, to notice a record that is longer than it says.
        inflated = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, record.size + 1)
    except zlib.error as error:
        raise BadFormat(f"compressed data is damaged ({error})", record=record.name) from error
    if len(inflated) != record.size:
        raise BadFormat(
            f"the record declares {record.size} bytes, but does not inflate to as many",
            record=record.name,
        )
    return inflated


def _find_directory(file: FileBytes) -> tuple[int, int, int]:
    """Return where the central directory starts, its size and its number of entries."""
    tail_start = max(0, file.size - _MAX_COMMENT - _END_RECORD.size)
    tail = file.read(tail_start, file.size - tail_start)
    at = len(tail) - _END_RECORD.size
    while at >= 0 and (at := tail.rfind(_END, 0, at + len(_END))) >= 0:
        found = _end_record(file, tail_start + at, tail[at : at + _END_RECORD.size])
        if found is not None:
            return found
        at -= 1
    raise Truncated(
        "the zip archive has no directory at its end",
        advice="The download or copy is probably incomplete: fetch the file again",
        offset=file.size,
    )


def _end_record(file: FileBytes, at: int, data: bytes) -> tuple[int, int, int] | None:
    _, disk, first_disk, _, count, size, start, _ = _END_RECORD.unpack(data)
    end = at
    locator_at = at - _LOCATOR_RECORD.size
    if locator_at >= 0:
        locator = file.read(locator_at, _LOCATOR_RECORD.size)
        if locator.startswith(_LOCATOR64):
            end = _LOCATOR_RECORD.unpack(locator)[2]
            if end + _END64_RECORD.size > locator_at:
                return None
            record = _END64_RECORD.unpack(file.read(end, _END64_RECORD.size))
            if record[0] != _END64:
                return None
            # The locator must sit just behind the record it locates.
            if end + 12 + record[1] != locator_at:
                return None
            disk, first_disk, _, count, size, start = record[4:]
    if disk or first_disk:
        return None
    # The directory must end where the end record starts: an impostor inside a comment does not.
    return (start, size, count) if start + size == end else None


def _entries(file: FileBytes, start: int, size: int, count: int) -> list[Record]:
    if count * _CENTRAL_HEADER.size > size:
        raise BadFormat(f"a directory of {size} bytes cannot hold {count} entries", offset=start)
    data = file.read(start, size)
    entries = []
    at = 0
    for _ in range(count):
        if at + _CENTRAL_HEADER.size > size or not data.startswith(_CENTRAL, at):
            raise BadFormat("the zip directory is damaged", offset=start + at)
        fields = _CENTRAL_HEADER.unpack_from(data, at)
        name_end = at + _CENTRAL_HEADER.size + fields[10]
        extra_end = name_end + fields[11]
        end = extra_end + fields[12]
        if end > size:
            raise BadFormat("the zip directory is damaged", offset=start + at)
        raw_name = data[name_end - fields[10] : name_end]
        entries.append(_entry(fields, raw_name, data[name_end:extra_end], start + at))
        at = end
    if at != size:
        raise BadFormat("the zip directory has entries beyond those it counts", offset=start + at)
    return entries


def _entry(fields: tuple[int, ...], raw_name: bytes, extra: bytes, offset: int) -> Record:
    flags, method = fields[3], fields[4]
    stored, size, header = fields[8], fields[9], fields[16]
    try:
        name = raw_name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadFormat("a record's name is not UTF-8", offset=offset) from error
    if flags & 0x2041:
        raise Unsupported("an encrypted zip archive", record=name, offset=offset)
    if method not in (_STORED, _DEFLATED):
        raise Unsupported(f"zip compression method {method}", record=name, offset=offset)
    if _FULL32 in (size, stored, header):
        wide = _zip64_field(extra, name, offset)
        # The field holds, in this order, only the numbers that did not fit.
        size, stored, header = (
            _next_wide(wide, name, offset) if value == _FULL32 else value
            for value in (size, stored, header)
        )
    if method == _STORED and size != stored:
        raise BadFormat(
            f"an uncompressed record has {stored} bytes but declares {size}",
            record=name,
            offset=offset,
        )
    return Record(name, header, 0, stored, size, method == _DEFLATED, fields[7])


def _zip64_field(extra: bytes, name: str, offset: int) -> list[int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1 and at + 4 + length <= len(extra):
            count = length // 8
            return list(struct.unpack_from(f"<{count}Q", extra, at + 4))
        at += 4 + length
    raise BadFormat("a record beyond 4 GiB lacks its ZIP64 field", record=name, offset=offset)


def _next_wide(values: list[int], name: str, offset: int) -> int:
    if not values:
        raise BadFormat("a record's ZIP64 field is too short", record=name, offset=offset)
    return values.pop(0)


def _with_start(file: FileBytes, entry: Record, directory: int) -> Record:
    """Return the entry with the place of its bytes, after checking its local header."""
    name = entry.name.encode()
    if entry.header + _LOCAL_HEADER.size + len(name) > directory:
        raise BadFormat("a record lies outside the archive", record=entry.name)
    data = file.read(entry.header, _LOCAL_HEADER.size + len(name))
    fields = _LOCAL_HEADER.unpack_from(data)
    local_name = data[_LOCAL_HEADER.size :]
    if fields[0] != LOCAL or fields[9] != len(name) or local_name != name:
        raise BadFormat(
            "the record's own header does not carry the name that the directory gives it",
            record=entry.name,
            offset=entry.header,
        )
    if (fields[3] == _DEFLATED) != entry.deflated:
        raise BadFormat(
            "the record's own header and the directory disagree about compression",
            record=entry.name,
            offset=entry.header,
        )
    start = entry.header + _LOCAL_HEADER.size + len(name) + fields[10]
    if start + entry.stored > directory:
        raise BadFormat(
            f"the record's {entry.stored} bytes reach into the archive's directory",
            record=entry.name,
            offset=start,
        )
    return entry._replace(start=start)


def _check_names(records: list[Record]) -> None:
    seen: dict[str, str] = {}
    for record in records:
        folded = record.name.casefold()
        if folded in seen:
            raise BadFormat(f"the archive has both {seen[folded]!r} and {record.name!r}")
        seen[folded] = record.name


def _check_overlaps(records: list[Record]) -> None:
    ordered = sorted(records, key=lambda record: record.header)
    for before, after in pairwise(ordered):
        if before.start + before.stored > after.header:
            raise BadFormat(f"records {before.name!r} and {after.name!r} overlap", offset=after.header)


def _check_inflated(records: list[Record], limit: int) -> None:
    # Records are read one by one, but what they hold may be kept. One that is over the limit by itself
    # is refused when it is read.
    total = sum(record.size for record in records if record.deflated and record.size <= MAX_INFLATED)
    if total > limit:
        raise Unsafe(f"the compressed records claim {total} bytes together; {limit} is the limit")
