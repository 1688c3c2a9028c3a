"""Arrays over the same memory, and arrays that lie in memory in any way, reach PyTorch right."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bridge.checkpoint import Unwritable, load, save
from bridge.checkpoint._arrays import pieces
from bridge.checkpoint._digests import digest
from bridge.checkpoint._storages import views
from tests.checkpoint.agree import tensor_bytes
from tests.checkpoint.test_write_torch import without_id


BASE = torch.arange(24.0).reshape(4, 6)

VIEWS: dict[str, list[torch.Tensor]] = {
    "twice": [BASE, BASE.detach()],
    "two views": [BASE, BASE.view(4, 6)],
    "row": [BASE, BASE[2]],
    "row first": [BASE[2], BASE],
    "rows": [BASE, BASE[1:3], BASE[2:]],
    "columns": [BASE, BASE[:, 1:4]],
    "every other": [BASE, BASE[::2, ::3]],
    "transposed": [BASE, BASE.T],
    "transposed first": [BASE.T, BASE],
    "part of a transposed twin": [BASE.T, BASE[1:3].T],
    "reshaped": [BASE, BASE.reshape(2, 12), BASE.flatten()],
    "element": [BASE, BASE[1, 1]],
    "diagonal": [BASE, BASE.diagonal()],
    "expanded": [BASE[:1, :1].clone().expand(3, 2)],
    "expanded row": [BASE, BASE[1].expand(5, 6)],
    "expanded alone": [BASE[0].clone().expand(5, 6)],
    "sliding": [BASE.flatten(), BASE.flatten().unfold(0, 5, 2)],
    "channels last": [torch.arange(48.0).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)],
    "two bases": [BASE, BASE.clone(), BASE[1], BASE.T],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_one_tensor_have_torchs_bytes(tmp_path: Path, name: str) -> None:
    tensors = {str(index): tensor for index, tensor in enumerate(VIEWS[name])}
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    torch.save(tensors, tmp_path / "theirs/m.pt")
    save({key: tensor.numpy() for key, tensor in tensors.items()}, tmp_path / "ours/m.pt")
    theirs, ours = ((tmp_path / folder / "m.pt").read_bytes() for folder in ("theirs", "ours"))
    assert without_id(theirs) == without_id(ours)


def storages(path: Path) -> list[int]:
    """The storage of each tensor in a file that torch reads, numbered."""
    tensors = torch.load(path, weights_only=True).values()
    pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [pointers.index(pointer) for pointer in pointers]


def test_a_slice_alone_does_not_carry_its_base(tmp_path: Path) -> None:
    base = np.arange(100_000.0)
    save({"x": base[10:13]}, tmp_path / "m.pt")
    x = torch.load(tmp_path / "m.pt", weights_only=True)["x"]
    assert x.tolist() == [10, 11, 12]
    assert x.untyped_storage().nbytes() == 24


NOT_SHARED: dict[str, list[Any]] = {
    "overlap in part": [np.arange(10.0)[:6], np.arange(10.0)[3:]],
    "other dtype": [BASE.numpy(), BASE.numpy().view(np.int32)],
    "other dtype within": [BASE.numpy(), BASE.numpy().view(np.int64)[:, :2]],
    "backwards": [BASE.numpy(), BASE.numpy()[::-1]],
    "backwards in one axis": [BASE.numpy(), BASE.numpy()[:, ::-1]],
    "both with gaps": [BASE.numpy()[:, ::2], BASE.numpy()[:, ::2]],
    "across numbers": [BASE.numpy(), BASE.numpy().reshape(-1).view(np.uint8)[2:-2].view(np.float32)],
    "empty": [np.zeros((0, 3)), np.zeros((0, 3))],
    "neighbours": [BASE.numpy()[:2], BASE.numpy()[2:]],
}


@pytest.mark.parametrize("name", NOT_SHARED)
def test_what_cannot_share_is_written_apart(tmp_path: Path, name: str) -> None:
    arrays = NOT_SHARED[name]
    if name == "overlap in part":
        whole = np.arange(10.0)
        arrays = [whole[:6], whole[3:]]
    save({str(index): array for index, array in enumerate(arrays)}, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    for tensor, array in zip(theirs.values(), arrays, strict=True):
        assert tensor_bytes(tensor) == array.tobytes()
    if name != "empty":
        assert storages(tmp_path / "m.pt") == [0, 1]


def test_what_two_arrays_hold_that_overlap_in_part_lies_in_the_later(tmp_path: Path) -> None:
    whole = np.arange(20.0)
    content = {"a": whole[:12], "b": whole[8:], "c": whole[9:11], "d": whole[13:15]}
    save(content, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    assert storages(tmp_path / "m.pt") == [0, 1, 1, 1]
    for name, array in content.items():
        assert theirs[name].tolist() == array.tolist()


def test_jax_arrays_are_tied_by_their_object(tmp_path: Path) -> None:
    array = jnp.ones(3)
    save({"a": array, "b": array, "c": jnp.ones(3)}, tmp_path / "m.pt")
    assert storages(tmp_path / "m.pt") == [0, 0, 2]


def test_converted_arrays_are_tied_by_their_object(tmp_path: Path) -> None:
    swapped = np.arange(3, dtype=">i4")
    base = np.ones(3)
    save({"a": swapped, "b": swapped, "c": base, "d": base[1:]}, tmp_path / "m.pt")
    assert storages(tmp_path / "m.pt") == [0, 0, 2, 2]
    assert torch.load(tmp_path / "m.pt", weights_only=True)["b"].tolist() == [0, 1, 2]


def random_view(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A view by one to four random steps: slices, turns, reversals, broadcasts."""
    for _ in range(rng.integers(1, 5)):
        kind = rng.integers(6)
        axis = int(rng.integers(max(array.ndim, 1)))
        if kind == 0 and array.ndim:
            low, high = sorted(rng.integers(0, array.shape[axis] + 1, 2))
            array = array[(slice(None),) * axis + (slice(low, high, int(rng.integers(1, 3))),)]
        elif kind == 1:
            array = array.transpose(rng.permutation(array.ndim))
        elif kind == 2 and array.ndim:
            array = np.flip(array, axis)
        elif kind == 3 and array.ndim < 4:
            array = np.broadcast_to(array, (int(rng.integers(1, 4)), *array.shape))
        elif kind == 4 and array.ndim > 1 and array.shape[axis]:
            array = array[(slice(None),) * axis + (int(rng.integers(array.shape[axis])),)]
        elif kind == 5:
            array = np.expand_dims(array, axis)
    return array


