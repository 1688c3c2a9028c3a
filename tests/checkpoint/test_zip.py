"""Zip archives that say two things at once are refused; unusual honest ones are read."""

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bridge.checkpoint import BadFormat, CheckpointError, Unsafe, Unsupported, load
from tests.checkpoint.agree import assert_agree


CONTENT = {"x": torch.arange(6.0).reshape(2, 3), "y": torch.ones(2, dtype=torch.int16)}


def records(tmp_path: Path) -> dict[str, bytes]:
    """The records of torch's file of ``CONTENT``."""
    torch.save(CONTENT, tmp_path / "m.pt")
    archive = zipfile.ZipFile(tmp_path / "m.pt")
    return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, content: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def test_archives_of_other_writers_are_read(tmp_path: Path) -> None:
    path = pack(tmp_path / "other.pt", records(tmp_path))
    assert_agree(load(path), torch.load(path))


def test_old_record_sets_are_read(tmp_path: Path) -> None:
    content = records(tmp_path)
    wanted = ["m/version", "m/data/1", "m/data/0", "m/data.pkl"]
    path = pack(tmp_path / "old.pt", {name: content[name] for name in wanted})
    assert_agree(load(path), torch.load(path))


@pytest.mark.parametrize("name", ["m/data.pkl", "m/data/0"])
def test_compressed_records_are_read_within_bounds(tmp_path: Path, name: str) -> None:
    content = records(tmp_path)
    path = pack(tmp_path / "a.pt", content, zipfile.ZIP_DEFLATED)
    assert_agree(load(path), torch.load(path))
    content[name] = content[name] + bytes(80 << 20)
    path = pack(tmp_path / "b.pt", content, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match=r"compressed pickle of|its record has"):
        load(path)


