"""Digests: hashes of the numbers in the file, told from torch's own view of them."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bridge.checkpoint import BadFormat, load, save
from bridge.checkpoint._digests import digest, from_text, to_text
from bridge.checkpoint._files import read_safetensors_metadata
from tests.checkpoint.agree import tensor_bytes
from tests.command_line import done, failed, json_of


def content() -> dict[str, np.ndarray]:
    big = np.random.default_rng(0).random((400, 500))
    return {
        "big": big,
        "turned": big.T,
        "käse \"'": np.arange(3, dtype=np.int8),
        "bf16": np.ones((2, 2), ml_dtypes.bfloat16),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 2)),
        "tied": big,
    }


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_safetensors_file_has_the_digest_of_every_tensor(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(content(), path, digests=True, metadata={"note": "x"})
    theirs = load_file(path)
    with safe_open(path, "pt") as file:
        table = file.metadata()
    assert table["note"] == "x"
    assert json.loads(table["sha256"]) == {
        name: sha256(tensor_bytes(tensor)) for name, tensor in theirs.items()
    }
    assert list(json.loads(table["sha256"])) == list(content())


def test_a_pytorch_file_has_the_digest_of_every_storage(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save({"nested": [content()]}, path, digests=True)
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None
    recorded = json.loads(archive.read("m/.data/sha256.json"))
    names = [name for name in archive.namelist() if name.startswith("m/data/")]
    assert recorded == {name.rpartition("/")[2]: sha256(archive.read(name)) for name in names}
    assert len(recorded) == 5
    for mmap in (False, True):
        theirs = torch.load(path, weights_only=True, mmap=mmap)["nested"][0]
        for name, array in content().items():
            assert tensor_bytes(theirs[name]) == array.tobytes()


def test_there_are_none_unless_asked(tmp_path: Path) -> None:
    save(content(), tmp_path / "m.pt")
    save(content(), tmp_path / "m.safetensors")
    assert "m/.data/sha256.json" not in zipfile.ZipFile(tmp_path / "m.pt").namelist()
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert set(file.metadata()) == {"format"}


@pytest.mark.parametrize("name", content())
def test_a_digest_is_of_the_row_major_bytes(name: str) -> None:
    array = content()[name]
    assert digest(array) == sha256(array.tobytes())


@pytest.mark.parametrize("dtype", ["i2", "f4", "c8", "c16", "u8"])
def test_a_digest_does_not_depend_on_the_byte_order(dtype: str) -> None:
    array = (np.arange(6) * 1.25).astype(f"<{dtype}").reshape(2, 3)
    for twin in (array, array.astype(f">{dtype}"), np.asfortranarray(array)):
        assert digest(twin) == sha256(array.tobytes())


def test_big_endian_machines_write_the_same_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(5, dtype=np.int32)
    monkeypatch.setattr(sys, "byteorder", "big")
    save({"x": array}, tmp_path / "m.pt", digests=True)
    save({"x": array}, tmp_path / "m.safetensors", digests=True)
    # The numbers are taken for big-endian ones, so the bytes that are hashed are the turned ones.
    expected = sha256(array.byteswap().tobytes())
    assert json.loads(zipfile.ZipFile(tmp_path / "m.pt").read("m/.data/sha256.json")) == {"0": expected}
    data = (tmp_path / "m.safetensors").read_bytes()
    assert data.endswith(array.byteswap().tobytes())
    assert expected.encode() in data


def test_texts_come_back() -> None:
    recorded = {"käse \"'": digest(np.ones(3)), "": digest(np.zeros((0, 2)))}
    assert from_text(to_text(recorded)) == recorded


WRONG_TEXTS = {
    "no json": ("{", "not valid JSON"),
    "a list": ("[]", "must be a JSON object, not a value of type list"),
    "short": ('{"a":"00"}', "digest of 'a' is not 64 hexadecimal digits: '00'"),
    "upper case": (f'{{"a":"{"A" * 64}"}}', "not 64 hexadecimal digits"),
    "a number": ('{"a":1}', "not 64 hexadecimal digits: 1"),
    "twice": ('{"a": "x", "a": "y"}', "'a' occurs twice"),
    "deep": ("[" * 100_000, "not valid JSON"),
}


@pytest.mark.parametrize("name", WRONG_TEXTS)
def test_other_texts_are_refused(name: str) -> None:
    text, problem = WRONG_TEXTS[name]
    with pytest.raises(BadFormat, match=problem):
        from_text(text)


NOTES = [
    "a" * 64,
    "",
    "see README",
    "[]",
    '{"data": "v2"}',
    '{"files": {"x": "' + "0" * 64 + '"}}',
    "{x}",
]


@pytest.mark.parametrize("note", NOTES)
def test_a_note_in_the_place_of_digests_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], note: str
) -> None:
    path, other, out = (tmp_path / f"{name}.safetensors" for name in ("a", "b", "out"))
    safetensors.torch.save_file({"w": torch.ones(2)}, path, {"sha256": note})
    safetensors.torch.save_file({"w": torch.ones(2)}, other, {"sha256": "another"})
    assert load(path, verify=True)["w"].tolist() == [1, 1]
    assert json_of(capsys, "verify", path)["files"][0]["unchecked"] == ["w"]
    done(capsys, "convert", path, out)
    assert read_safetensors_metadata(out)["sha256"] == note
    found = json_of(capsys, "diff", path, other, status=1)
    assert list(found["file_metadata"]) == ["sha256"]
    assert "has an entry 'sha256' already" in failed(capsys, "convert", path, out, "--digests")


@pytest.mark.parametrize(
    "change", [(b"{", b"["), (b'":"', b'";"'), (b'"}', b"a}"), (b"000", b"00x")], ids=repr
)
def test_damaged_digests_are_no_note(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    text = to_text({"v": "1" * 64, "w": "0" * 64}).encode().replace(*change, 1).decode()
    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "m.safetensors", {"sha256": text})
    with pytest.raises(BadFormat):
        load(tmp_path / "m.safetensors", verify=True)
