"""What the demo carries: a checkpoint that PyTorch wrote, and the digits to go on with."""

from importlib import resources
from typing import Any, NamedTuple

import numpy as np

import bridge


CHECKPOINT = "digits_checkpoint.pt"
DIGITS = "digits.npz"

_DATA = resources.files("bridge.demo") / "data"


class Part(NamedTuple):
    """Images and their labels.

    Attributes:
        images: ``(N, 1, 8, 8)`` from 0 to 1.
        labels: ``(N,)`` from 0 to 9.
    """

    images: np.ndarray
    labels: np.ndarray


def read_checkpoint() -> dict[str, Any]:
    """What is in the carried ``.pt`` file, as :func:`bridge.load` returns it."""
    with resources.as_file(_DATA / CHECKPOINT) as path:
        return bridge.load(path)


def read_digits() -> tuple[Part, Part]:
    """The digits to train with and the digits to test with."""
    with (_DATA / DIGITS).open("rb") as file, np.load(file) as arrays:
        train, test = (
            Part(
                arrays[f"{part}_images"][:, None].astype(np.float32) / 16,
                arrays[f"{part}_labels"].astype(np.int32),
            )
            for part in ("train", "test")
        )
    return train, test
