"""Whether a file's bytes are the ones that were written.

Two kinds of evidence may be in a file. A zip archive has a CRC-32 of each record, unless its writer
left that out; it tells accidents. A file that was saved with digests has the SHA-256 of each tensor
(of each storage, in a ``.pt`` file); it tells any change by somebody who does not change the digests
too. The legacy stream, tar archives and plain safetensors files have neither.

The bytes are read as they lie in the file; no array is made.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field

from bridge.checkpoint._digests import RECORD, TEXT, are_digests, from_text
from bridge.checkpoint._safetensors import looks_like_safetensors, read_entries
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._torch_zip import by_short_name
from bridge.checkpoint._zip import LOCAL, Record, read_directory, read_record
from bridge.checkpoint.errors import BadFormat, CheckpointError, Damaged


@dataclass
class Evidence:
    """What the checksums and digests of a file say.

    Attributes:
        agree: Record or tensor to the means by which it was checked: "crc32" or "sha256".
        disagree: Record or tensor to the means that tells that it was changed.
        unchecked: Records and tensors without a checksum or digest.
    """

    agree: dict[str, str] = field(default_factory=dict)
    disagree: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)

    def note(self, name: str, means: str, expected: object, found: object) -> None:
        """Add one comparison; a digest outweighs the checksum of the same bytes."""
        if expected == found and name not in self.disagree:
            self.agree[name] = means
        elif expected != found:
            self.agree.pop(name, None)
            self.disagree[name] = means


def evidence(file: FileBytes) -> Evidence:
    """Return what an open file's checksums and digests say of its bytes.

    Raises:
        CheckpointError: If the structure that holds them is damaged.
    """
    if file.size >= len(LOCAL) and file.read(0, len(LOCAL)) == LOCAL:
        return _zip_evidence(file)
    if looks_like_safetensors(file):
        return _safetensors_evidence(file)
    return Evidence(unchecked=["the whole file"])


def require(found: Evidence) -> None:
    """Raise :class:`Damaged` for the first record or tensor that was changed."""
    for name, means in found.disagree.items():
        raise Damaged(
            f"the bytes are not those that were written: their {means} is another",
            advice="Fetch or write the file again",
            entry=name,
        )


def _zip_evidence(file: FileBytes) -> Evidence:
    result = Evidence()
    records = by_short_name(read_directory(file))
    for record in records.values():
        if record.crc or not record.size:
            result.note(record.name, "crc32", record.crc, _crc(file, record))
        else:
            result.unchecked.append(record.name)
    for key, expected in _recorded(file, records).items():
        record = records.get(f"data/{key}")
        if record is None or record.deflated:
            raise BadFormat(f"there is a digest of storage {key!r}, but no such storage")
        result.note(record.name, "sha256", expected, _sha256(file, record.start, record.size))
    return result


def _recorded(file: FileBytes, records: dict[str, Record]) -> dict[str, str]:
    if RECORD not in records:
        return {}
    try:
        return from_text(read_record(file, records[RECORD]).decode("utf-8", "replace"))
    except CheckpointError as error:
        raise error.locate(record=records[RECORD].name) from error.__cause__


def _safetensors_evidence(file: FileBytes) -> Evidence:
    result = Evidence()
    entries, metadata = read_entries(file)
    text = metadata.get(TEXT, "")
    recorded = from_text(text) if are_digests(text) else {}
    if unknown := recorded.keys() - {entry.name for entry in entries}:
        raise BadFormat(f"there is a digest of {min(unknown)!r}, but no such tensor")
    for entry in entries:
        if entry.name in recorded:
            found = _sha256(file, entry.start, entry.nbytes)
            result.note(entry.name, "sha256", recorded[entry.name], found)
        else:
            result.unchecked.append(entry.name)
    return result


def _crc(file: FileBytes, record: Record) -> int:
    if record.deflated:
        return zlib.crc32(read_record(file, record))
    crc = 0
    for piece in file.pieces(record.start, record.size):
        crc = zlib.crc32(piece, crc)
    return crc


def _sha256(file: FileBytes, start: int, count: int) -> str:
    digest = hashlib.sha256()
    for piece in file.pieces(start, count):
        digest.update(piece)
    return digest.hexdigest()
