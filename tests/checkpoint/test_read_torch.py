"""Files that PyTorch wrote come back as PyTorch reads them."""

import copy
import gc
import io
import os
import pickle
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge import StateDict
from bridge.checkpoint import load
from bridge.checkpoint._dtypes import TORCH_DTYPES
from bridge.checkpoint._source import place_of
from tests.checkpoint.agree import FORMATS, assert_agree, numpy_dtype, torch_save


def numbers(dtype: torch.dtype, count: int = 24) -> torch.Tensor:
    """Varied bits that are valid numbers of ``dtype``."""
    generator = torch.Generator().manual_seed(7)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    width = numpy_dtype(dtype).itemsize
    return torch.randint(0, 256, (count * width,), generator=generator, dtype=torch.uint8).view(dtype)


OLD_DTYPES = [name for name in TORCH_DTYPES if "float8" not in name and name[:5] != "uint1"]
OLD_DTYPES = [
    name for name in OLD_DTYPES if name not in ("uint32", "uint64", "complex32", "float4_e2m1fn_x2")
]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_every_dtype_in_zip(tmp_path: Path, name: str) -> None:
    tensor = numbers(getattr(torch, name))
    path = torch_save({"flat": tensor, "square": tensor.reshape(4, 6)}, tmp_path / "f.pt", "zip")
    assert_agree(load(path), torch.load(path))


@pytest.mark.parametrize("name", OLD_DTYPES)
def test_every_dtype_in_legacy(tmp_path: Path, name: str) -> None:
    tensor = numbers(getattr(torch, name))
    path = torch_save({"flat": tensor, "square": tensor.reshape(4, 6)}, tmp_path / "f", "legacy")
    assert_agree(load(path), torch.load(path))


def views() -> dict[str, torch.Tensor]:
    base = torch.arange(24.0).reshape(2, 3, 4)
    complex_base = torch.complex(base, -base)
    return {
        "base": base,
        "transposed": base.transpose(0, 2),
        "sliced": base[1, ::2, 1:3],
        "offset": base.reshape(-1)[5:9],
        "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
        "scalar": torch.tensor(3.5),
        "one of many": torch.arange(1000)[7],
        "empty": torch.empty(0, 5),
        "empty of a slice": base[2:],
        "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "as strided": torch.arange(10).as_strided((3, 2), (1, 3), 2),
        "complex": complex_base,
        "conj": complex_base.conj(),
        "conj view": complex_base.conj().transpose(0, 1),
        "neg": torch.complex(base, base + 1).conj().imag,
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", views())
def test_every_view(tmp_path: Path, kind: str, name: str) -> None:
    path = torch_save({"x": views()[name]}, tmp_path / "f.pt", kind)
    assert_agree(load(path), torch.load(path))


@pytest.mark.parametrize("kind", FORMATS)
def test_views_of_one_storage_together(tmp_path: Path, kind: str) -> None:
    group = {name: value for name, value in views().items() if name != "neg"}
    path = torch_save(group, tmp_path / "f.pt", kind)
    assert_agree(load(path), torch.load(path))


CONTAINERS: dict[str, Any] = {
    "bare": torch.ones(2),
    "scalars": {
        "int": 3,
        "negative": -3,
        "byte": 255,
        "short": 65535,
        "int32": -(2**31),
        "big": 2**100,
        "bignegative": -(2**63),
        "float": 0.1,
        "inf": float("inf"),
        "true": True,
        "false": False,
        "none": None,
        "text": "käse\nß",
        "empty": "",
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"ab"),
        "complex": 1 - 2j,
        "set": {1, 2},
    },
    "nested": [[{"a": (1, (2, [torch.zeros(1)]))}], [], (), {}, OrderedDict()],
    "keys": {0: 1, 1.5: 2, True: 3, None: 4, "s": 5, (1, "a"): 6, b"b": 7},
    "counter": Counter({80: 1, 120: 2}),
    "size": torch.Size([2, 3]),
    "dtype": [torch.float32, torch.bfloat16],
    "device": [torch.device("cpu"), torch.device("cuda", 1)],
    "many": {f"k{i}": i for i in range(2500)},
    "long list": list(range(2500)),
    "ordered": OrderedDict(a=torch.ones(1), b=2),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container(tmp_path: Path, kind: str, name: str) -> None:
    path = torch_save(CONTAINERS[name], tmp_path / "f.pt", kind)
    assert_agree(load(path), torch.load(path))


def test_nan_keeps_its_bits(tmp_path: Path) -> None:
    tensor = torch.tensor([0x7FC12345, -0x3EDCBB], dtype=torch.int32).view(torch.float32)
    path = torch_save(tensor, tmp_path / "f.pt", "zip")
    assert_agree(load(path), torch.load(path))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.mark = torch.nn.Buffer(torch.arange(3))


@pytest.mark.parametrize("kind", FORMATS)
def test_state_dict_with_ties_and_metadata(tmp_path: Path, kind: str) -> None:
    path = torch_save(Net().state_dict(), tmp_path / "f.pt", kind)
    ours = load(path)
    assert_agree(ours, torch.load(path))
    assert isinstance(ours, StateDict)
    assert ours.metadata["norm"] == {"version": 2}
    assert ours["embed.weight"] is ours["head.weight"]
    assert ours["norm.weight"] is not ours["norm.bias"]


@pytest.mark.parametrize("kind", FORMATS)
def test_optimizer_state(tmp_path: Path, kind: str) -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.head(model.norm(model.embed(torch.arange(5)))).sum().backward()
    optimizer.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    path = torch_save(content, tmp_path / "f.pt", kind)
    assert_agree(load(path), torch.load(path))


def test_integer_parameter_ids_and_steps_of_old_optimizers(tmp_path: Path) -> None:
    number = 140178894849224
    content = {
        "state": {number: {"step": 12, "exp_avg": torch.ones(2), "momentum_buffer": None}},
        "param_groups": [{"lr": 0.1, "params": [number]}],
    }
    path = torch_save(content, tmp_path / "f.pt", "legacy")
    assert_agree(load(path), torch.load(path))


@pytest.mark.parametrize("kind", FORMATS)
def test_same_tensor_and_container_twice(tmp_path: Path, kind: str) -> None:
    tensor, shared = torch.ones(2), [1]
    content = {"a": tensor, "b": tensor, "c": shared, "d": shared}
    ours = load(torch_save(content, tmp_path / "f.pt", kind))
    assert ours["a"] is ours["b"]
    assert ours["c"] is ours["d"]


def test_a_list_that_contains_itself(tmp_path: Path) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    ours = load(torch_save(loop, tmp_path / "f.pt", "zip"))
    assert ours[1] is ours


def test_tensor_with_attributes(tmp_path: Path) -> None:
    tensor = torch.nn.Parameter(torch.ones(3))
    tensor.note = "kept by torch"  # pyright: ignore[reportAttributeAccessIssue]
    plain = torch.ones(2)
    plain.note = 1  # pyright: ignore[reportAttributeAccessIssue]
    path = torch_save({"p": tensor, "t": plain}, tmp_path / "f.pt", "zip")
    assert_agree(load(path), torch.load(path))


def test_file_object_archive_and_renamed_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"x": torch.ones(2)}, buffer)
    path = tmp_path / "weights.safetensors.bin"
    path.write_bytes(buffer.getvalue())
    assert_agree(load(path), {"x": torch.ones(2)})


