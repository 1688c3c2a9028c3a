"""Casts to every floating-point dtype give PyTorch's bits."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import bridge
from bridge._torch_cast import cast_into
from bridge.checkpoint._dtypes import TORCH_DTYPES
from purestate import nn


pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")

FLOATS = ["float16", "bfloat16", "float32", "float64"]
EIGHTS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
NUMBERS = [1e4, -1e4, np.inf, -np.inf, np.nan, -np.nan, 448.0, 464.0, 464.1, 480.0, -480.0]
NUMBERS += [57344.0, 61440.0, 61439.9, 65504.0, 240.0, 248.0, 1e-9, -1e-9, 0.0, -0.0, 1e38, 3.4e38]


def sources(name: str) -> np.ndarray:
    """All numbers of a small dtype; of a large one, those at and beside what 16 bits tell."""
    dtype = TORCH_DTYPES[name]
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    low = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x0FFF, 0x1000, 0x1001)
    single = np.concatenate([upper | np.uint32(bits) for bits in low]).view(np.float32)
    single = np.concatenate([single, np.array(NUMBERS, np.float32)])
    if name == "float32":
        return single
    double = single.astype(np.float64)
    return np.concatenate([double, np.nextafter(double, np.inf), np.nextafter(double, -np.inf)])


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def to_torch(array: np.ndarray, name: str) -> torch.Tensor:
    return torch.from_numpy(bits(array).view(f"i{array.itemsize}").copy()).view(getattr(torch, name))


def by_torch(array: np.ndarray, source: str, target: str) -> np.ndarray:
    cast = to_torch(array, source).to(getattr(torch, target))
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[cast.itemsize]
    return cast.view(integers).numpy().view(f"u{cast.itemsize}")


@pytest.mark.parametrize("source", [*FLOATS, *EIGHTS])
@pytest.mark.parametrize("target", [*FLOATS, *EIGHTS])
def test_bits_are_torchs(target: str, source: str) -> None:
    array = sources(source)
    expected = by_torch(array, source, target)
    result = np.empty(array.shape, TORCH_DTYPES[target])
    cast_into(result, array)
    is_nan = np.isnan(array.astype(np.float64))
    np.testing.assert_array_equal(bits(result)[~is_nan], expected[~is_nan])
    if target in EIGHTS and source in ("float32", "float64", "float16", "bfloat16"):
        np.testing.assert_array_equal(bits(result), expected)
    else:
        assert np.isnan(result[is_nan].astype(np.float64)).all()


@pytest.mark.parametrize("target", EIGHTS)
def test_layouts_make_no_difference(target: str) -> None:
    array = np.resize(sources("float32"), (400, 300, 2))[:, ::-1, 0].T
    result = np.empty(array.shape, TORCH_DTYPES[target])
    cast_into(result, array)
    expected = by_torch(np.ascontiguousarray(array), "float32", target)
    np.testing.assert_array_equal(bits(result), expected)


def test_what_is_beyond_is_counted() -> None:
    numbers = np.array(NUMBERS, np.float32)

    def beyond(dtype: Any) -> int:
        return cast_into(np.empty(numbers.shape, dtype), numbers)

    assert beyond(np.float32) == 0
    assert beyond(np.float16) == 2
    assert beyond(ml_dtypes.bfloat16) == 1
    assert beyond(ml_dtypes.float8_e4m3fn) == np.count_nonzero(np.abs(numbers) > 464)
    assert beyond(ml_dtypes.float8_e4m3fnuz) == np.count_nonzero(
        (np.abs(numbers) >= 248) & np.isfinite(numbers)
    )
    assert beyond(ml_dtypes.float8_e5m2) == 4
    # What has a sign, and 3.4e38, which is nearer to 2**128 than to 2**127.
    assert beyond(ml_dtypes.float8_e8m0fnu) == 4


@pytest.mark.parametrize("target", EIGHTS)
def test_loading_casts_as_torchs_copy(target: str, tmp_path: Path) -> None:
    array = sources("float32")
    model = nn.Module()
    model = bridge.register_buffer(model, "x", np.zeros(array.shape, TORCH_DTYPES[target]))
    bridge.save({"x": array}, tmp_path / "f.pt")
    loaded, _ = bridge.load_state_dict(model, {"x": array})
    streamed, _ = bridge.load_checkpoint(model, tmp_path / "f.pt")
    expected = by_torch(array, "float32", target)
    np.testing.assert_array_equal(bits(np.asarray(loaded.x)), expected)
    np.testing.assert_array_equal(bits(np.asarray(streamed.x)), expected)
