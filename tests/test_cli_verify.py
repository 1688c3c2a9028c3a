"""``purestate verify``: what agreed by which means, what was changed, what has nothing to check by."""

import io
import pickle
import shutil
import tarfile
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


def png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.ones(3))
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("notes.txt"))
    return file.getvalue()


OTHERS: dict[str, tuple[bytes, str, str]] = {
    "text": (b"some words that are no checkpoint", "not a checkpoint", "starts with b'some wor'"),
    "a word": (b"words\n", "not a checkpoint", "only 6 bytes"),
    "picture": (png(), "not a checkpoint", "starts with b'\\x89PNG"),
    "empty": (b"", "not a checkpoint", "the file is empty"),
    "page": (b"<!DOCTYPE html><html></html>", "not a checkpoint", "a web page"),
    "JSON": (b'{"architectures": []}', "not a checkpoint", "no weight_map"),
    "pickle": (pickle.dumps([1, 2]), "not a checkpoint", "not one of torch.save"),
    "arrays": (zipped(), "not a checkpoint", "no PyTorch checkpoint"),
    "tar": (tarred(), "not a checkpoint", "no PyTorch checkpoint"),
    "array": (b"\x93NUMPY\x01\x00v\x00{'descr'", "not supported", "NumPy .npy file"),
    "start": (b"PK\x03\x04", "damaged", "directory at its end"),
    "two letters": (b"PK", "damaged", "only 2 bytes"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_checkpoint_is_not_called_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    data, fault, text = OTHERS[name]
    path = tmp_path / "m.pt"
    path.write_bytes(data)
    found = json_of(capsys, "verify", path, status=1)
    assert found["fault"] == found["files"][0]["fault"] == fault
    assert not found["intact"]
    assert text in found["files"][0]["error"]
    shown = done(capsys, "verify", path, status=1)
    assert shown.endswith(f"\n{fault}\n")
    assert ("damaged" in shown) == (fault == "damaged")


def test_what_is_not_supported_is_not_called_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(2, dtype=torch.uint8).view(torch.bits8)}, path)
    found = json_of(capsys, "verify", path, status=1)
    assert found["fault"] == "not supported"
    assert found["files"][0]["agree"]


def test_the_verdict_of_a_folder_is_the_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(ARRAYS, tmp_path / "a.safetensors")
    (tmp_path / "b.pt").write_text("some words that are no checkpoint")
    assert done(capsys, "verify", tmp_path, status=1).endswith("\nnot a checkpoint\n")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-1])
    assert done(capsys, "verify", tmp_path, status=1).endswith("\ndamaged\n")


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


def test_a_set_of_files_without_an_index_is_to_be_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(ARRAYS, start=1):
        save({name: ARRAYS[name]}, tmp_path / f"model-{number:05}-of-00002.safetensors")
    done(capsys, "verify", tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    found = json_of(capsys, "verify", tmp_path, status=1)
    assert found["fault"] == "damaged"
    assert "1 of 2 files are there; number 2" in found["files"][-1]["error"]


@pytest.mark.parametrize("name", ["b.safetensors", "model.safetensors.index.json"])
def test_a_link_to_nothing_is_a_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    save(ARRAYS, tmp_path / "a.safetensors")
    (tmp_path / name).symlink_to(tmp_path / "blob")
    found = json_of(capsys, "verify", tmp_path, status=1)
    assert [file["fault"] for file in found["files"]] == ["", "damaged"]
    assert "link to nothing" in found["files"][1]["error"]
    (tmp_path / name).unlink()
    (tmp_path / "a.safetensors").unlink()
    (tmp_path / "b.safetensors").symlink_to(tmp_path / "none")
    assert "link to nothing" in done(capsys, "verify", tmp_path, status=1)


def test_an_index_of_nothing_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    text = done(capsys, "verify", tmp_path, status=1)
    assert "the index names no tensor" in text
    assert "the index names no tensor" in failed(capsys, "inspect", tmp_path)


def test_each_index_of_a_folder_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(ARRAYS, tmp_path / "model.safetensors", shard_size=100)
    save(ARRAYS, tmp_path / "pytorch_model.bin", shard_size=100)
    found = json_of(capsys, "verify", tmp_path)
    indices = [Path(file["file"]).name for file in found["files"] if "folder" in file["format"]]
    assert indices == ["model.safetensors.index.json", "pytorch_model.bin.index.json"]
    (tmp_path / "pytorch_model-00002-of-00002.bin").unlink()
    found = json_of(capsys, "verify", tmp_path, status=1)
    (bad,) = [file for file in found["files"] if not file["intact"]]
    assert bad["file"].endswith("bin.index.json")
    assert "is missing" in bad["error"]


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