_PythonPickler: Any = pickle._Pickler  # pyright: ignore[reportAttributeAccessIssue]


class _Python2Pickler(_PythonPickler):
    """Writes text the way Python 2 wrote its ``str``: SHORT_BINSTRING."""

    dispatch = copy.copy(_PythonPickler.dispatch)

    def save_text(self, text: str) -> None:
        data = text.encode("latin-1")
        self.write(b"U" + bytes([len(data)]) + data)
        self.memoize(text)

    dispatch[str] = save_text


def test_python_2_strings(tmp_path: Path) -> None:
    class Module:
        Pickler = _Python2Pickler
        dump = staticmethod(lambda obj, file, protocol: _Python2Pickler(file, protocol).dump(obj))

    content = {"weight": torch.ones(2, 2), "bias": torch.zeros(2)}
    path = tmp_path / "old.pth"
    torch.save(content, path, Module, 2, _use_new_zipfile_serialization=False)
    assert b"U\x07storage" in path.read_bytes()
    assert_agree(load(path), content)


def test_storage_saved_by_itself(tmp_path: Path) -> None:
    path = torch_save({"s": torch.arange(3.0).untyped_storage()}, tmp_path / "f.pt", "zip")
    assert load(path)["s"].tobytes() == np.arange(3.0, dtype=np.float32).tobytes()


def test_bytes_other_than_0_and_1_are_true(tmp_path: Path) -> None:
    tensor = torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)
    ours = load(torch_save(tensor, tmp_path / "f.pt", "zip"))
    assert ours.view(np.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("kind", FORMATS)
def test_copies_do_not_depend_on_the_file_and_suit_jax(tmp_path: Path, kind: str) -> None:
    path = torch_save({"x": torch.ones(1000)}, tmp_path / "f.pt", kind)
    array = load(path, copy=True)["x"]
    path.write_bytes(b"\0" * path.stat().st_size)
    assert array.sum() == 1000
    assert array.ctypes.data % 64 == 0
    assert place_of(array) is None


def test_arrays_are_the_file_and_survive_its_replacement(tmp_path: Path) -> None:
    path = torch_save({"x": torch.arange(1000.0), "y": torch.ones(3)}, tmp_path / "f.pt", "zip")
    arrays = load(path)
    place = place_of(arrays["x"][10:])
    assert place is not None
    torch_save({"x": torch.zeros(1000)}, tmp_path / "g.pt", "zip").replace(path)
    assert arrays["x"].sum() == 499500
    assert arrays["x"].ctypes.data % 64 == 0
    buffer = bytearray(8)
    place.file.pread(place.offset, memoryview(buffer))
    assert np.frombuffer(buffer, np.float32).tolist() == [10, 11]


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    path = torch_save({"x": torch.ones(1000)}, tmp_path / "f.pt", "zip")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    arrays = load(path)
    its_own = sys.version_info < (3, 13)  # Python's map keeps one.
    assert len(os.listdir("/proc/self/fd")) == before + its_own
    del arrays
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning")
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantized_tensors_give_torchs_numbers(tmp_path: Path, axis: int | None) -> None:
    x = torch.linspace(-20, 20, 12).reshape(3, 4)
    if axis is None:
        tensor = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
    else:
        scales = torch.linspace(0.1, 0.3, x.shape[axis], dtype=torch.float64)
        zeros = torch.arange(x.shape[axis])
        tensor = torch.quantize_per_channel(x, scales, zeros, axis, torch.qint8)
    ours = load(torch_save(tensor, tmp_path / "f.pt", "zip"))
    assert ours.shape == (3, 4)
    np.testing.assert_allclose(ours.dequantize(), tensor.dequantize().numpy(), rtol=1e-6)
