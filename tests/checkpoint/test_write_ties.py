"""Ties in safetensors files: every name, or one name and a note that safetensors itself reads."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_model

from bridge.checkpoint import Unwritable, load, save


class Tied(torch.nn.Module):
    """An embedding whose table is the output layer's weight, and a third name for it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.inner = torch.nn.Linear(4, 4)
        self.out = torch.nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.zhead = torch.nn.Linear(4, 5)
        self.zhead.weight = self.embed.weight


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_safetensors_loads_a_canonical_file_into_a_tied_module(tmp_path: Path) -> None:
    source, target = Tied(), Tied()
    save(arrays_of(source), tmp_path / "m.safetensors", ties="canonical")
    missing, unexpected = load_model(target, tmp_path / "m.safetensors")
    assert (set(missing), unexpected) == (set(), [])
    assert target.out.weight is target.embed.weight
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)


def test_the_note_is_the_one_that_safetensors_makes(tmp_path: Path) -> None:
    model = Tied()
    save(arrays_of(model), tmp_path / "ours.safetensors", ties="canonical")
    save_model(model, str(tmp_path / "theirs.safetensors"), metadata={"format": "pt"})
    assert metadata_of(tmp_path / "ours.safetensors") == metadata_of(tmp_path / "theirs.safetensors")
    ours, theirs = (load_file(tmp_path / f"{who}.safetensors") for who in ("ours", "theirs"))
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_first_name_is_kept(tmp_path: Path) -> None:
    array = np.arange(6.0)
    content = {"z": array, "a": array, "b": array.view(), "c": array.copy(), "d": array[:3]}
    save(content, tmp_path / "m.safetensors", ties="canonical")
    assert metadata_of(tmp_path / "m.safetensors") == {"format": "pt", "a": "z", "b": "z"}
    assert set(load_file(tmp_path / "m.safetensors")) == {"z", "c", "d"}


def test_every_name_is_written_if_not_asked_otherwise(tmp_path: Path) -> None:
    save(arrays_of(Tied()), tmp_path / "m.safetensors")
    assert set(load_file(tmp_path / "m.safetensors")) == set(Tied().state_dict())
    assert metadata_of(tmp_path / "m.safetensors") == {"format": "pt"}


NOT_TIED: dict[str, tuple[Any, Any]] = {
    "shape": (lambda x: x, lambda x: x.reshape(2, 3)),
    "transposed": (lambda x: x.reshape(2, 3), lambda x: x.reshape(2, 3).T),
    "dtype": (lambda x: x, lambda x: x.view(np.int64)),
    "part": (lambda x: x, lambda x: x[:3]),
    "backwards": (lambda x: x, lambda x: x[::-1]),
    "empty": (lambda x: x[:0], lambda x: x[:0]),
}


@pytest.mark.parametrize("name", NOT_TIED)
def test_only_the_same_numbers_are_tied(tmp_path: Path, name: str) -> None:
    base = np.arange(6.0)
    content = {str(at): view(base) for at, view in enumerate(NOT_TIED[name])}
    save(content, tmp_path / "m.safetensors", ties="canonical")
    theirs = load_file(tmp_path / "m.safetensors")
    assert {key: tensor.tolist() for key, tensor in theirs.items()} == {
        key: array.tolist() for key, array in content.items()
    }


def test_jax_arrays_are_tied_by_their_object(tmp_path: Path) -> None:
    array = jnp.ones(3)
    save({"a": array, "b": array}, tmp_path / "m.safetensors", ties="canonical")
    assert metadata_of(tmp_path / "m.safetensors") == {"format": "pt", "b": "a"}


def test_a_name_that_the_table_needs_is_written_in_full(tmp_path: Path) -> None:
    array = np.ones(2)
    content = dict.fromkeys(["a", "format", "sha256", "b"], array)
    save(content, tmp_path / "m.safetensors", ties="canonical", digests=True)
    assert set(load_file(tmp_path / "m.safetensors")) == {"a", "format", "sha256"}
    table = metadata_of(tmp_path / "m.safetensors")
    assert (table["format"], table["b"]) == ("pt", "a")
    assert set(json.loads(table["sha256"])) == {"a", "format", "sha256"}


