"""Sets of files: split as Hugging Face splits, read by safetensors and torch, replaced as one."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bridge import StateDict
from bridge.checkpoint import Unwritable, _write_shards, load, save
from bridge.checkpoint._write_shards import size_in_bytes, split


def arrays(value: float = 0) -> dict[str, np.ndarray]:
    """Five arrays of 400 bytes and one of 4,000."""
    names = ["z", "a", "m.0", "m.1", "b"]
    result = {name: np.full(100, at + value, np.float32) for at, name in enumerate(names)}
    result["large"] = np.full(1000, 9 + value, np.float32)
    return result


def read_set(folder: Path, stem: str = "model", suffix: str = ".safetensors") -> dict[str, Any]:
    """What a set holds, by its index, in the order of the index; each file has what it should."""
    index = json.loads((folder / f"{stem}{suffix}.index.json").read_text())
    files = {}
    for name in set(index["weight_map"].values()):
        path = folder / name
        files[name] = load_file(path) if suffix == ".safetensors" else torch.load(path)
    for name, content in files.items():
        assert set(content) == {key for key, file in index["weight_map"].items() if file == name}
    return {name: files[file][name] for name, file in index["weight_map"].items()}


def assert_holds(theirs: dict[str, Any], content: dict[str, Any]) -> None:
    assert list(theirs) == list(content)
    for name, array in content.items():
        assert theirs[name].numpy().tobytes() == np.asarray(array).tobytes()


def test_a_set_of_safetensors_files(tmp_path: Path) -> None:
    save(arrays(), tmp_path / "new" / "folder", shard_size=900)
    folder = tmp_path / "new" / "folder"
    assert sorted(os.listdir(folder)) == [
        "model-00001-of-00004.safetensors",
        "model-00002-of-00004.safetensors",
        "model-00003-of-00004.safetensors",
        "model-00004-of-00004.safetensors",
        "model.safetensors.index.json",
    ]
    assert_holds(read_set(folder), arrays())
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 6000}
    assert [file[10] for file in index["weight_map"].values()] == list("112243")
    for number in range(1, 5):
        with safe_open(folder / f"model-0000{number}-of-00004.safetensors", "pt") as file:
            assert file.metadata() == {"format": "pt"}


def test_a_set_of_pytorch_files(tmp_path: Path) -> None:
    metadata = {"": {"version": 1}, "m": {"version": 2}}
    content = StateDict(arrays(), metadata=metadata)
    save(content, tmp_path / "pytorch_model.bin", shard_size="0.9KB", digests=True)
    theirs = read_set(tmp_path, "pytorch_model", ".bin")
    assert_holds(theirs, content)
    first = torch.load(tmp_path / "pytorch_model-00001-of-00004.bin", weights_only=True)
    assert first._metadata == metadata


def test_what_fits_is_one_file(tmp_path: Path) -> None:
    save(arrays(), tmp_path, shard_size="5GB")
    assert os.listdir(tmp_path) == ["model.safetensors"]
    theirs = load_file(tmp_path / "model.safetensors")
    assert_holds({name: theirs[name] for name in arrays()}, arrays())
    save({}, tmp_path / "none.bin", shard_size=1)
    assert torch.load(tmp_path / "none.bin") == {}


def test_a_path_names_files_by_its_suffix_and_a_folder_otherwise(tmp_path: Path) -> None:
    (tmp_path / "old.pt").mkdir()
    for path in ("a.v2", "b.bin/", "old.pt"):
        save(arrays(), f"{tmp_path}/{path}", shard_size=900)
        assert_holds(read_set(tmp_path / path), arrays())
    for suffix in (".bin", ".pt", ".pth", ".ckpt", ".safetensors"):
        save(arrays(), tmp_path / f"net.v1{suffix}", shard_size=900)
        assert_holds(read_set(tmp_path, "net.v1", suffix), arrays())
        assert (tmp_path / f"net.v1-00004-of-00004{suffix}").exists()


def test_ties_stay_together(tmp_path: Path) -> None:
    content = arrays()
    content["again"] = content["z"]
    content["part"] = content["a"][:7]
    save(content, tmp_path / "all", shard_size=900)
    assert_holds(read_set(tmp_path / "all"), content)
    index = json.loads((tmp_path / "all" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 6428
    assert index["weight_map"]["again"] == index["weight_map"]["z"]

    save(content, tmp_path / "one", shard_size=900, ties="canonical")
    index = json.loads((tmp_path / "one" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 6028, "again": "z"}
    assert "again" not in index["weight_map"]
    with safe_open(tmp_path / "one" / index["weight_map"]["z"], "pt") as file:
        assert file.metadata() == {"format": "pt", "again": "z"}

    save(content, tmp_path / "m.bin", shard_size=900)
    index = json.loads((tmp_path / "m.bin.index.json").read_text())
    assert index["metadata"]["total_size"] == 6000
    held = torch.load(tmp_path / index["weight_map"]["z"])
    assert held["again"].data_ptr() == held["z"].data_ptr()
    held = torch.load(tmp_path / index["weight_map"]["a"])
    assert held["part"].data_ptr() == held["a"].data_ptr()


def greedy(sizes: list[int], groups: list[int], limit: int) -> list[list[int]]:
    """The rule as Hugging Face's split_torch_state_dict_into_shards states it, told afresh."""
    shards: list[list[int]] = []
    current: list[int] = []
    first: dict[int, int] = {}
    for at, group in enumerate(groups):
        if group in first:
            continue
        first[group] = at
        if sizes[at] > limit:
            shards.append([at])
        elif sum(sizes[other] for other in current) + sizes[at] > limit:
            shards.append(current)
            current = [at]
        else:
            current.append(at)
    shards += [current] if current else []
    for at, group in enumerate(groups):
        if first[group] != at:
            next(shard for shard in shards if first[group] in shard).append(at)
    return [sorted(shard) for shard in shards]