DTYPES = [np.float32, np.int8, np.complex64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("seed", range(40))
def test_random_views_keep_their_numbers(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    bases = [rng.integers(0, 2, (3, 4, 5)).astype(dtype), rng.integers(0, 2, 30).astype(dtype)]
    content = {
        f"{index}": random_view(bases[int(rng.integers(2))], rng)
        for index in range(int(rng.integers(2, 12)))
    }
    content["base"] = bases[0]
    save(content, tmp_path / "m.pt")
    theirs = torch.load(tmp_path / "m.pt", weights_only=True)
    ours = load(tmp_path / "m.pt")
    save(content, tmp_path / "m.safetensors")
    flat = load_file(tmp_path / "m.safetensors")
    for name, array in content.items():
        assert tuple(theirs[name].shape) == tuple(flat[name].shape) == array.shape
        assert tensor_bytes(theirs[name]) == tensor_bytes(flat[name]) == array.tobytes()
        assert ours[name].tobytes() == array.tobytes()


def test_views_within_others_are_found_and_nothing_else() -> None:
    base = np.arange(12.0)
    arrays = [base[:2], base[::3], base, np.arange(2.0), base[6:].reshape(2, 3)[:, 1]]
    found = views(arrays)
    assert {at: (placed.offset, placed.strides) for at, placed in found.items()} == {
        0: (0, (1,)),
        1: (0, (3,)),
        4: (7, (3,)),
    }
    assert all(placed.host is base for placed in found.values())


def test_large_arrays_leave_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.checkpoint._arrays.PIECE", 64)
    monkeypatch.setattr("bridge.checkpoint._arrays._COPIED", 128)
    rng = np.random.default_rng(0)
    for shape in [(7, 9, 5), (1, 200), (200,), (1, 1, 300), (3, 1, 70)]:
        array = rng.random(shape)
        for view in (array, array.T, array[..., ::-1], np.broadcast_to(array, (2, *shape))):
            found = list(pieces(view))
            assert b"".join(found) == view.tobytes()
            assert max(map(len, found)) <= 64
            swapped = b"".join(pieces(view, swapped=True))
            assert swapped == view.astype(view.dtype.newbyteorder()).tobytes()


def test_four_bit_floats_are_two_in_a_byte(tmp_path: Path) -> None:
    """The bytes of torch's own files, whose first number of two is in the low bits."""
    packed = torch.arange(0, 240, 10, dtype=torch.uint8).reshape(3, 8)
    theirs = packed.view(torch.float4_e2m1fn_x2)
    numbers = torch.stack([packed & 15, packed >> 4], -1).reshape(3, 16).numpy()
    ours = numbers.view(ml_dtypes.float4_e2m1fn)
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    content = {"x": theirs, "tied": theirs.detach(), "bytes": packed.clone()}
    torch.save(content, tmp_path / "theirs/m.pt")
    save({"x": ours, "tied": ours, "bytes": packed.numpy()}, tmp_path / "ours/m.pt")
    bytes_of = [(tmp_path / folder / "m.pt").read_bytes() for folder in ("theirs", "ours")]
    assert without_id(bytes_of[0]) == without_id(bytes_of[1])

    path = tmp_path / "m.safetensors"
    save({"x": ours, "turned": np.asfortranarray(ours), "y": np.ones(3)}, path, digests=True)
    with safe_open(path, "pt") as file:
        for name in ("x", "turned"):
            assert torch.equal(file.get_tensor(name).view(torch.uint8), packed)
        recorded = json.loads(file.metadata()["sha256"])
    expected = hashlib.sha256(packed.numpy().tobytes()).hexdigest()
    assert recorded["x"] == recorded["turned"] == digest(ours) == expected

    for odd in (ours[:, :3], ours[0, 0]):
        for name in ("m.pt", "m.safetensors"):
            with pytest.raises(Unwritable, match="whose last axis has no even length"):
                save({"x": odd}, tmp_path / name)
