"""Every published file of the corpus is read as torch reads it, tensor by tensor."""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import bridge
from tests.corpora.files import BY_NAME
from tests.corpora.truth import array_bytes, assert_agree, count_tensors, read_by_torch


pytestmark = pytest.mark.registry


ALBERT = "albert_heads_8_uspto_all_1310k"


def arrays(value: Any, where: str = "object") -> Iterator[tuple[str, np.ndarray]]:
    """Every array of a nest of dictionaries and lists, with its place."""
    if isinstance(value, np.ndarray):
        yield where, value
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from arrays(item, f"{where}[{key!r}]")


def truth_of(path: Path, holds: str) -> Any:
    """What torch (or safetensors) reads from the file."""
    if holds == "TorchScript":
        # Its versions are those of torch's wrapper around every class, not of the file.
        return OrderedDict(torch.jit.load(path, map_location="cpu").state_dict().items())
    if holds == "safetensors":
        # safetensors sorts by place; the order of the names is the header's.
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return read_by_torch(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit.load.*:DeprecationWarning")
@pytest.mark.parametrize("name", BY_NAME)
def test_a_published_file_equals_torch(name: str, tmp_path: Path) -> None:
    published = BY_NAME[name]
    path = published.extract(tmp_path)
    ours = bridge.load(path)
    theirs = truth_of(path, published.holds)
    if published.holds == "safetensors":
        assert set(ours) == set(theirs)
        theirs = {key: theirs[key] for key in ours}
        ours = dict(ours)
    assert_agree(ours, theirs)
    assert count_tensors(ours) == published.tensors


@pytest.mark.parametrize("name", BY_NAME)
def test_its_checksums_hold_and_a_copy_has_memory_of_its_own(name: str, tmp_path: Path) -> None:
    path = BY_NAME[name].extract(tmp_path)
    mapped = bridge.load(path)
    copied = bridge.load(path, copy=True, verify=True)
    for (where, one), (also, other) in zip(arrays(mapped), arrays(copied), strict=True):
        assert where == also
        assert array_bytes(one) == array_bytes(other), where
        assert one.dtype == other.dtype, where
        assert not np.shares_memory(one, other), where


def test_one_network_in_torchscript_and_in_safetensors(tmp_path: Path) -> None:
    # Two trainings of one architecture: the sizes and the fixed Fourier basis are the same.
    script = bridge.load(BY_NAME["silero-vad:data/silero_vad.jit"].extract(tmp_path))
    plain = bridge.load(BY_NAME["silero-vad:data/silero_vad_16k.safetensors"].extract(tmp_path))
    half = {name: value for name, value in script.items() if name.startswith("_model.")}
    assert [value.shape for value in half.values()] == [value.shape for value in plain.values()]
    basis = half["_model.stft.forward_basis_buffer"]
    assert array_bytes(basis) == array_bytes(plain["stft_conv.weight"])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_whole_modules_hold_the_weights_beside_them(number: int, tmp_path: Path) -> None:
    whole = bridge.load(BY_NAME[f"beatnet:models/model-{number}.pt"].extract(tmp_path))
    weights = bridge.load(BY_NAME[f"beatnet:models/model_{number}_weights.pt"].extract(tmp_path))
    assert isinstance(whole, bridge.StateDict)
    assert list(whole) == list(weights)
    for name, value in weights.items():
        assert array_bytes(whole[name]) == array_bytes(value), name


def test_albert_is_tied_as_it_was_saved(tmp_path: Path) -> None:
    ours = bridge.load(BY_NAME[f"rxnmapper:{ALBERT}/pytorch_model.bin"].extract(tmp_path))
    words = ours["albert.embeddings.word_embeddings.weight"]
    assert ours["predictions.decoder.weight"].ctypes.data == words.ctypes.data
    assert ours["predictions.decoder.bias"].ctypes.data == ours["predictions.bias"].ctypes.data
    assert ours["albert.embeddings.position_embeddings.weight"].ctypes.data != words.ctypes.data
