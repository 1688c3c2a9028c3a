"""Small good files of every format, made by torch and safetensors, to be damaged.

A seed is a small folder: file name to bytes. ``Seed.target`` names what is opened (a file of it, or
"" for the folder itself).
"""

import io
import json
import pickle
import shutil
import struct
import tempfile
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from tests.hostile.mutations import write_tar


@dataclass(frozen=True)
class Seed:
    """One good checkpoint.

    Attributes:
        format: One of ``FORMATS``.
        name: What it holds.
        target: What to open, relative to its folder.
        kinds: For each file that may be damaged, which kind of file it is.
    """

    format: str
    name: str
    target: str
    kinds: dict[str, str]


class Net(torch.nn.Module):
    """A tie, a counter, a buffer: small, and with everything that names can do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(3, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.head = torch.nn.Linear(2, 3)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x))


def contents() -> dict[str, Any]:
    """What the pickled formats hold."""
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(6, generator=generator)
    net = Net()
    for parameter in net.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    optimizer = torch.optim.Adam(net.parameters())
    net(base.reshape(3, 2)).sum().backward()
    optimizer.step()
    trainer = {
        "state_dict": net.state_dict(),
        "epoch": 3,
        "lr": 0.1,
        "names": ["a", b"b", None, True],
        "optimizer": optimizer.state_dict(),
    }
    views = {
        "base": base,
        "odd": base[1::2],
        "turned": base.reshape(2, 3).t(),
        "wide": base[:1].expand(4),
        "empty": base[:0],
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "conj": torch.complex(base, -base).conj(),
        "truth": base > 0,
        "short": torch.arange(5).to(torch.uint16),
    }
    return {"trainer": trainer, "views": views, "tensor": base, "tensors": [base, base.double()]}


def tar_file() -> bytes:
    """A file as PyTorch wrote before 0.1.10: two tensors over one storage, and one alone."""

    class Named:
        def __init__(self, key: int) -> None:
            self.key = key

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return obj.key if isinstance(obj, Named) else None

    content = io.BytesIO()
    Pickler(content, 2).dump({"a": Named(11), "b": Named(12), "c": Named(13), "n": 3})

    def row(key: int, storage: int, cls: type, size: tuple, stride: tuple, offset: int) -> bytes:
        count = len(size)
        numbers = struct.pack(f"<i4x{2 * count}qq", count, *size, *stride, offset)
        return pickle.dumps((key, storage, cls), 2) + numbers

    storages = pickle.dumps(2, 2)
    storages += pickle.dumps((1, "cpu", torch.FloatStorage), 2)
    storages += struct.pack("<q6f", 6, *range(6))
    storages += pickle.dumps((2, "cpu", torch.LongStorage), 2) + struct.pack("<q2q", 2, 7, -8)
    storages += pickle.dumps([(3, 1, 2, 4)], 2)
    tensors = pickle.dumps(3, 2)
    tensors += row(11, 1, torch.FloatTensor, (2, 3), (3, 1), 0)
    tensors += row(12, 3, torch.FloatTensor, (2,), (1,), 1)
    tensors += row(13, 2, torch.LongTensor, (2,), (1,), 0)
    info = {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2}}
    return write_tar(
        [
            ("sys_info", pickle.dumps(info, 2)),
            ("pickle", content.getvalue()),
            ("tensors", tensors),
            ("storages", storages),
        ]
    )


def make_seeds(folder: Path) -> list[Seed]:
    """Write every seed to ``folder/<number>/`` and return them in that order."""
    seeds: list[Seed] = []

    def place(seed: Seed) -> Path:
        seeds.append(seed)
        path = folder / str(len(seeds) - 1)
        path.mkdir()
        return path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in contents().items():
            torch.save(value, place(Seed("zip", name, "m.pt", {"m.pt": "zip"})) / "m.pt")
            if name != "views":
                path = place(Seed("legacy", name, "m.pt", {"m.pt": "legacy"})) / "m.pt"
                torch.save(value, path, _use_new_zipfile_serialization=False)
        torch.save(Net(), place(Seed("zip", "module", "m.pt", {"m.pt": "zip"})) / "m.pt")
        path = place(Seed("legacy", "module", "m.pt", {"m.pt": "legacy"})) / "m.pt"
        torch.save(torch.nn.Linear(2, 2), path, _use_new_zipfile_serialization=False)
        path = place(Seed("tar", "views", "m.pt", {"m.pt": "tar"})) / "m.pt"
        path.write_bytes(tar_file())
        for name, tensors in _named_tensors().items():
            seed = Seed("safetensors", name, "m.safetensors", {"m.safetensors": "safetensors"})
            metadata = {"format": "pt"} if name == "dtypes" else None
            safetensors.torch.save_file(tensors, place(seed) / "m.safetensors", metadata)
        script = torch.jit.script(Net().eval())
        torch.jit.save(script, place(Seed("torchscript", "net", "m.pt", {"m.pt": "zip"})) / "m.pt")
        exported = torch.export.export(Net().eval(), (torch.ones(3, 2),))
        torch.export.save(exported, place(Seed("pt2", "net", "m.pt2", {"m.pt2": "zip"})) / "m.pt2")
        _sharded(place)
        _distributed(place)
    return seeds


def _named_tensors() -> dict[str, dict[str, torch.Tensor]]:
    views = contents()["views"]
    names = ["base", "half", "bfloat16", "truth", "short", "empty"]
    dtypes = {name: views[name].clone() for name in names}
    dtypes["float8"] = views["base"].to(torch.float8_e4m3fn)
    dtypes["scalar"] = torch.tensor(7)
    return {"dtypes": dtypes, "one": {"w": views["base"]}, "none": {}}


def _sharded(place: Any) -> None:
    tensors = _named_tensors()["dtypes"]
    halves = [dict(list(tensors.items())[:4]), dict(list(tensors.items())[4:])]
    for suffix, kind in ((".safetensors", "safetensors"), (".bin", "zip")):
        stem = "model" if kind == "safetensors" else "pytorch_model"
        files = [f"{stem}-0000{n}-of-00002{suffix}" for n in (1, 2)]
        index = f"{stem}{suffix}.index.json"
        seed = Seed("index", kind, "", {index: "json", files[0]: kind, files[1]: kind})
        path = place(seed)
        table: dict[str, str] = {}
        for file, part in zip(files, halves, strict=True):
            if kind == "zip":
                torch.save(OrderedDict(part), path / file)
            else:
                safetensors.torch.save_file(part, path / file)
            table |= dict.fromkeys(part, file)
        total = sum(value.nbytes for value in tensors.values())
        text = {"metadata": {"total_size": total}, "weight_map": table}
        (path / index).write_text(json.dumps(text, indent=2))


def _distributed(place: Any) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save

    net = Net()
    state = {"model": net.state_dict(), "step": 3}
    with tempfile.TemporaryDirectory() as made:
        save(state, checkpoint_id=made, no_dist=True)
        data = sorted(file.name for file in Path(made).iterdir())
        kinds = {name: "pickle" if name == ".metadata" else "zips" for name in data}
        path = place(Seed("dcp", "net", "", kinds))
        for name in data:
            shutil.copy(Path(made) / name, path / name)


FORMATS = ("zip", "legacy", "tar", "safetensors", "torchscript", "pt2", "index", "dcp")