def test_a_pytorch_file_keeps_ties_whatever_is_asked(tmp_path: Path) -> None:
    array = np.ones(2)
    for ties in ("all", "canonical"):
        save({"a": array, "b": array}, tmp_path / "m.pt", ties=ties)
        theirs = torch.load(tmp_path / "m.pt", weights_only=True)
        assert theirs["a"].data_ptr() == theirs["b"].data_ptr()


def test_other_ways_are_refused(tmp_path: Path) -> None:
    wrong: Any = "first"
    with pytest.raises(ValueError, match="'all' or 'canonical', not 'first'"):
        save({"a": np.ones(1)}, tmp_path / "m.safetensors", ties=wrong)
    with pytest.raises(Unwritable, match="'sha256' already"):
        save({}, tmp_path / "m.safetensors", metadata={"sha256": "x"}, digests=True)
    assert not list(tmp_path.iterdir())


def test_ours_is_read_back(tmp_path: Path) -> None:
    array = np.ones(2)
    save({"a": array, "b": array}, tmp_path / "m.safetensors", ties="canonical")
    assert load(tmp_path / "m.safetensors")["a"].tolist() == [1, 1]


def test_names_that_save_model_left_out_are_given_back_tied(tmp_path: Path) -> None:
    model = Tied()
    save_model(model, str(tmp_path / "m.safetensors"))
    ours = load(tmp_path / "m.safetensors")
    assert set(ours) == set(model.state_dict())
    assert ours["embed.weight"] is ours["out.weight"] is ours["zhead.weight"]
    save(ours, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert str(Tied().load_state_dict(theirs)) == "<All keys matched successfully>"
    assert theirs["embed.weight"].data_ptr() == theirs["zhead.weight"].data_ptr()


def test_texts_that_are_no_names_of_tensors_give_none(tmp_path: Path) -> None:
    content = {"pt": np.ones(2), "w": np.zeros(3), "by": np.ones(1)}
    texts = {"format": "pt", "by": "w", "kind": "W", "about": ""}
    save(content, tmp_path / "m.safetensors", metadata=texts)
    ours = load(tmp_path / "m.safetensors")
    assert list(ours) == list(content)
    assert ours["by"].tolist() == [1]
    array = np.ones(2)
    save({"pt": array, "format": array}, tmp_path / "m.safetensors", metadata={}, ties="canonical")
    assert set(load(tmp_path / "m.safetensors")) == {"pt", "format"}


def test_a_table_that_came_from_a_canonical_file_may_be_written_with_its_tensors(
    tmp_path: Path,
) -> None:
    array = np.arange(4.0)
    save({"a": array, "b": array}, tmp_path / "m.safetensors", ties="canonical")
    texts = metadata_of(tmp_path / "m.safetensors")
    ours = load(tmp_path / "m.safetensors")
    save(ours, tmp_path / "again.safetensors", metadata=texts, ties="canonical")
    assert metadata_of(tmp_path / "again.safetensors") == texts
    assert set(load_file(tmp_path / "again.safetensors")) == {"a"}


def test_ties_in_several_files(tmp_path: Path) -> None:
    """A table may speak of another file's tensors, as when a set was made of one file."""
    save({"a": np.ones(2)}, tmp_path / "m-00001-of-00002.safetensors", metadata={"b": "c", "d": "a"})
    save({"b": np.zeros(2), "c": np.ones(3)}, tmp_path / "m-00002-of-00002.safetensors")
    ours = load(tmp_path)
    assert {name: array.tolist() for name, array in ours.items()} == {
        "a": [1, 1],
        "b": [0, 0],
        "c": [1, 1, 1],
        "d": [1, 1],
    }
    assert ours["d"] is ours["a"]