@pytest.mark.parametrize("seed", range(30))
def test_the_split_is_greedy_and_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    groups = [int(rng.integers(at + 1)) if rng.random() < 0.2 else at for at in range(count)]
    groups = [groups[group] if groups[group] < group else group for group in groups]
    groups = [group if groups[group] == group else at for at, group in enumerate(groups)]
    sizes = [int(rng.integers(1, 12)) if groups[at] == at else 0 for at in range(count)]
    shards = split(sizes, groups, 16)
    assert shards == greedy(sizes, groups, 16)
    assert sorted(at for shard in shards for at in shard) == list(range(count))


def test_an_earlier_set_is_removed(tmp_path: Path) -> None:
    for name in ("config.json", "model_ema-00001-of-00004.safetensors", "model-1-of-4.safetensors"):
        (tmp_path / name).write_text("mine")
    mine = sorted(os.listdir(tmp_path))
    save(arrays(), tmp_path, shard_size=900)
    save(arrays(1), tmp_path, shard_size=400)
    assert len(os.listdir(tmp_path)) == len(mine) + 7
    assert_holds(read_set(tmp_path), arrays(1))
    save(arrays(2), tmp_path, shard_size=10**6)
    assert sorted(os.listdir(tmp_path)) == sorted([*mine, "model.safetensors"])
    save(arrays(3), tmp_path, shard_size=900)
    assert len(os.listdir(tmp_path)) == len(mine) + 5
    assert_holds(read_set(tmp_path), arrays(3))


