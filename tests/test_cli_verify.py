"""``purestate verify``: what agreed by which means, what was changed, what has nothing to check by."""

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from bridge import save
from tests.command_line import HEAVY, done, failed, json_of, modules_after_command


ARRAYS = {"a": np.arange(1000, dtype=np.float32), "b": np.arange(3)}
SIGN = np.arange(500, 504, dtype=np.float32).tobytes()


def flip(path: Path) -> None:
    """Change one bit of array "a"."""
    data = bytearray(path.read_bytes())
    data[data.index(SIGN) + 5] ^= 0x10
    path.write_bytes(data)


def test_a_file_of_torch_is_checked_by_its_checksums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pt"
    torch.save({name: torch.from_numpy(array) for name, array in ARRAYS.items()}, path)
    found = json_of(capsys, "verify", path)
    assert found["intact"]
    (file,) = found["files"]
    assert file["file"] == str(path)
    assert file["format"] == "torch zip"
    assert file["tensors"] == 2
    names = zipfile.ZipFile(path).namelist()
    assert file["agree"] == dict.fromkeys(names, "crc32")
    assert f"{len(names)} unchanged by crc32" in done(capsys, "verify", path)
    flip(path)
    found = json_of(capsys, "verify", path, status=1)
    assert not found["intact"]
    assert found["files"][0]["disagree"] == {"m/data/0": "crc32"}
    text = done(capsys, "verify", path, status=1)
    assert "m/data/0 crc32" in text
    assert text.endswith("\ndamaged\n")


def test_digests_tell_which_tensor_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.safetensors"
    save(ARRAYS, path, digests=True)
    assert "2 unchanged by sha256" in done(capsys, "verify", path)
    flip(path)
    assert json_of(capsys, "verify", path, status=1)["files"][0]["disagree"] == {"a": "sha256"}


def test_what_has_nothing_to_check_by_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.numpy.save_file(ARRAYS, path)
    assert sorted(json_of(capsys, "verify", path)["files"][0]["unchecked"]) == ["a", "b"]
    text = done(capsys, "verify", path)
    assert "2 with nothing to check by (" in text
    assert text.endswith("\nnothing wrong was found\n")


@pytest.mark.parametrize("name", ["m.pt", "m.safetensors"])
def test_a_structure_that_is_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = tmp_path / name
    save(ARRAYS, path)
    path.write_bytes(path.read_bytes()[:-2000])
    found = json_of(capsys, "verify", path, status=1)["files"][0]
    assert not found["intact"]
    assert str(path) in found["error"]
    text = done(capsys, "verify", path, status=1)
    assert "structure not readable" in text
    assert "\ndamaged: " in text


def test_each_file_of_a_folder_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(ARRAYS, tmp_path / "a.pt")
    save(ARRAYS, tmp_path / "b.safetensors", digests=True)
    save(ARRAYS, tmp_path / "c.safetensors")
    (tmp_path / "notes.txt").write_text("no checkpoint")
    found = json_of(capsys, "verify", tmp_path)
    assert [Path(file["file"]).name for file in found["files"]] == [
        "a.pt",
        "b.safetensors",
        "c.safetensors",
    ]
    flip(tmp_path / "b.safetensors")
    (tmp_path / "c.safetensors").write_bytes(b"")
    text = done(capsys, "verify", tmp_path, status=1)
    assert f"{tmp_path / 'b.safetensors'} a" in text
    assert "the file is empty" in text
    found = json_of(capsys, "verify", tmp_path, status=1)
    assert [file["intact"] for file in found["files"]] == [True, False, False]


def test_hostile_names_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m\x07[bold]\n"
    save({evil: ARRAYS["a"]}, tmp_path / "m.safetensors", digests=True)
    save({evil: ARRAYS["a"]}, tmp_path / "n.safetensors")
    flip(tmp_path / "m.safetensors")
    shutil.copy(tmp_path / "m.safetensors", tmp_path / f"{evil}.safetensors")
    text = done(capsys, "verify", tmp_path, status=1)
    assert text.replace("\n", "").isprintable()
    assert r"\x1b[31m\x07[bold]\n" in text


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "x.pt") in failed(capsys, "verify", tmp_path / "x.pt")


def test_verify_starts_without_jax(tmp_path: Path) -> None:
    save(ARRAYS, tmp_path / "m.safetensors", digests=True)
    assert not HEAVY & modules_after_command("verify", tmp_path / "m.safetensors")
