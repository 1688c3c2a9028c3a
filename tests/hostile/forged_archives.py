"""Archives that show two readers two contents, or unfold to more than they say."""

import struct
import zlib
from collections.abc import Iterator

from tests.hostile.assembler import archive, call, op, program, tensor, zip_of
from tests.hostile.forgery import Forgery, one_file


_GOOD = program(op({"a": 1}))
_EVIL = program(call("os.system", "touch canary"))
_TENSOR = program(tensor())
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def forgeries() -> Iterator[Forgery]:
    """Every hostile archive."""
    for name, data in _archives().items():
        yield one_file("archives", name, data)
    # Its directory ends where its end record starts, so it is read; what the comment holds is not.
    plain, evil = archive(_TENSOR), archive(_EVIL)
    comment = plain[:-2] + struct.pack("<H", len(evil)) + evil
    yield one_file("archives", "second archive in a comment", comment, inert=True)


def _patched(data: bytes, signature: bytes, number: int, at: int, field: bytes) -> bytes:
    """Overwrite ``field`` at ``at`` in the header ``number`` with this signature."""
    start = -1
    for _ in range(number + 1):
        start = data.index(signature, start + 1)
    start += at
    return data[:start] + field + data[start + len(field) :]


def _archives() -> dict[str, bytes]:
    plain = archive(_TENSOR)
    end = plain.index(_END)
    directory = int.from_bytes(plain[end + 16 : end + 20], "little")
    u16, u32 = struct.Struct("<H").pack, struct.Struct("<I").pack
    bomb = zlib.compress(bytes(200 << 20), 9)[2:-4]
    return {
        "no data.pkl": zip_of([("m/version", b"3\n"), ("m/data/0", bytes(16))]),
        "no version": zip_of([("m/data.pkl", _EVIL)]),
        "empty archive": zip_of([]),
        "two data.pkl": zip_of([("m/data.pkl", _GOOD), ("m/data.pkl", _EVIL), ("m/version", b"3\n")]),
        "two folders": zip_of(
            [("a/data.pkl", _GOOD), ("a/version", b"3"), ("b/data.pkl", _EVIL), ("b/version", b"3")]
        ),
        "two storages": zip_of(
            [
                ("m/data.pkl", _TENSOR),
                ("m/data/0", bytes(16)),
                ("m/data/0", b"x" * 16),
                ("m/version", b"3"),
            ]
        ),
        "names that differ by case": zip_of(
            [("m/data.pkl", _GOOD), ("m/DATA.PKL", _EVIL), ("m/version", b"3\n")]
        ),
        "storage by another case": zip_of(
            [("m/data.pkl", _TENSOR), ("m/DATA/0", bytes(16)), ("m/version", b"3\n")]
        ),
        "names that fold alike": zip_of(
            [("m/data.pkl", _GOOD), ("m/stra\u00dfe", b"1"), ("m/STRASSE", b"2"), ("m/version", b"3")]
        ),
        "folder ..": zip_of([("../data.pkl", _EVIL), ("../version", b"3\n")]),
        "absolute names": zip_of([("/data.pkl", _EVIL), ("/version", b"3\n")]),
        "other local name": _patched(plain, _LOCAL, 0, 30, b"m/dato.pkl"),
        "other central name": _patched(plain, _CENTRAL, 0, 46, b"m/dato.pkl"),
        "other local name length": _patched(plain, _LOCAL, 0, 26, u16(9)),
        "local name length beyond the file": _patched(plain, _LOCAL, 0, 26, u16(0xFFFF)),
        "local extra beyond the file": _patched(plain, _LOCAL, 0, 28, u16(0xFFFF)),
        "other local method": _patched(plain, _LOCAL, 0, 8, u16(8)),
        "other central method": _patched(plain, _CENTRAL, 0, 10, u16(8)),
        "method 12": _patched(_patched(plain, _LOCAL, 0, 8, u16(12)), _CENTRAL, 0, 10, u16(12)),
        "method 99": _patched(_patched(plain, _LOCAL, 0, 8, u16(99)), _CENTRAL, 0, 10, u16(99)),
        "encrypted": _patched(_patched(plain, _LOCAL, 0, 6, u16(1)), _CENTRAL, 0, 8, u16(1)),
        "encrypted centrally": _patched(plain, _CENTRAL, 0, 8, u16(1)),
        "strong encryption": _patched(plain, _CENTRAL, 0, 8, u16(0x41)),
        "masked headers": _patched(plain, _CENTRAL, 0, 8, u16(0x2000)),
        "local header elsewhere": _patched(plain, _CENTRAL, 0, 42, u32(7)),
        "local header in the directory": _patched(plain, _CENTRAL, 0, 42, u32(directory)),
        "local header beyond the file": _patched(plain, _CENTRAL, 0, 42, u32(1 << 31)),
        "two entries, one header": _patched(plain, _CENTRAL, 1, 42, u32(0)),
        "larger than stored": _patched(plain, _CENTRAL, 2, 24, u32(1 << 20)),
        "both sizes larger": _patched(
            _patched(plain, _CENTRAL, 2, 24, u32(1 << 20)), _CENTRAL, 2, 20, u32(1 << 20)
        ),
        "overlap": _patched(_patched(plain, _CENTRAL, 0, 24, u32(200)), _CENTRAL, 0, 20, u32(200)),
        "ZIP64 without its field": _patched(plain, _CENTRAL, 0, 24, u32(0xFFFFFFFF)),
        "directory beyond the file": _patched(plain, _END, 0, 16, u32(1 << 31)),
        "directory too long": _patched(plain, _END, 0, 12, u32(1 << 20)),
        "directory too short": _patched(plain, _END, 0, 12, u32(50)),
        "more entries than there are": _patched(
            _patched(plain, _END, 0, 8, u16(9)), _END, 0, 10, u16(9)
        ),
        "fewer entries than there are": _patched(
            _patched(plain, _END, 0, 8, u16(1)), _END, 0, 10, u16(1)
        ),
        "another disk": _patched(plain, _END, 0, 4, u16(1)),
        "no directory": plain[:end],
        "half a directory": plain[: directory + 20] + plain[end:],
        "second archive in front": archive(_EVIL) + plain,
        "junk in front": b"x" * 1000 + plain,
        "PK and nothing": _LOCAL + bytes(100),
        "data.pkl that is a bomb": _deflated(bomb, 200 << 20),
        "data.pkl that lies about its size": _deflated(bomb, 100),
        "storage that is a bomb": _deflated_storage(bomb, 200 << 20),
        "storage that is a bomb and says 16": _deflated_storage(bomb, 16),
        "deflated garbage": _deflated(b"\xff" * 50, 100),
        "byteorder of another kind": archive(_TENSOR, {"byteorder": b"middle"}),
        "byteorder of a megabyte": archive(_TENSOR, {"byteorder": bytes(1 << 20)}),
        "version of text": archive(_TENSOR, {"version": b"three"}),
        "version 999999999999": archive(_TENSOR, {"version": b"9" * 5000}),
        "10,000 entries to one header": _quine(10_000),
    }