@pytest.mark.parametrize("links", [True, False])
def test_a_set_of_the_same_names_is_replaced(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise PermissionError("no hard links")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for value in range(4):
        save(arrays(value), tmp_path, shard_size=900)
        assert_holds(read_set(tmp_path), arrays(value))
        assert len(os.listdir(tmp_path)) == 5
        proper = (tmp_path / "model-00001-of-00004.safetensors").exists()
        assert proper or not links


class Killed(BaseException):
    """In place of a signal."""


def fail_after(patch: pytest.MonkeyPatch, last: int) -> None:
    """Let the file system do ``last`` changes of names, and no more."""
    done = []

    def count(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if len(done) >= last:
                raise Killed
            done.append(original)
            return original(*args, **options)

        return call

    for name in ("replace", "link", "unlink"):
        patch.setattr(os, name, count(getattr(os, name)))


@pytest.mark.parametrize("later", [900, 400, 10**6], ids=["same names", "more files", "one file"])
def test_a_save_that_is_cut_short_leaves_one_set(tmp_path: Path, later: int) -> None:
    """After each change in the folder, the index leads to all of the old set or all of the new."""
    new_seen, finished, last = 0, False, 0
    while not finished:
        folder = tmp_path / str(last)
        save(arrays(), folder, shard_size=900)
        with pytest.MonkeyPatch.context() as patch:
            fail_after(patch, last)
            try:
                save(arrays(1), folder, shard_size=later)
                finished = True
            except Killed:
                last += 1
        single = folder / "model.safetensors"
        if (folder / "model.safetensors.index.json").exists():
            theirs = read_set(folder)
        else:
            theirs = load_file(single)
        new = float(theirs["z"][0]) == 1
        assert_holds({name: theirs[name] for name in arrays()}, arrays(new))
        assert new or not new_seen
        new_seen += new
        # Whatever was left, the next save of anything puts it right.
        save(arrays(2), folder, shard_size=900)
        assert_holds(read_set(folder), arrays(2))
        assert len(os.listdir(folder)) == 5
    assert new_seen > 1
    assert last > 4


@pytest.mark.parametrize("name", ["model.safetensors", "model.bin"])
def test_a_save_that_fails_leaves_the_old_set_and_no_other_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(arrays(), tmp_path / name, shard_size=900)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    original = _write_shards.write_atomically
    done = []

    def fail(path: Path, write: Any) -> None:
        if len(done) == 2:
            raise OSError("No space left on device")
        done.append(path)
        original(path, write)

    monkeypatch.setattr(_write_shards, "write_atomically", fail)
    for size in (900, 400):
        done.clear()
        with pytest.raises(OSError, match="No space left"):
            save(arrays(1), tmp_path / name, shard_size=size)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": 1}', '{"weight_map": {"a": [1]}}'])
def test_an_index_that_cannot_be_read_is_replaced(tmp_path: Path, text: str) -> None:
    save(arrays(), tmp_path, shard_size=900)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    save(arrays(1), tmp_path, shard_size=900)
    assert_holds(read_set(tmp_path), arrays(1))
    assert len(os.listdir(tmp_path)) == 5


def test_names_in_an_index_are_no_paths(tmp_path: Path) -> None:
    save(arrays(), tmp_path / "a", shard_size=900)
    victim = tmp_path / "model-00001-of-00002.safetensors"
    victim.write_text("mine")
    index = {"weight_map": {"x": "../model-00001-of-00002.safetensors", "y": str(victim)}}
    (tmp_path / "a/model.safetensors.index.json").write_text(json.dumps(index))
    save(arrays(), tmp_path / "a", shard_size=900)
    assert victim.read_text() == "mine"


def test_sizes_are_text_or_numbers() -> None:
    texts = {
        "5GB": 5 * 10**9,
        "5GiB": 5 << 30,
        "1.5 MB": 1_500_000,
        "10k": 10_000,
        "7": 7,
        "2kib": 2048,
    }
    assert {text: size_in_bytes(text) for text in texts} == texts
    assert size_in_bytes(17) == 17
    wrong: list[Any] = ["", "5 apples", "-1GB", 0, -3, True, 1.5, "0"]
    for size in wrong:
        with pytest.raises(ValueError, match="shard size"):
            size_in_bytes(size)


WRONG: list[tuple[Any, str, dict[str, Any], str]] = [
    ([np.ones(1)], "m.bin", {}, "a set of files holds a mapping of names to arrays, not a list"),
    ({1: np.ones(1)}, "m.bin", {}, "1 cannot name a tensor in a set of files"),
    ({"a": np.ones(1)}, "m.bin", {"metadata": {"a": "b"}}, "in .safetensors files only"),
    ({"a": 1}, "m.safetensors", {}, "entry 'a': a .safetensors file has no place for a int"),
]


@pytest.mark.parametrize(("value", "name", "options", "text"), WRONG)
def test_what_cannot_be_split_is_named(
    tmp_path: Path, value: Any, name: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(Unwritable, match=text) as caught:
        save(value, tmp_path / name, shard_size=1, **options)
    assert name in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_pytorch_set_holds_plain_values_too(tmp_path: Path) -> None:
    content = {**arrays(), "extra": {"step": 3}}
    save(content, tmp_path / "m.bin", shard_size=900)
    index = json.loads((tmp_path / "m.bin.index.json").read_text())
    assert torch.load(tmp_path / index["weight_map"]["extra"])["extra"] == {"step": 3}


def test_the_set_is_locked_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    original = _write_shards.write_safetensors
    tries = []

    def write(*args: Any) -> None:
        descriptor = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tries.append("locked")
        finally:
            os.close(descriptor)
        original(*args)

    monkeypatch.setattr(_write_shards, "write_safetensors", write)
    save(arrays(), tmp_path, shard_size=900)
    assert tries == ["locked"] * 4


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_set_loads_under_its_path_and_a_whole_replaces_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    save(arrays(), path, shard_size=100)
    assert not path.exists()
    assert load(path).keys() == arrays().keys()
    (tmp_path / "notes.txt").touch()
    save(arrays(1), path)
    assert sorted(os.listdir(tmp_path)) == [f"model{suffix}", "notes.txt"]
    found = load(path)
    assert all(np.array_equal(found[name], array) for name, array in arrays(1).items())
