"""One network in both libraries, and its state_dict in every kind of file that torch's side writes."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors.torch
import torch

import bridge
from purestate import nn


class Net(nn.Module):
    """A tied head, statistics with an integer, and a buffer that is not saved."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))
        self.head = nn.Linear(width, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scratch", jnp.ones(4), persistent=False)


def torch_net(width: int = 8, seed: int = 0) -> torch.nn.Module:
    """The same in torch, with its class's name, and drawn."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, width)
            self.body = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))
            self.head = torch.nn.Linear(width, 10, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("scratch", torch.ones(4), persistent=False)

    torch.manual_seed(seed)
    net = Net()
    net.body(torch.randn(5, width))
    return net


def as_zip(sd: dict[str, Any], folder: Path) -> Path:
    torch.save(sd, folder / "net.pt")
    return folder / "net.pt"


def as_legacy(sd: dict[str, Any], folder: Path) -> Path:
    torch.save(sd, folder / "net.pth", _use_new_zipfile_serialization=False)
    return folder / "net.pth"


def as_safetensors(sd: dict[str, Any], folder: Path) -> Path:
    # An odd header makes every tensor unaligned.
    safetensors.torch.save_file(
        {k: v.clone() for k, v in sd.items()}, folder / "x.safetensors", {"a": "b"}
    )
    return folder / "x.safetensors"


def as_folder(sd: dict[str, Any], folder: Path) -> Path:
    folder = folder / "sharded"
    folder.mkdir(exist_ok=True)
    weight_map = {}
    for number, (name, tensor) in enumerate(sd.items(), start=1):
        file = f"model-{number:05d}-of-{len(sd):05d}.safetensors"
        safetensors.torch.save_file({name: tensor.clone()}, folder / file)
        weight_map[name] = file
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def as_trainer(sd: dict[str, Any], folder: Path) -> Path:
    optimizer = torch.optim.SGD([torch.ones(1)]).state_dict()
    torch.save({"epoch": 3, "state_dict": sd, "optimizer": optimizer}, folder / "last.ckpt")
    return folder / "last.ckpt"


WRITERS = {f.__name__: f for f in (as_zip, as_legacy, as_safetensors, as_folder, as_trainer)}


def assert_equal(model: Any, sd: dict[str, torch.Tensor]) -> None:
    """That a model's saved arrays are torch's, in names, order, dtypes and bytes."""
    ours = bridge.state_dict(model)
    assert list(ours) == list(sd)
    for name, tensor in sd.items():
        array = np.asarray(ours[name])
        expected = tensor.detach().numpy()
        assert array.dtype == expected.dtype, name
        assert array.tobytes() == expected.tobytes(), name
