"""Checksums and digests tell a file that was changed."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from bridge.checkpoint import Damaged, load, save
from bridge.checkpoint._files import evidence_of


ARRAYS = {"a": np.arange(1000, dtype=np.float32), "b": np.arange(3), "empty": np.zeros((0, 2))}
SIGN = np.arange(500, 504, dtype=np.float32).tobytes()


def flip(path: Path) -> None:
    """Change one bit of array "a"."""
    data = bytearray(path.read_bytes())
    data[data.index(SIGN) + 5] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("crc", [True, False])
def test_a_file_of_torch_has_a_checksum_of_each_record_if_torch_wrote_one(
    tmp_path: Path, crc: bool
) -> None:
    path = tmp_path / "m.pt"
    torch.serialization.set_crc32_options(crc)
    try:
        torch.save({"a": torch.arange(1000.0), "b": torch.ones(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    found = evidence_of(path)
    names = set(zipfile.ZipFile(path).namelist())
    assert {*found.agree, *found.unchecked} == names
    assert not found.disagree
    assert ("m/data/0" in found.agree) == crc
    flip(path)
    assert evidence_of(path).disagree == ({"m/data/0": "crc32"} if crc else {})
    assert load(path)["a"].size == 1000
    if crc:
        with pytest.raises(Damaged, match=r"m\.pt.*entry 'm/data/0'.*crc32"):
            load(path, verify=True)
    else:
        assert load(path, verify=True)["a"].size == 1000


def test_compressed_records_are_checked_by_what_they_inflate_to(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "m.pt")
    path = tmp_path / "deflated.pt"
    with zipfile.ZipFile(tmp_path / "m.pt") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
    found = evidence_of(path)
    assert "m/data.pkl" in found.agree
    assert not found.disagree


def forged(path: Path) -> None:
    """Change one bit and write the checksum of the changed bytes."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["m/data/0"] = content["m/data/0"][:-1] + b"\x7f"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def test_digests_tell_what_checksums_do_not(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save(ARRAYS, path, digests=True)
    found = evidence_of(path)
    assert not found.disagree
    assert not found.unchecked
    assert [found.agree[f"m/data/{i}"] for i in range(3)] == ["sha256"] * 3
    forged(path)
    assert evidence_of(path).disagree == {"m/data/0": "sha256"}
    with pytest.raises(Damaged, match="sha256"):
        load(path, verify=True)


def test_safetensors_files_have_digests_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file(ARRAYS, path)
    assert evidence_of(path).unchecked == list(load(path))
    assert load(path, verify=True)["b"].tolist() == [0, 1, 2]
    save(ARRAYS, path, digests=True)
    found = evidence_of(path)
    assert (found.agree, found.unchecked) == (dict.fromkeys(ARRAYS, "sha256"), [])
    flip(path)
    assert evidence_of(path).disagree == {"a": "sha256"}
    with pytest.raises(Damaged, match="entry 'a'"):
        load(path, verify=True)


def test_the_legacy_stream_has_nothing_to_check_by(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"a": torch.arange(1000.0)}, path, _use_new_zipfile_serialization=False)
    assert evidence_of(path).unchecked == ["the whole file"]
    assert load(path, verify=True)["a"].size == 1000