def _raw(records: list[tuple[bytes, bytes, int, int, int]]) -> bytes:
    """An archive of (name, stored bytes, method, declared size, checksum), unchecked."""
    body, table = b"", b""
    for name, stored, method, size, crc in records:
        common = (0, method, 0, 0, crc, len(stored), size, len(name), 0)
        table += (
            _CENTRAL
            + struct.pack(
                "<6H3I5H2I", 20, 20, *common[:4], *common[4:7], len(name), 0, 0, 0, 0, 0, len(body)
            )
            + name
        )
        body += _LOCAL + struct.pack("<5H3I2H", 20, *common) + name + stored
    end = struct.pack("<4H2IH", 0, 0, len(records), len(records), len(table), len(body), 0)
    return body + table + _END + end


def _deflated(stored: bytes, size: int) -> bytes:
    return _raw([(b"m/data.pkl", stored, 8, size, 0), (b"m/version", b"3\n", 0, 2, 0)])


def _deflated_storage(stored: bytes, size: int) -> bytes:
    numel = size // 4
    pickled = program(tensor(numel=numel, size=(numel,)))
    records = [(b"m/data.pkl", pickled, 0, len(pickled), zlib.crc32(pickled))]
    return _raw([*records, (b"m/version", b"3\n", 0, 2, 0), (b"m/data/0", stored, 8, size, 0)])


def _quine(count: int) -> bytes:
    """Many directory entries over one record of a megabyte: a bomb of overlaps."""
    data = zip_of([("m/data/0", bytes(1 << 20)), ("m/data.pkl", _GOOD), ("m/version", b"3\n")])
    end = data.index(_END)
    directory = int.from_bytes(data[end + 16 : end + 20], "little")
    entry = data[directory : data.index(_CENTRAL, directory + 1)]
    table = entry * count + data[directory + len(entry) : end]
    fixed = struct.pack("<4H2IH", 0, 0, count + 2, count + 2, len(table), directory, 0)
    return data[:directory] + table + _END + fixed
