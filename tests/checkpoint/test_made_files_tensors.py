"""Every kind of tensor that torch can save, in every way it can save it, read as torch reads it."""

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import bridge
from bridge.checkpoint import QuantizedTensor, SparseTensor, Unsupported
from tests.corpora.truth import DTYPES, assert_agree, read_by_torch


PROTOCOLS = [2, 3, 4, 5]
OLD = [torch.bfloat16, torch.bool, torch.complex64, torch.complex128, torch.float16, torch.float32]
OLD += [torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
ALL = [*DTYPES, torch.float4_e2m1fn_x2]

pytestmark = [
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse .* support is in beta state"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def numbers(dtype: torch.dtype, count: int = 24) -> torch.Tensor:
    """Random bits that are numbers of ``dtype``."""
    generator = torch.Generator().manual_seed(11)
    bits = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return bits > 127 if dtype == torch.bool else bits.view(dtype)


def check(value: Any, path: Path, **options: Any) -> Any:
    """Save with torch, read with both, compare; return what we read."""
    torch.save(value, path, **options)
    ours = bridge.load(path)
    assert_agree(ours, read_by_torch(path))
    assert_agree(bridge.load(path, copy=True), read_by_torch(path))
    return ours


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ALL, ids=name_of)
def test_every_dtype_in_a_zip(tmp_path: Path, dtype: torch.dtype, protocol: int) -> None:
    flat = numbers(dtype)
    value = {"flat": flat, "square": flat.reshape(4, 6), "scalar": flat[3], "empty": flat[:0]}
    if dtype == torch.float4_e2m1fn_x2:
        del value["scalar"]  # half of a pair has no shape
    check(value, tmp_path / "m.pt", pickle_protocol=protocol)


@pytest.mark.parametrize("dtype", OLD, ids=name_of)
def test_every_dtype_in_the_legacy_stream(tmp_path: Path, dtype: torch.dtype) -> None:
    flat = numbers(dtype)
    value = {"flat": flat, "square": flat.reshape(4, 6), "scalar": flat[3], "empty": flat[:0]}
    check(value, tmp_path / "m.pt", _use_new_zipfile_serialization=False)


def views() -> dict[str, Callable[[], torch.Tensor]]:
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    # No zeros: torch's vector and scalar loops do not agree on the sign of a negated one.
    paired = torch.complex(base + 0.5, 0.25 - base)
    return {
        "contiguous": lambda: base,
        "transposed": lambda: base.transpose(0, 3),
        "permuted": lambda: base.permute(3, 1, 0, 2),
        "sliced": lambda: base[1:, ::2, 1:3, 4:],
        "offset": lambda: base.reshape(-1)[7:19],
        "expanded": lambda: base[:1, :1, :1, :1].expand(3, 4, 5, 6),
        "expanded in the middle": lambda: base[:, :1].expand(2, 7, 4, 5),
        "as strided": lambda: torch.arange(10).as_strided((3, 2), (1, 3), 2),
        "overlapping": lambda: torch.arange(9).unfold(0, 3, 1),
        "channels last": lambda: base.to(memory_format=torch.channels_last),
        "scalar": lambda: base[1, 2, 3, 4],
        "empty": lambda: torch.empty(0, 5),
        "empty at an offset": lambda: base[2:],
        "empty in the middle": lambda: torch.empty(3, 0, 2),
        "one of many": lambda: torch.arange(1000)[7],
        "real part": lambda: paired.real,
        "imaginary part": lambda: paired.imag,
        "conjugate": lambda: paired.conj(),
        "conjugate, transposed and sliced": lambda: paired.conj().transpose(0, 3)[1:, :, ::2],
        "conjugate transpose": lambda: paired[0, 0].mH,
        "negative": lambda: paired.conj().imag,
        "negative and conjugate": lambda: torch._neg_view(paired.conj()),  # pyright: ignore[reportPrivateImportUsage]
        "diagonal": lambda: base[0, 0].diagonal(),
        "as real": lambda: torch.view_as_real(paired),
        "as complex": lambda: torch.view_as_complex(torch.arange(8.0).reshape(4, 2)),
        "as bytes": lambda: base.view(torch.uint8),
        "parameter": lambda: torch.nn.Parameter(base),
        "frozen parameter": lambda: torch.nn.Parameter(base, requires_grad=False),
        "buffer": lambda: torch.nn.Buffer(base),
        "needs a gradient": lambda: base.clone().requires_grad_(),
        "with attributes": lambda: _noted(base.clone()),
        "parameter with attributes": lambda: _noted(torch.nn.Parameter(base)),
        "buffer with attributes": lambda: _noted(torch.nn.Buffer(base)),
    }


def _noted(tensor: torch.Tensor) -> torch.Tensor:
    tensor.note = "kept by torch"  # pyright: ignore[reportAttributeAccessIssue]
    tensor.other = torch.ones(2)  # pyright: ignore[reportAttributeAccessIssue]
    return tensor


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", views())
def test_every_view(tmp_path: Path, name: str, zipped: bool) -> None:
    value = {"x": views()[name](), "bare": [views()[name]()]}
    check(value, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_all_views_of_one_storage_are_tied(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    group = {
        "base": base,
        "transposed": base.transpose(0, 3),
        "sliced": base[1:, ::2, 1:3],
        "expanded": base[:1, :1].expand(4, 5, 4, 5),
        "again": base,
        "parameter": torch.nn.Parameter(base),
        "apart": base.clone(),
    }
    ours = check(group, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert np.shares_memory(ours["base"], ours["sliced"])
    assert not np.shares_memory(ours["base"], ours["apart"])


def quantized() -> dict[str, torch.Tensor]:
    values = torch.arange(24.0).reshape(4, 6) - 3
    scales, points = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, 2, 3])
    return {
        "qint8": torch.quantize_per_tensor(values, 0.25, 3, torch.qint8),
        "quint8": torch.quantize_per_tensor(values, 0.25, 3, torch.quint8),
        "qint32": torch.quantize_per_tensor(values, 0.25, 3, torch.qint32),
        "channels": torch.quantize_per_channel(values, scales, points, 0, torch.qint8),
        "last channels": torch.quantize_per_channel(values.t(), scales, points, 1, torch.quint8),
        "transposed": torch.quantize_per_tensor(values, 0.25, 3, torch.qint8).t(),
        "sliced": torch.quantize_per_tensor(values, 0.25, 3, torch.qint8)[1:, ::2],
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "name",
    ["qint8", "quint8", "qint32", "channels", "last channels", "transposed", "sliced"],
)
def test_quantized_tensors(tmp_path: Path, name: str, zipped: bool) -> None:
    theirs = quantized()[name]
    ours = check(theirs, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert isinstance(ours, QuantizedTensor)
    assert ours.dtype == name_of(theirs.dtype)
    scale, zero_point = np.asarray(ours.scale), np.asarray(ours.zero_point)
    if ours.axis == 0:
        scale, zero_point = scale[:, None], zero_point[:, None]
    real = (ours.integers.astype(np.float64) - zero_point) * scale
    assert np.allclose(real, theirs.dequantize().numpy(), rtol=1e-6)


def sparse() -> dict[str, torch.Tensor]:
    dense = torch.zeros(4, 6)
    dense[0, 1], dense[2, 3], dense[3, 0] = 1.5, -2.5, 7
    indices = torch.tensor([[0, 0, 2], [1, 1, 3]])
    return {
        "coo": dense.to_sparse(),
        "coo not coalesced": torch.sparse_coo_tensor(
            indices, torch.tensor([1.0, 2.0, 3.0]), (4, 6), check_invariants=False
        ),
        "coo hybrid": torch.ones(3, 2, 2).to_sparse(1),
        "coo empty": torch.zeros(3, 3).to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 3)),
        "csr batched": torch.stack([dense, dense]).to_sparse_csr(),
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "name",
    ["coo", "coo not coalesced", "coo hybrid", "coo empty", "csr", "csc", "bsr", "bsc", "csr batched"],
)
def test_sparse_tensors(tmp_path: Path, name: str, zipped: bool) -> None:
    theirs = sparse()[name]
    ours = check(theirs, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    assert isinstance(ours, SparseTensor)
    if theirs.layout is torch.sparse_coo:
        assert ours.coalesced == theirs.is_coalesced()


def test_a_nested_tensor(tmp_path: Path) -> None:
    parts = [torch.arange(6.0).reshape(2, 3), torch.ones(1, 3)]
    check(torch.nested.nested_tensor(parts), tmp_path / "m.pt")


def test_meta_tensors(tmp_path: Path) -> None:
    value = {
        "w": torch.ones(2, 3, device="meta"),
        "h": torch.empty(1 << 20, 1 << 20, device="meta").half(),
    }
    check(value, tmp_path / "m.pt")


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_distributed_tensors(tmp_path: Path, process_group: None, protocol: int) -> None:
    del process_group
    mesh = init_device_mesh("cpu", (1,))
    value = {"w": distribute_tensor(torch.arange(6.0).reshape(2, 3), mesh, [Shard(0)]), "n": 3}
    path = tmp_path / "m.pt"
    torch.save(value, path, pickle_protocol=protocol)
    assert_agree(bridge.load(path), torch.load(path, weights_only=False))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", OLD, ids=name_of)
def test_storages_by_themselves(tmp_path: Path, dtype: torch.dtype, zipped: bool) -> None:
    tensor = numbers(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = {"typed": tensor.storage(), "tensor": tensor}
        if zipped:
            value["untyped"] = numbers(dtype).untyped_storage()
        path = tmp_path / "m.pt"
        torch.save(value, path, _use_new_zipfile_serialization=zipped)
        assert_agree(bridge.load(path), torch.load(path, weights_only=False))


def test_quantized_numbers_narrower_than_a_byte_are_named(tmp_path: Path) -> None:
    scales, points = torch.ones(4), torch.zeros(4)
    value = torch.quantize_per_channel(torch.ones(4, 6), scales, points, 0, torch.quint4x2)
    torch.save(value, tmp_path / "m.pt")
    with pytest.raises(Unsupported, match="narrower than a byte"):
        bridge.load(tmp_path / "m.pt")


def test_a_cuda_location_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"x": torch.arange(4.0)}, path, _use_new_zipfile_serialization=False)
    # A location of the same length, as a file from a machine with a GPU has.
    data = path.read_bytes()
    there = data.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0")
    assert there != data
    path.write_bytes(there)
    assert_agree(bridge.load(path), torch.load(path, map_location="cpu"))


def test_the_addresses_suit_jax(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({f"w{n}": torch.ones(n + 1) for n in range(40)}, path)
    for copy in (False, True):
        for name, array in bridge.load(path, copy=copy).items():
            assert array.ctypes.data % 64 == 0, (copy, name)
    assert os.path.getsize(path) > 0
