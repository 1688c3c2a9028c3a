"""Pickles written opcode by opcode, and the files around them.

``op`` turns plain values into opcodes; ``Raw`` bytes stand for themselves, so that a program can be
nested in a value: ``op((storage(), 0, (4,)))``.
"""

import pickle
import struct
import zipfile
from io import BytesIO
from typing import Any


class Raw(bytes):
    """Opcodes, to be placed as they are."""


def op(value: Any) -> Raw:
    """The opcodes that push a value."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, tuple):
        return Raw(b"(" + b"".join(op(item) for item in value) + b"t")
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return Raw(b"X" + struct.pack("<I", len(data)) + data)
    return Raw(pickle.dumps(value, 2)[2:-1])


def glob(path: str) -> Raw:
    """GLOBAL: push the thing called ``module.name``."""
    module, _, name = path.rpartition(".")
    return Raw(f"c{module}\n{name}\n".encode())


def call(path: str, *args: Any) -> Raw:
    """GLOBAL, arguments, REDUCE."""
    return Raw(glob(path) + op(args) + b"R")


def storage(key: Any = "0", numel: Any = 4, kind: str = "torch.FloatStorage") -> Raw:
    """The persistent id of a storage."""
    return Raw(op(("storage", glob(kind), key, "cpu", numel)) + b"Q")


def tensor(offset: Any = 0, size: Any = (4,), stride: Any = (1,), **where: Any) -> Raw:
    """A tensor over ``storage(**where)``."""
    return call(
        "torch._utils._rebuild_tensor_v2",
        *(storage(**where), offset, size, stride, False, call("collections.OrderedDict")),
    )


def program(body: bytes, protocol: int = 2) -> bytes:
    """A whole pickle."""
    return b"\x80" + bytes([protocol]) + body + b"."


def archive(
    pickled: bytes, records: dict[str, bytes] | None = None, *, folder: str = "m", **options: Any
) -> bytes:
    """A zip checkpoint with this pickle, a storage "0" of 16 bytes, and more records."""
    content = {"data.pkl": pickled, "version": b"3\n", "data/0": bytes(16)} | (records or {})
    return zip_of([(f"{folder}/{name}", data) for name, data in content.items()], **options)


def zip_of(records: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive; names may occur twice."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in records:
            file.NameToInfo.pop(name, None)
            file.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


def legacy(
    pickled: bytes, *, info: bytes | None = None, keys: bytes | None = None, tail: bytes = b""
) -> bytes:
    """A legacy checkpoint with this pickle."""
    facts = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    parts = [MAGIC, pickle.dumps(1001, 2), info or pickle.dumps(facts, 2), pickled]
    return b"".join(parts) + (pickle.dumps([], 2) if keys is None else keys) + tail
