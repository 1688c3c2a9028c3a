"""Damage, done by a seeded hand.

A mutation takes the bytes of a good file and returns bytes that are wrong in some way. Blind ones
(flipped bits, cut ends, moved blocks) find what a reader forgets to check of a format's outside.
Informed ones take the format apart, change one thing where it hurts, a length, a record's name, an
opcode, an offset in a table, and put it together again with checksums that hold, so that the damage
reaches the code deep inside.

Everything here is a pure function of the bytes and a ``random.Random``.
"""

import io
import itertools
import json
import pickletools
import struct
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any


Mutation = Callable[[bytes, Random], bytes]

#: Numbers at the edges of the widths that file formats use.
EDGES = [0, 1, 2, 7, 63, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000]
EDGES += [0xFFFFFFFE, 0xFFFFFFFF, 1 << 32, 1 << 40, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63]
EDGES += [(1 << 64) - 1]


def _place(data: bytes, rng: Random) -> int:
    """A place, more often than not near one of the ends, where formats keep their tables."""
    size = max(len(data), 1)
    kind = rng.random()
    if kind < 0.25:
        return rng.randrange(min(size, 256))
    if kind < 0.5:
        return size - 1 - rng.randrange(min(size, 256))
    return rng.randrange(size)


def flip_bit(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    if out:
        out[_place(data, rng)] ^= 1 << rng.randrange(8)
    return bytes(out)


def set_byte(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    if out:
        out[_place(data, rng)] = rng.choice([0, 1, 0x28, 0x2E, 0x52, 0x62, 0x7F, 0x80, 0xFF])
    return bytes(out)


def set_number(data: bytes, rng: Random) -> bytes:
    """Write a number from the edges over 2, 4 or 8 bytes."""
    width = rng.choice([2, 4, 8])
    at = _place(data, rng)
    number = rng.choice(EDGES) % (1 << 8 * width)
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def nudge_number(data: bytes, rng: Random) -> bytes:
    """Add a little to a number of 2, 4 or 8 bytes."""
    width = rng.choice([2, 4, 8])
    at = min(_place(data, rng), max(len(data) - width, 0))
    number = int.from_bytes(data[at : at + width], "little") + rng.choice([-16, -8, -1, 1, 8, 16])
    return data[:at] + (number % (1 << 8 * width)).to_bytes(width, "little") + data[at + width :]


def truncate(data: bytes, rng: Random) -> bytes:
    return data[: _place(data, rng)]


def cut(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.randrange(1, 64) :]


def insert(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.randrange(1, 64)) + data[at:]


def extend(data: bytes, rng: Random) -> bytes:
    return data + rng.choice([b"\0", b" ", rng.randbytes(1)]) * rng.randrange(1, 100)


def copy_block(data: bytes, rng: Random) -> bytes:
    """Write one block over another."""
    size = rng.randrange(1, 64)
    source, at = _place(data, rng), _place(data, rng)
    return data[:at] + data[source : source + size] + data[at + size :]


def swap_blocks(data: bytes, rng: Random) -> bytes:
    size = rng.choice([1, 2, 4, 8, 30, 46])
    first, second = sorted((_place(data, rng), _place(data, rng)))
    if first + size > second:
        return flip_bit(data, rng)
    one, other = data[first : first + size], data[second : second + size]
    return data[:first] + other + data[first + size : second] + one + data[second + size :]


BLIND: list[Mutation] = [flip_bit, set_byte, set_number, nudge_number, truncate, cut]
BLIND += [insert, extend, copy_block, swap_blocks]


# ---------------------------------------------------------------------------------- pickles

_GLOBALS = [
    *("collections OrderedDict", "torch FloatStorage", "torch LongStorage", "torch Tensor"),
    *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "torch float32"),
    *("builtins set", "builtins bytearray", "torch Size", "torch device", "_codecs encode"),
    *("argparse Namespace", "model Net", "datetime datetime", "torch.storage UntypedStorage"),
    *("torch._tensor _rebuild_from_type_v2", "torch.nn.parameter Parameter", "collections Counter"),
    *("torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_qtensor", "builtins complex"),
    *("torch._utils _rebuild_sparse_tensor", "numpy dtype", "numpy._core.multiarray _reconstruct"),
]
_ATOMS = [b"N", b"\x88", b"\x89", b"K\x00", b"K\x07", b"J\xff\xff\xff\xff", b")", b"]", b"}"]
_ATOMS += [b"M\xff\xff", b"G\x7f\xf0\0\0\0\0\0\0", b"X\x01\0\0\0a", b"\x8a\x08" + bytes(7) + b"\x40"]
_ACTIONS = [b"R", b"b", b"s", b"u", b"a", b"e", b"t", b"\x85", b"\x86", b"\x87", b"(", b"0", b"2"]
_ACTIONS += [b"Q", b"\x81", b"h\x00", b"h\x05", b"q\x00", b"j\xff\xff\xff\x7f", b"1", b"d", b"l"]


def _split_pickle(data: bytes) -> tuple[list[bytes], bytes]:
    """The pickle's operations, each with its argument, and what follows STOP."""
    places: list[int] = []
    end = 0
    try:
        for op, _, at in pickletools.genops(data):
            places.append(at or 0)
            end = (at or 0) + 1 if op.name == "STOP" else end
    except (ValueError, IndexError, OverflowError, EOFError, struct.error, DeprecationWarning):
        # The last is what a text opcode with a backslash gives where warnings are errors.
        end = end or len(data)
    places.append(end)
    return [data[a:b] for a, b in itertools.pairwise(places)], data[end:]


def edit_pickle(data: bytes, rng: Random) -> bytes:
    """Change one to three operations of a pickle."""
    ops, rest = _split_pickle(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        if len(ops) < 3:
            break
        _edit_operation(ops, rng.randrange(1, len(ops) - 1), rng)
    return b"".join(ops) + rest


def _edit_operation(ops: list[bytes], at: int, rng: Random) -> None:
    kind = rng.randrange(9)
    code = ops[at][:1]
    if kind == 0:
        del ops[at]
    elif kind == 1:
        ops.insert(at, ops[at])
    elif kind == 2:
        other = rng.randrange(1, len(ops) - 1)
        ops[at], ops[other] = ops[other], ops[at]
    elif kind == 3:
        ops.insert(at, rng.choice(_ATOMS))
    elif kind == 4:
        ops[at] = rng.choice(_ATOMS)
    elif kind == 5:
        ops.insert(at, rng.choice(_ACTIONS))
    elif kind == 6:
        ops[at] = rng.choice(_ACTIONS)
    elif code == b"c":
        module, name = rng.choice(_GLOBALS).split()
        ops[at] = f"c{module}\n{name}\n".encode()
    elif len(ops[at]) > 1:
        arguments = bytearray(ops[at])
        arguments[rng.randrange(1, len(arguments))] = rng.choice([0, 1, 4, 0x7F, 0xFF, 0x41, 0x2E])
        ops[at] = bytes(arguments)


def edit_pickles_in_a_row(data: bytes, rng: Random) -> bytes:
    """Change an operation of one of the pickles that a legacy file starts with."""
    parts: list[bytes] = []
    rest = data
    for _ in range(5):
        ops, after = _split_pickle(rest)
        if not ops:
            break
        parts.append(b"".join(ops))
        rest = after
    if not parts:
        return flip_bit(data, rng)
    at = rng.choices(range(len(parts)), [1, 1, 1, 8, 2][: len(parts)])[0]
    parts[at] = edit_pickle(parts[at], rng)
    return b"".join(parts) + rest


# ------------------------------------------------------------------------------------- JSON


def edit_json(data: bytes, rng: Random) -> bytes:
    """Change one value of a JSON text, or its text."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return flip_bit(data, rng)
    if rng.random() < 0.15:
        return _edit_text(data, rng)
    nodes: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        _collect(value, nodes)
    if not nodes:
        return flip_bit(data, rng)
    holder, key = rng.choice(nodes)
    kind = rng.randrange(6)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1:
        other_holder, other = rng.choice(nodes)
        holder[key] = other_holder[other]
        if _holds_itself(value, set()):
            return flip_bit(data, rng)
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice(["", "../x", "__metadata__", "a" * 300, "\ud800", "x\0"])] = holder.pop(key)
    else:
        holder[key] = _other_value(holder[key], rng)
    return json.dumps(value).encode()


def _collect(value: Any, nodes: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        nodes.append((value, key))
        if isinstance(item, dict | list):
            _collect(item, nodes)


def _holds_itself(value: Any, above: set[int]) -> bool:
    if not isinstance(value, dict | list):
        return False
    if id(value) in above:
        return True
    items = value.values() if isinstance(value, dict) else value
    return any(_holds_itself(item, above | {id(value)}) for item in items)


def _other_value(old: Any, rng: Random) -> Any:
    if isinstance(old, int) and rng.random() < 0.8:
        return rng.choice([old + 1, old - 1, -old, old * 2, float(old), str(old), *EDGES, 1 << 70])
    if isinstance(old, str) and rng.random() < 0.8:
        return rng.choice(
            ["", "F32", "F64", "BF16", "I8", "BOOL", "F4", "U64", "C64", "f32", "X", old + "x"]
            + ["../" + old, "/etc/passwd", "/dev/zero", ".", "..", old.upper(), "a/../" + old]
        )
    return rng.choice([None, True, [], {}, "", 0, -1, 1e308, [1, 2, 3], {"a": 1}, [[[]]]])


def _edit_text(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        # A name twice: Python's reader would silently keep the last.
        return data.rstrip()[:-1] + b"," + data.strip()[1:-1] + b"}"
    if rng.random() < 0.3:
        return data.replace(b"0", rng.choice([b"NaN", b"Infinity", b"1e5", b"0.0", b"00"]), 1)
    if rng.random() < 0.3:
        return b"[" * 100_000 + data
    return rng.choice(BLIND)(data, rng)


def edit_safetensors_header(data: bytes, rng: Random) -> bytes:
    """Change the table of a safetensors file, with a length that fits it again."""
    length = int.from_bytes(data[:8], "little")
    header = edit_json(data[8 : 8 + length], rng)
    if rng.random() < 0.5:
        header += b" " * (-len(header) % 8)
    claimed = len(header) if rng.random() < 0.9 else rng.choice(EDGES)
    return claimed.to_bytes(8, "little") + header + data[8 + length :]


# -------------------------------------------------------------------------------------- zip


def read_zip(data: bytes) -> list[tuple[str, bytes, int]]:
    """The records of an archive: name, content, compression method."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(i.filename, archive.read(i), i.compress_type) for i in archive.infolist()]


def write_zip(records: list[tuple[str, bytes, int]]) -> bytes:
    """An archive of these records, with right checksums; names may occur twice."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content, method in records:
            info = zipfile.ZipInfo(name)
            # Set before writing, to allow names twice: zipfile warns of them.
            archive.NameToInfo.pop(name, None)
            archive.writestr(info, content, method)
    return buffer.getvalue()


_IMPORTANT = ("data.pkl", "byteorder", "version", ".json", "constants.pkl", ".py", ".format_version")


def edit_record(data: bytes, rng: Random) -> bytes:
    """Change one record's content and pack the archive again, checksums and all."""
    records = _records(data)
    if not records:
        return flip_bit(data, rng)
    weights = [
        6 if name.endswith("data.pkl") else 2 if name.endswith(_IMPORTANT) else 1
        for name, *_ in records
    ]
    at = rng.choices(range(len(records)), weights)[0]
    name, content, method = records[at]
    if name.endswith(".pkl") and rng.random() < 0.9:
        content = edit_pickle(content, rng)
    elif name.endswith(".json") and rng.random() < 0.9:
        content = edit_json(content, rng)
    elif name.endswith("byteorder"):
        content = rng.choice([b"big", b"little", b"", b"BIG", b"middle", b"little\n", b"\xff"])
    else:
        content = rng.choice(BLIND)(content, rng)
    records[at] = (name, content, method)
    return write_zip(records)


def edit_records(data: bytes, rng: Random) -> bytes:
    """Drop, double, rename, swap or compress records."""
    records = _records(data)
    if not records:
        return flip_bit(data, rng)
    at, other = rng.randrange(len(records)), rng.randrange(len(records))
    name, content, method = records[at]
    kind = rng.randrange(7)
    if kind == 0:
        del records[at]
    elif kind == 1:
        records.append((name, content, method))
    elif kind == 2:
        names = [
            "../" + name,
            name.upper(),
            name + "x",
            "other/" + name,
            "",
            "/" + name,
            name + "\u0130",
        ]
        records[at] = (rng.choice(names), content, method)
    elif kind == 3:
        records[at], records[other] = (
            (name, records[other][1], records[other][2]),
            (records[other][0], content, method),
        )
    elif kind == 4:
        records[at] = (name, content, zipfile.ZIP_DEFLATED if method == 0 else zipfile.ZIP_STORED)
    elif kind == 5:
        rng.shuffle(records)
    else:
        records[at] = (name, bytes(rng.choice([0, 1, len(content) * 2 + 1])), zipfile.ZIP_DEFLATED)
    return write_zip(records)


def _records(data: bytes) -> list[tuple[str, bytes, int]]:
    try:
        return read_zip(data)
    except (zipfile.BadZipFile, ArithmeticError, ValueError, EOFError, OSError, RuntimeError):
        return []
    except Exception as error:  # zlib.error and struct.error, once earlier mutations struck
        if type(error).__name__ == "error":
            return []
        raise


#: Where the fields of a header start and how wide they are, by signature.
_FIELDS = {
    b"PK\x03\x04": [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)],
    b"PK\x01\x02": [(6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2)]
    + [(34, 2), (42, 4)],
    b"PK\x05\x06": [(4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)],
    b"PK\x06\x06": [(4, 8), (16, 4), (24, 8), (32, 8), (40, 8), (48, 8)],
    b"PK\x06\x07": [(4, 4), (8, 8), (16, 4)],
    b"PK\x07\x08": [(4, 4), (8, 4), (12, 4)],
}


def edit_zip_field(data: bytes, rng: Random) -> bytes:
    """Change one field of one of the archive's headers."""
    places = [at for at in _signatures(data) if data[at : at + 4] in _FIELDS]
    if not places:
        return flip_bit(data, rng)
    at = rng.choice(places)
    start, width = rng.choice(_FIELDS[data[at : at + 4]])
    field = data[at + start : at + start + width]
    old = int.from_bytes(field, "little")
    number = rng.choice([*EDGES, old + 1, old - 1, old * 2, 8, 1, len(data), len(data) - 1])
    new = (number % (1 << 8 * width)).to_bytes(width, "little")
    return data[: at + start] + new + data[at + start + width :]


def _signatures(data: bytes) -> list[int]:
    places, at = [], data.find(b"PK")
    while at >= 0:
        places.append(at)
        at = data.find(b"PK", at + 1)
    return places


# -------------------------------------------------------------------------------------- tar


def edit_tar_member(data: bytes, rng: Random) -> bytes:
    """Change one member of a tar archive, or which members there are."""
    members: list[tuple[str, bytes]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for info in archive.getmembers():
                file = archive.extractfile(info)
                members.append((info.name, file.read() if file else b""))
    except (tarfile.TarError, ValueError, OSError, EOFError):
        return flip_bit(data, rng)
    if not members:
        return flip_bit(data, rng)
    at = rng.randrange(len(members))
    name, content = members[at]
    kind = rng.random()
    if kind < 0.1:
        del members[at]
    elif kind < 0.2:
        members.append((name, content))
    elif kind < 0.6:
        members[at] = (name, edit_pickles_in_a_row(content, rng))
    else:
        members[at] = (name, rng.choice(BLIND)(content, rng))
    return write_tar(members)


def write_tar(members: list[tuple[str, bytes]]) -> bytes:
    """A tar archive of these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# ------------------------------------------------------------------------------ by file name

INFORMED: dict[str, list[Mutation]] = {
    "zip": [edit_record, edit_record, edit_records, edit_zip_field],
    "legacy": [edit_pickles_in_a_row, edit_pickles_in_a_row],
    "tar": [edit_tar_member, edit_tar_member],
    "safetensors": [edit_safetensors_header, edit_safetensors_header],
    "json": [edit_json, edit_json],
    "pickle": [edit_pickle, edit_pickle],
    "zips": [edit_zip_field, edit_zip_field],
}


def mutate(data: bytes, kind: str, rng: Random) -> bytes:
    """The bytes of a ``kind`` of file after one to four mutations, half of them informed."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4])):
        chosen = INFORMED[kind] if rng.random() < 0.6 else BLIND
        data = rng.choice(chosen)(data, rng)
    return data
