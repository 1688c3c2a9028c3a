"""Tar checkpoints: headers of every kind that Python writes, and headers that lie.

That their content is what torch reads is in test_made_files_formats.py.
"""

import io
import pickle
import struct
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridge.checkpoint import BadFormat, CheckpointError, NotACheckpoint, Truncated, load
from tests.hostile.assembler import Raw, glob, op, program
from tests.hostile.mutations import write_tar


def members(**changed: bytes) -> list[tuple[str, bytes]]:
    """The members of a checkpoint whose pickle is tensor 11, two floats."""
    entry = program(op((1, "cpu", glob("torch.FloatStorage"))))
    row = program(op((11, 1, glob("torch.FloatTensor")))) + struct.pack("<i4x3q", 1, 2, 1, 0)
    content = {
        "sys_info": pickle.dumps({}, 2),
        "pickle": program(Raw(op(11) + b"Q")),
        "tensors": pickle.dumps(1, 2) + row,
        "storages": pickle.dumps(1, 2) + entry + struct.pack("<q2f", 2, 3.0, 4.0) + program(b"]"),
    } | changed
    return list(content.items())


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def header(name: bytes = b"foo", size: bytes = b"00000000000\0", kind: bytes = b"0") -> bytes:
    """A header with a right checksum."""
    block = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_that_python_writes(tmp_path: Path, format: int) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, content in members():
            info = tarfile.TarInfo(f"./{name}")
            # A time with a fraction makes the newest format write a header of its own for it.
            info.size, info.mtime = len(content), 1.5
            archive.addfile(info, io.BytesIO(content))
    path = write(tmp_path / "m.pt", buffer.getvalue())
    np.testing.assert_array_equal(load(path), np.array([3, 4], np.float32))


def test_a_size_as_a_binary_number(tmp_path: Path) -> None:
    """As GNU's tar writes those above 8 GiB."""
    parts = []
    for name, content in members():
        size = b"\x80" + len(content).to_bytes(11, "big")
        parts += [header(name.encode(), size), content.ljust(-(-len(content) // 512) * 512, b"\0")]
    path = write(tmp_path / "m.pt", b"".join(parts) + bytes(1024))
    np.testing.assert_array_equal(load(path), np.array([3, 4], np.float32))


LIES: dict[str, tuple[bytes, type[CheckpointError], str]] = {
    "checksum": (header()[:100] + b"1" + header()[101:], BadFormat, "another checksum"),
    "no checksum": (header()[:148] + b"no sum  " + header()[156:], BadFormat, "no numbers"),
    "no size": (header(size=b"x" * 12), BadFormat, "no numbers"),
    "negative size": (header(size=b"\xff" * 10 + b"\xfe\0"), Truncated, "'foo' has 3094850"),
    "long size": (header(size=b"77777777777\0"), Truncated, "'foo' has 8589934591 bytes, but"),
    "nothing in it": (header() + bytes(1024), NotACheckpoint, "it has no 'storages'"),
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    data, kind, text = LIES[name]
    with pytest.raises(kind, match=text) as caught:
        load(write(tmp_path / "m.pt", data))
    assert type(caught.value) is kind


def test_a_header_of_digits_takes_no_time(tmp_path: Path) -> None:
    """Python's own reader of 3.11.7 searches it for hours."""
    digits = b"1" * (1 << 20)
    size = b"%011o\0" % len(digits)
    path = write(tmp_path / "m.pt", header(size=size, kind=b"x") + digits + bytes(1024))
    start = time.monotonic()
    with pytest.raises(BadFormat, match="it has no 'storages'"):
        load(path)
    assert time.monotonic() - start < 5


def _storages(views: Any) -> bytes:
    return dict(members())["storages"].removesuffix(program(b"]")) + pickle.dumps(views, 2)


def _rows(*storages: int) -> bytes:
    row = dict(members())["tensors"].partition(b".")[2]
    rows = [row.replace(op((11, 1))[1:-1], op((11 + n, at))[1:-1]) for n, at in enumerate(storages)]
    return pickle.dumps(len(rows), 2) + b"".join(rows)


WRONG: dict[str, tuple[dict[str, bytes], str]] = {
    "a view that is a number": ({"storages": _storages([5])}, "a storage view must be a tuple"),
    "a view of three parts": ({"storages": _storages([(3, 1, 0)])}, "has 3 parts, not 4"),
    "a view of none": ({"storages": _storages([(3, 9, 0, 1)])}, "of an unknown storage"),
    "a tensor over a tensor": ({"tensors": _rows(1, 11)}, "described by key, storage and class"),
    "a tensor over none": ({"tensors": _rows(9)}, "described by key, storage and class"),
}


@pytest.mark.parametrize("name", WRONG)
def test_descriptions_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    changed, text = WRONG[name]
    with pytest.raises(BadFormat, match=text):
        load(write(tmp_path / "m.pt", write_tar(members(**changed))))