def test_checksums_are_not_demanded(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(CONTENT, tmp_path / "m.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_agree(load(tmp_path / "m.pt"), CONTENT)


def test_other_alignments_are_read(tmp_path: Path) -> None:
    from torch.utils.serialization import config

    with config.patch("save.storage_alignment", 4096):  # pyright: ignore[reportAttributeAccessIssue]
        torch.save(CONTENT, tmp_path / "m.pt")
    assert_agree(load(tmp_path / "m.pt"), CONTENT)


def test_big_endian_numbers_are_read(tmp_path: Path) -> None:
    tensors = {
        "float": torch.arange(3.0),
        "complex": torch.tensor([1 + 2j]),
        "byte": torch.arange(3, dtype=torch.uint8),
        "bfloat16": torch.ones(3, dtype=torch.bfloat16),
    }
    torch.save(tensors, tmp_path / "m.pt")
    archive = zipfile.ZipFile(tmp_path / "m.pt")
    content = {name: archive.read(name) for name in archive.namelist()}
    content["m/byteorder"] = b"big"
    for index, width in enumerate([4, 4, 1, 2]):
        data = content[f"m/data/{index}"]
        parts = [data[at : at + width][::-1] for at in range(0, len(data), width)]
        content[f"m/data/{index}"] = b"".join(parts)
    path = pack(tmp_path / "big.pt", content)
    assert_agree(load(path), tensors)


def patched(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def central(data: bytearray, name: bytes) -> int:
    """Where the directory's entry for ``name`` starts."""
    return data.rindex(name, data.index(b"PK\x01\x02")) - 46


def rename_local(data: bytearray) -> None:
    at = data.index(b"m/data/0")
    data[at : at + 8] = b"m/data/9"


def rename_both(data: bytearray) -> None:
    rename_local(data)
    at = central(data, b"m/data/0") + 46
    data[at : at + 8] = b"m/data/9"


def swap_records(data: bytearray) -> None:
    one, two = central(data, b"m/data/0") + 42, central(data, b"m/data/1") + 42
    data[one : one + 4] = data[two : two + 4]


def set_central(name: bytes, field: int, layout: str, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(layout, data, central(data, name) + field, value)


def both_sizes(value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into("<II", data, central(data, b"m/data/0") + 20, value, value)


PATCHES: dict[str, tuple[Callable[[bytearray], None], type[CheckpointError], str]] = {
    "local name": (rename_local, BadFormat, "does not carry the name"),
    "missing storage": (rename_both, BadFormat, "no record data/0"),
    "wrong place": (swap_records, BadFormat, "does not carry the name"),
    "encrypted": (set_central(b"m/data/0", 8, "<H", 1), Unsupported, "encrypted"),
    "method": (set_central(b"m/data/0", 10, "<H", 12), Unsupported, "method 12"),
    "disagreeing method": (set_central(b"m/data/0", 10, "<H", 8), BadFormat, "disagree"),
    "size": (set_central(b"m/data/0", 24, "<I", 20), BadFormat, "has 24 bytes but declares 20"),
    "reaching into the next": (both_sizes(200), BadFormat, "overlap"),
    "reaching into the directory": (both_sizes(2000), BadFormat, "archive's directory"),
    "zip64 without field": (both_sizes(0xFFFFFFFF), BadFormat, "lacks its ZIP64 field"),
    "beyond the archive": (set_central(b"m/data/0", 42, "<I", 1 << 30), BadFormat, "outside"),
    "name not utf-8": (set_central(b"m/data/0", 46, "<B", 255), BadFormat, "not UTF-8"),
    "name length": (set_central(b"m/data/0", 28, "<H", 60000), BadFormat, "directory is damaged"),
}


@pytest.mark.parametrize("name", PATCHES)
def test_contradictions_are_refused(tmp_path: Path, name: str) -> None:
    change, error, text = PATCHES[name]
    path = patched(pack(tmp_path / "a.pt", records(tmp_path)), change)
    with pytest.raises(error, match=text):
        load(path)


def test_record_at_two_entries_overlaps(tmp_path: Path) -> None:
    """Many directory entries for one stretch of bytes: a zip bomb without compression."""

    def change(data: bytearray) -> None:
        for name in (b"m/data/0", b"m/data/1"):
            data[:] = data.replace(name, b"m/data/x")

    path = patched(pack(tmp_path / "a.pt", records(tmp_path)), change)
    with pytest.raises(BadFormat, match="has both 'm/data/x' and 'm/data/x'"):
        load(path)


def test_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    content = records(tmp_path)
    content["m/DATA/0"] = bytes(24)
    with pytest.raises(BadFormat, match="has both"):
        load(pack(tmp_path / "a.pt", content))


def test_duplicate_records_are_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.pt", records(tmp_path))
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("m/data/0", bytes(24))
    with pytest.raises(BadFormat, match="has both 'm/data/0' and 'm/data/0'"):
        load(path)


def test_inflating_is_bounded(tmp_path: Path) -> None:
    content = records(tmp_path)
    content["m/data.pkl"] = bytes(70 << 20)
    with pytest.raises(Unsafe, match="pickle of 73400320 bytes"):
        load(pack(tmp_path / "a.pt", content, zipfile.ZIP_DEFLATED))

    def understate(data: bytearray) -> None:
        set_central(b"m/data.pkl", 24, "<I", 1000)(data)

    content["m/data.pkl"] = bytes(1 << 20)
    path = patched(pack(tmp_path / "b.pt", content, zipfile.ZIP_DEFLATED), understate)
    with pytest.raises(BadFormat, match="does not inflate to as many"):
        load(path)


def test_damaged_deflate_is_refused(tmp_path: Path) -> None:
    def damage(data: bytearray) -> None:
        at = data.index(b"m/data.pkl") + len(b"m/data.pkl")
        data[at : at + 10] = b"\xff" * 10

    path = pack(tmp_path / "a.pt", records(tmp_path), zipfile.ZIP_DEFLATED)
    with pytest.raises(BadFormat, match="compressed data is damaged"):
        load(patched(path, damage))


OTHERS: dict[str, tuple[dict[str, bytes], type[CheckpointError], str]] = {
    "npz": ({"a.npy": b"1", "b.npy": b"2"}, BadFormat, "numpy.load"),
    "two folders": ({"a/data.pkl": b"N.", "b/data.pkl": b"N."}, BadFormat, "single folder"),
    "no pickle": ({"a/x": b""}, BadFormat, r"no data.pkl"),
    "torchscript": ({"a/data.pkl": b"N.", "a/constants.pkl": b""}, BadFormat, "does not hold a module"),
    "version": ({"a/data.pkl": b"N.", "a/version": b"11"}, Unsupported, "format version b'11'"),
    "byteorder": ({"a/data.pkl": b"N.", "a/byteorder": b"pdp"}, BadFormat, "byte order b'pdp'"),
    "long version": ({"a/data.pkl": b"N.", "a/version": bytes(99)}, BadFormat, "99 bytes where"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_archives_are_named(tmp_path: Path, name: str) -> None:
    content, error, text = OTHERS[name]
    with pytest.raises(error, match=text):
        load(pack(tmp_path / "a.pt", content))


def test_an_archive_inside_the_comment_is_not_taken(tmp_path: Path) -> None:
    """The directory that ends exactly at its end record wins, not the last one by position."""
    path = pack(tmp_path / "a.pt", records(tmp_path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK\x05\x06" + bytes(18)
    assert_agree(load(path), CONTENT)


def test_compressed_records_are_bounded_together(tmp_path: Path) -> None:
    """Each is within its bound; a TorchScript archive's source texts are all kept."""
    with zipfile.ZipFile(tmp_path / "m.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02N.")
        archive.writestr("m/constants.pkl", b"\x80\x02).")
        for number in range(3):
            archive.writestr(f"m/code/{number}.py", bytes(30 << 20))
    with pytest.raises(Unsafe, match=r"compressed records claim 94371[0-9]* bytes together"):
        load(tmp_path / "m.pt")
