"""A model's checkpoint is torch's: names, order, versions, dtypes and ties."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model

import bridge
import purestate as ps
from bridge.checkpoint import Unwritable
from purestate import nn


def define(nn):
    """One class for both libraries."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embed.weight

    return Net


Ours, Theirs = define(nn), define(torch.nn)


@pytest.fixture
def model():
    return ps.init(Ours(), jax.random.key(0))


def assert_same(theirs, ours) -> None:
    assert list(theirs) == list(ours)
    for name, tensor in theirs.items():
        array = np.asarray(ours[name])
        assert tensor.numpy().dtype == array.dtype, name
        assert tensor.numpy().tobytes() == array.tobytes(), name


def test_torch_reads_a_pytorch_file(model, tmp_path: Path) -> None:
    bridge.save_checkpoint(model, tmp_path / "m.pt", digests=True)
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert_same(theirs, bridge.state_dict(model))
    assert theirs["body.1.num_batches_tracked"].dtype == torch.int64
    assert theirs["head.weight"].data_ptr() == theirs["embed.weight"].data_ptr()
    assert dict(theirs._metadata) == dict(Theirs().state_dict()._metadata)
    module = Theirs()
    assert str(module.load_state_dict(theirs)) == "<All keys matched successfully>"


def test_safetensors_reads_a_canonical_file(model, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    bridge.save_checkpoint(model, path, ties="canonical", metadata={"format": "pt", "by": "us"})
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "by": "us", "head.weight": "embed.weight"}
    module = Theirs()
    missing, unexpected = load_model(module, path)
    assert not missing
    assert not unexpected
    assert_same(module.state_dict(), bridge.state_dict(model))


def test_a_set_of_files(model, tmp_path: Path) -> None:
    bridge.save_checkpoint(model, tmp_path, shard_size=100)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    files = {file: load_file(tmp_path / file) for file in set(index.values())}
    assert len(files) > 1
    assert_same({name: files[file][name] for name, file in index.items()}, bridge.state_dict(model))


def test_a_part_of_a_model(model, tmp_path: Path) -> None:
    bridge.save_checkpoint(model, tmp_path / "m.pt", where="body.1")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert list(theirs) == [f"body.1.{name}" for name in Theirs().body[1].state_dict()]


class Wide(nn.Module):
    """Two names of one counter that JAX holds narrower than torch."""

    def __init__(self):
        super().__init__()
        counter = np.array(2**20, np.int64)
        self.register_buffer("a", counter)
        self.b = nn.Module()
        self.b.register_buffer("c", counter)


def test_a_tied_counter_is_wide_and_tied(tmp_path: Path) -> None:
    model = Wide()
    bridge.save_checkpoint(model, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert theirs["a"].dtype == torch.int64
    assert theirs["a"].item() == 2**20
    assert theirs["a"].data_ptr() == theirs["b.c"].data_ptr()


class Twins(nn.Module):
    """Two parameters that are made of one array, and are not tied."""

    def __init__(self):
        super().__init__()
        array = jnp.ones((2, 3))
        self.a = nn.Parameter(array)
        self.b = nn.Parameter(array)


def test_what_is_not_tied_in_the_model_is_not_in_the_file(tmp_path: Path) -> None:
    array = jnp.arange(6.0).reshape(2, 3)
    model = ps.replace(Twins(), {"a": array, "b": array})
    assert model.a is model.b
    assert len(list(model.named_parameters())) == 2
    bridge.save_checkpoint(model, tmp_path / "m.safetensors", ties="canonical")
    theirs = load_file(tmp_path / "m.safetensors")
    assert theirs["a"].tolist() == theirs["b"].tolist() == array.tolist()
    bridge.save_checkpoint(model, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert theirs["a"].data_ptr() != theirs["b"].data_ptr()
    assert theirs["b"].tolist() == array.tolist()


def test_a_model_without_values_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ps.UninitializedError, match=r"'embed.weight'.*\n.*purestate.init\(model, rng"):
        bridge.save_checkpoint(Ours(), tmp_path / "m.pt")
    with pytest.raises(ps.UninitializedError, match="lazy layer"):
        bridge.save_checkpoint(nn.Sequential(nn.LazyLinear(3)), tmp_path / "m.pt")
    assert not list(tmp_path.iterdir())


class Extra(nn.Module):
    """A layer with state that is no array."""

    def get_extra_state(self):
        return {"step": 3}


def test_extra_state_has_a_place_in_pytorch_files_only(tmp_path: Path) -> None:
    model = nn.Sequential(Extra())
    bridge.save_checkpoint(model, tmp_path / "m.pt")
    assert torch.load(tmp_path / "m.pt", weights_only=True) == {"0._extra_state": {"step": 3}}
    with pytest.raises(Unwritable, match=r"entry '0\._extra_state'"):
        bridge.save_checkpoint(model, tmp_path / "m.safetensors")


def test_arrays_spread_over_processes_are_refused_with_the_lines_to_write(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tests.checkpoint.spread_job"]
    workers = [
        subprocess.Popen([*command, rank, port, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert set(torch.load(tmp_path / "m.pt", weights_only=True)) > {"embed.weight", "head.weight"}
