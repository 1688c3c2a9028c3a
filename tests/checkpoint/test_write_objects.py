"""Random objects have the bytes that torch.save gives them."""

import random
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from bridge import StateDict
from bridge.checkpoint import load, save
from tests.checkpoint.agree import assert_agree
from tests.checkpoint.test_write_torch import without_id


# torch.save refers back to a text that is the same object, bridge.save to one that is equal. These
# are both, as the names of modules and parameters are.
WORDS = ["weight", "bias", "layer.0", "käse", "", "x" * 300, "\udc80", "running_mean"]

NUMBERS = [0, 1, -1, 255, 256, 65535, 65536, -129, 2**31, 2**63, -(2**63), 2**200, -(2**100)]

DTYPES = [torch.float32, torch.int64, torch.bool, torch.complex64, torch.uint8, torch.float64]
DTYPES += [torch.bfloat16, torch.float8_e4m3fn, torch.uint16]


class Maker:
    """Makes an object twice: with tensors, and with NumPy's arrays."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        # Texts are remembered by identity there: each is one object here.
        self.words = list(WORDS)
        self.bases = [torch.arange(24.0).reshape(4, 6), torch.arange(10)]

    def make(self, depth: int = 0) -> tuple[Any, Any]:
        """A random value; mappings and sequences at the top."""
        kinds = [self.mapping, self.ordered, self.sequence, self.pair, self.state]
        if depth:
            kinds += [self.plain, self.tensor, self.tensor, self.tensor, self.view]
        if depth > 3:
            kinds = [self.plain, self.tensor]
        return self.rng.choice(kinds)(depth)

    def plain(self, depth: int) -> tuple[Any, Any]:
        choices = [
            None,
            True,
            False,
            0.5,
            -1e300,
            self.rng.choice(NUMBERS),
            self.rng.choice(self.words),
        ]
        value = self.rng.choice(choices)
        return value, value

    def tensor(self, depth: int) -> tuple[Any, Any]:
        shape = [self.rng.choice([0, 1, 2, 3, 300]) for _ in range(self.rng.randrange(4))]
        tensor = torch.zeros(shape[:3]).to(self.rng.choice(DTYPES))
        # The strides of axes of one element, and of no elements, mean nothing: ours are a contiguous
        # tensor's.
        if tensor.ndim > 1 and min(tensor.shape) > 1 and self.rng.random() < 0.3:
            tensor = tensor.transpose(0, 1).clone()
        return tensor, as_numpy(tensor)

    def view(self, depth: int) -> tuple[Any, Any]:
        # A whole base and something in it: torch writes the base in any case.
        base = self.rng.choice(self.bases)
        part = self.rng.choice([base[1:], base[1], base.T if base.ndim > 1 else base[::2]])
        whole = base.detach()
        return (whole, part), (as_numpy(whole), as_numpy(part))

    def items(self, depth: int) -> list[tuple[Any, tuple[Any, Any]]]:
        count = self.rng.choice([0, 1, 2, 5])
        keys = self.rng.sample([*self.words, 3, -4, None, 2.5, True], count)
        return [(key, self.make(depth + 1)) for key in keys]

    def mapping(self, depth: int) -> tuple[Any, Any]:
        items = self.items(depth)
        return {key: value[0] for key, value in items}, {key: value[1] for key, value in items}

    def ordered(self, depth: int) -> tuple[Any, Any]:
        first, second = self.mapping(depth)
        return OrderedDict(first), OrderedDict(second)

    def state(self, depth: int) -> tuple[Any, Any]:
        names = self.rng.sample(self.words, 2)
        pairs = [self.tensor(depth) for _ in names]
        theirs: Any = OrderedDict(zip(names, (pair[0] for pair in pairs), strict=True))
        version = {"version": self.rng.randrange(3)}
        theirs._metadata = OrderedDict({names[0]: version})
        ours = zip(names, (pair[1] for pair in pairs), strict=True)
        return theirs, StateDict(ours, metadata={names[0]: version})

    def sequence(self, depth: int) -> tuple[Any, Any]:
        pairs = [self.make(depth + 1) for _ in range(self.rng.choice([0, 1, 3, 7]))]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def pair(self, depth: int) -> tuple[Any, Any]:
        first, second = self.sequence(depth)
        return tuple(first), tuple(second)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as an array."""
    names = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
    if tensor.dtype in names:
        integers = torch.int16 if tensor.itemsize == 2 else torch.int8
        return tensor.view(integers).numpy().view(names[tensor.dtype])
    return tensor.numpy()


@pytest.mark.parametrize("seed", range(60))
def test_random_objects_have_torchs_bytes(tmp_path: Path, seed: int) -> None:
    theirs, ours = Maker(seed).make()
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    torch.save(theirs, tmp_path / "theirs/m.pt")
    save(ours, tmp_path / "ours/m.pt")
    bytes_of = [(tmp_path / folder / "m.pt").read_bytes() for folder in ("theirs", "ours")]
    assert without_id(bytes_of[0]) == without_id(bytes_of[1])
    assert_agree(load(tmp_path / "ours/m.pt"), torch.load(tmp_path / "ours/m.pt", weights_only=True))


def test_counters_and_their_kin_are_read_by_torch(tmp_path: Path) -> None:
    value = {"c": Counter("abca"), "s": {1, 2}, "b": b"\x00\xff", "a": bytearray(b"xy"), "z": 1 + 2j}
    save(value, tmp_path / "m.pt")
    assert torch.load(tmp_path / "m.pt", weights_only=True) == value
