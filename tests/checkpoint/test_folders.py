"""Folders of checkpoint files: together the parts are what torch reads, and no name escapes."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from bridge import StateDict
from bridge.checkpoint import BadFormat, CheckpointError, Truncated, Unsafe, Unsupported, load
from bridge.checkpoint._files import read_content
from bridge.checkpoint._index import file_in
from tests.checkpoint.agree import assert_agree


TENSORS = {
    "b.weight": torch.arange(12.0).reshape(3, 4),
    "b.bias": torch.arange(3).to(torch.bfloat16),
    "a.weight": torch.arange(6).reshape(2, 3),
    "a.running": torch.tensor(7),
}
SPLIT = (("b.weight", "a.running"), ("b.bias", "a.weight"))
KINDS = {
    "safetensors": ("model-{:05d}-of-00002.safetensors", "model.safetensors.index.json"),
    "torch": ("pytorch_model-{:05d}-of-00002.bin", "pytorch_model.bin.index.json"),
}


def write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
    else:
        torch.save(tensors, path)


def write_shards(folder: Path, kind: str) -> dict[str, str]:
    """The two files of a kind; the map that an index of them has, as transformers sorts it."""
    home = {}
    for number, names in enumerate(SPLIT, start=1):
        file = KINDS[kind][0].format(number)
        write(folder / file, {name: TENSORS[name] for name in names})
        home |= dict.fromkeys(names, file)
    return dict(sorted(home.items()))


def write_index(folder: Path, kind: str, weight_map: Any, **more: Any) -> Path:
    path = folder / KINDS[kind][1]
    path.write_text(json.dumps({"metadata": more, "weight_map": weight_map}, indent=2) + "\n")
    return path


def size() -> int:
    return sum(tensor.nbytes for tensor in TENSORS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_index(tmp_path: Path, kind: str) -> None:
    weight_map = write_shards(tmp_path, kind)
    index = write_index(tmp_path, kind, weight_map, total_size=size())
    for path in (tmp_path, str(tmp_path) + "/", index):
        result = load(path)
        assert type(result) is StateDict
        assert list(result) == list(weight_map)
        for name, tensor in TENSORS.items():
            assert_agree(result[name], tensor)
    content = read_content(tmp_path)
    assert content.notes == ()
    assert content.files == tuple(str(tmp_path / file) for file in dict.fromkeys(weight_map.values()))
    assert content.format.endswith(" folder")


def test_index_beside_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(tmp_path, "torch", write_shards(tmp_path, "torch"))
    monkeypatch.chdir(tmp_path)
    assert set(load("pytorch_model.bin.index.json")) == set(TENSORS)
    assert set(load(".")) == set(TENSORS)


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_index(tmp_path: Path, kind: str) -> None:
    write_shards(tmp_path, kind)
    (tmp_path / "config.json").write_text("{}")
    result = load(tmp_path)
    # In the order of the files; safetensors sorts the names in a file, torch does not.
    order = [name for names in SPLIT for name in names]
    assert (sorted(result) if kind == "safetensors" else list(result)) == (
        sorted(order) if kind == "safetensors" else order
    )
    for name, tensor in TENSORS.items():
        assert_agree(result[name], tensor)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_number(tmp_path: Path, kind: str) -> None:
    write_shards(tmp_path, kind)
    (tmp_path / KINDS[kind][0].format(1)).unlink()
    with pytest.raises(Truncated, match="1 of 2 files are there; number 1 of"):
        load(tmp_path)


def test_one_file_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", TENSORS)
    torch.save({"lr": 0.1}, tmp_path / "training_args.bin")  # As the trainer leaves beside it.
    torch.save({}, tmp_path / "optimizer.pt")
    assert set(load(tmp_path)) == set(TENSORS)


def test_one_torch_file_in_a_folder(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "weights.pth")
    assert list(load(tmp_path)) == list(TENSORS)


def test_no_checkpoint_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint files in this folder"):
        load(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("model.safetensors", "pytorch_model.bin"),
        ("one.pt", "two.pt"),
        ("model-00001-of-00001.safetensors", "other-00001-of-00001.safetensors"),
    ],
    ids=["two kinds", "two files", "two counts"],
)
def test_several_checkpoints(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        write(tmp_path / name, TENSORS)
    with pytest.raises(Unsupported, match="holds 2 checkpoints") as caught:
        load(tmp_path)
    for name in names:
        assert repr(str(tmp_path / name)) in str(caught.value)


def test_two_indices(tmp_path: Path) -> None:
    for kind in KINDS:
        write_index(tmp_path, kind, write_shards(tmp_path, kind))
    with pytest.raises(Unsupported, match=r"model\.safetensors\.index\.json"):
        load(tmp_path)


def test_an_index_owns_the_files_of_its_kind(tmp_path: Path) -> None:
    write_index(tmp_path, "safetensors", write_shards(tmp_path, "safetensors"))
    write(tmp_path / "consolidated.safetensors", TENSORS)
    assert set(load(tmp_path)) == set(TENSORS)


def test_what_the_index_does_not_say(tmp_path: Path) -> None:
    weight_map = write_shards(tmp_path, "safetensors")
    del weight_map["a.running"]
    write_index(tmp_path, "safetensors", weight_map, total_size=5)
    content = read_content(tmp_path)
    assert list(content.value) == [*weight_map, "a.running"]
    assert content.notes == (
        "The index does not list 1 of the tensors in the files: 'a.running'.",
        f"The index says 5 bytes, the tensors have {size()}.",
    )


@pytest.mark.parametrize("total", [float(size()), "many", None, -1.5], ids=repr)
def test_total_size_decides_nothing(tmp_path: Path, total: Any) -> None:
    write_index(tmp_path, "safetensors", write_shards(tmp_path, "safetensors"), total_size=total)
    assert set(load(tmp_path)) == set(TENSORS)


OUTSIDE = [
    "../secret.safetensors",
    "..",
    ".",
    "sub/secret.safetensors",
    "/secret.safetensors",
    "C:secret.safetensors",
    "..\\secret.safetensors",
    "secret.safetensors\0",
    "secret.safetensors.",
    "secret\n.safetensors",
]


@pytest.mark.parametrize("name", OUTSIDE, ids=repr)
def test_a_name_outside_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder, folder / "sub"):
        write(place / "secret.safetensors", TENSORS)
    write_index(folder, "safetensors", dict.fromkeys(TENSORS, name))
    with pytest.raises(Unsafe, match="is a path"):
        load(folder)


def test_an_absolute_name(tmp_path: Path) -> None:
    write(tmp_path / "secret.safetensors", TENSORS)
    (tmp_path / "folder").mkdir()
    weight_map = dict.fromkeys(TENSORS, str(tmp_path / "secret.safetensors"))
    write_index(tmp_path / "folder", "safetensors", weight_map)
    with pytest.raises(Unsafe, match="is a path"):
        load(tmp_path / "folder")


@pytest.mark.parametrize("name", [7, None, "", ["x"], "x" * 300], ids=["7", "None", "''", "[]", "long"])
def test_a_name_that_is_none(tmp_path: Path, name: Any) -> None:
    write_index(tmp_path, "safetensors", {"a": name})
    with pytest.raises(BadFormat, match="a file's name must be text"):
        load(tmp_path)


def test_links_as_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    snapshot = tmp_path / "snapshots" / "0123abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    weight_map = write_shards(blobs, "safetensors")
    write_index(blobs, "safetensors", weight_map)
    for number, path in enumerate(sorted(blobs.iterdir())):
        path.rename(blobs / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    assert set(load(snapshot)) == set(TENSORS)
    assert set(load(snapshot / KINDS["safetensors"][1])) == set(TENSORS)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a link away")
def test_a_link_of_somebody_else(tmp_path: Path) -> None:
    write(tmp_path / "x.safetensors", TENSORS)
    (tmp_path / "model.safetensors").symlink_to("x.safetensors")
    os.lchown(tmp_path / "model.safetensors", 12345, 12345)
    with pytest.raises(Unsafe, match="somebody else"):
        file_in(str(tmp_path), "model.safetensors")


def test_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    write_index(tmp_path, "safetensors", {"a": "pipe.safetensors"})
    with pytest.raises(Unsupported, match="not a regular file"):
        load(tmp_path)


def test_a_missing_file(tmp_path: Path) -> None:
    write_index(tmp_path, "safetensors", {"a": "model-00001-of-00001.safetensors"})
    with pytest.raises(Truncated, match="is missing from the folder"):
        load(tmp_path)


def test_an_index_that_lists_itself(tmp_path: Path) -> None:
    index = write_index(tmp_path, "safetensors", {"a": KINDS["safetensors"][1]})
    with pytest.raises(BadFormat, match="which is an index"):
        load(index)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    weight_map = write_shards(tmp_path, "safetensors")
    write(tmp_path / KINDS["safetensors"][0].format(2), TENSORS)
    for index in (False, True):
        if index:
            write_index(tmp_path, "safetensors", weight_map)
        with pytest.raises(BadFormat, match="both hold this tensor") as caught:
            load(tmp_path)
        assert caught.value.entry in SPLIT[0]


def test_a_tensor_where_the_index_does_not_say(tmp_path: Path) -> None:
    weight_map = write_shards(tmp_path, "torch")
    one, two = sorted(set(weight_map.values()))
    write_index(tmp_path, "torch", weight_map | {"b.weight": two})
    with pytest.raises(BadFormat, match=f"'{two}' holds this tensor, but it is in '{one}'"):
        load(tmp_path)
    write_index(tmp_path, "torch", weight_map | {"c": two})
    with pytest.raises(BadFormat, match="no file holds it"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"weight_map": {"a": "x.bin", "a": "y.bin"}}', "occurs twice"),
        ('{"weight_map": {}, "weight_map": {}}', "occurs twice"),
        ('{"weight_map": ', "not valid JSON"),
        ('{"weight_map": NaN}', "not valid JSON"),
        ('{"weight_map": ' + '{"a":' * 100_000, "not valid JSON"),
        ('{"weight_map": []}', "no index of a checkpoint"),
        ('{"architectures": []}', "no index of a checkpoint"),
        ('{"weight_map": {"\\ud800": "x.bin"}, "x": "\xff"}', "is missing"),
    ],
    ids=["two names", "two maps", "cut", "NaN", "deep", "a list", "a configuration", "surrogate"],
)
def test_an_index_that_is_none(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=problem) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_an_index_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    with open(path, "wb") as file:
        file.write(b'{"weight_map": {}}'.ljust(100, b" "))
        file.truncate((64 << 20) + 1)
    with pytest.raises(BadFormat, match="is the limit"):
        load(path)


def test_a_safetensors_file_that_starts_with_a_brace(tmp_path: Path) -> None:
    # Its header has 0x7b bytes, and 0x7b is a brace.
    head = b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'.ljust(0x7B)
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\x05")
    assert load(path)["x"] == np.array([5], np.uint8)


def test_versions_of_modules_are_kept(tmp_path: Path) -> None:
    norm = torch.nn.BatchNorm1d(2).state_dict()
    torch.save(norm, tmp_path / "model-00001-of-00001.bin")
    assert load(tmp_path).metadata == dict(norm._metadata)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_whole_beside_shards_of_another_save_is_another_checkpoint(tmp_path: Path) -> None:
    write_shards(tmp_path, "safetensors")
    write(tmp_path / "model.safetensors", {"w": torch.ones(1)})
    write_index(tmp_path, "safetensors", {"w": "model-00001-of-00002.safetensors"})
    with pytest.raises(Unsupported, match=r"2 checkpoints.*model.safetensors'"):
        load(tmp_path)


def test_files_that_do_not_count_are_not_put_together(tmp_path: Path) -> None:
    for name in ("encoder", "decoder"):
        write(tmp_path / f"{name}.safetensors", {name: torch.ones(1)})
    with pytest.raises(Unsupported, match=r"2 checkpoints.*Name one of"):
        load(tmp_path)
