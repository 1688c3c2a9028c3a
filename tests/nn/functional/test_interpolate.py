"""Resizing: every position, both rounding rules of torch, bytes, and what the database does not ask."""

import functools
import warnings
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax.test_util import check_grads

from purestate.nn import functional as F
from purestate.nn.functional import _interpolate as interpolation, _resampling as resampling
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, to_jax


def x(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


@functools.cache
def legacy_cases():
    """The options of the cases of interpolate in torch's older list of module tests."""
    from torch.testing._internal import common_nn

    with mock.patch.object(T, "interpolate", lambda input, **options: options):
        tests = [t for t in common_nn.get_new_module_tests() if "interpolate" in t.get("fullname", "")]
        return {t["fullname"]: (t["input_size"], t["constructor"]()(None)) for t in tests}


@pytest.mark.parametrize(
    ("mode", "count"),
    [("nearest", 13), ("linear", 6), ("bilinear", 8), ("bicubic", 8), ("trilinear", 6)],
)
def test_legacy_cases(mode, count):
    cases = {name: case for name, case in legacy_cases().items() if f"_{mode}_" in name}
    assert len(cases) == count
    for name, (shape, options) in cases.items():
        print(name)  # shown if it fails
        with jax.enable_x64(True):
            check_function(F.interpolate, T.interpolate, (x(*shape, dtype=torch.float64),), options)


SIZES = [1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 31, 129, 200]
CASES = [(old, new, None) for old in SIZES for new in SIZES]
CASES += [(old, int(old * s), s) for old in SIZES for s in (0.6, 1.0, 1.1, 1.7, 2.0, 2.1, 3.0, 3.3)]
CASES = [case for case in CASES if case[1] > 0]

MODES = [
    ("nearest", {}),
    ("nearest-exact", {}),
    ("bilinear", {}),
    ("bilinear", {"align_corners": True}),
    ("bicubic", {}),
    ("bicubic", {"align_corners": True}),
    ("bilinear", {"antialias": True}),
    ("bicubic", {"antialias": True}),
    ("bicubic", {"antialias": True, "align_corners": True}),
    ("lanczos", {"antialias": True}),
]


def weights(axis, dtype, mode, options, is_small):
    """The matrix that resizes one axis, put together from its taps."""
    taps = interpolation._taps(axis, dtype, mode, is_small, options.get("antialias", False), False)
    matrix = np.zeros((axis.output, axis.size))
    if taps is None:
        return np.eye(axis.size)
    values = np.ones(taps.entry.shape) if taps.weight is None else taps.weight
    for index, weight in zip(taps.entry, values, strict=True):
        used = index >= 0
        np.add.at(matrix, (np.arange(axis.output)[used], index[used]), weight[used])
    return matrix


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("mode", "options"), MODES, ids=op_db.describe)
def test_every_position(mode, options, dtype):
    """Nothing is compiled: what torch makes of a unit matrix is the matrix of the weights."""
    for old, new, scale in CASES:
        unit = torch.eye(old).to(getattr(torch, np.dtype(dtype).name)).reshape(1, old, old, 1)
        unit = unit.expand(1, old, old, 2).contiguous()
        asked: Any = {"size": (new, 2)} if scale is None else {"scale_factor": (scale, 1.0)}
        expected = T.interpolate(unit, mode=mode, **asked, **options)[0, :, :, 0].numpy().T
        axis = resampling.Axis(old, new, scale, options.get("align_corners", False))
        actual = weights(axis, np.dtype(dtype), mode, options, is_small=new + 2 <= 128)
        np.testing.assert_allclose(
            actual,
            expected,
            atol=3e-6 if dtype is np.float32 else 1e-13,
            err_msg=str((old, new, scale)),
        )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_every_position_of_one_axis(mode):
    """Torch's other kernel, without the special rounding of small images."""
    for old, new, scale in CASES:
        asked: Any = {"size": new} if scale is None else {"scale_factor": scale}
        expected = T.interpolate(torch.eye(old)[None], mode=mode, **asked)[0].numpy().T
        axis = resampling.Axis(old, new, scale, False)
        actual = weights(axis, np.dtype(np.float32), mode, {}, is_small=False)
        np.testing.assert_allclose(actual, expected, atol=1e-6, err_msg=str((old, new, scale)))


@pytest.mark.parametrize("size", [(3, 2), (9, 14), (4, 7), (150, 21)], ids=str)
@pytest.mark.parametrize(("mode", "options"), MODES, ids=op_db.describe)
def test_images(mode, options, size):
    check_function(F.interpolate, T.interpolate, (x(1, 2, 4, 7), size), {"mode": mode, **options})


@pytest.mark.parametrize("channels", [3, 5])
@pytest.mark.parametrize("size", [(3, 4), (9, 20)], ids=str)
@pytest.mark.parametrize(("mode", "options"), MODES, ids=op_db.describe)
def test_bytes(mode, options, size, channels):
    """Bit for bit, in both of torch's kernels: for up to four channels, and for more."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (2, channels, 6, 10), generator=generator, dtype=torch.uint8)
    expected = T.interpolate(image, size, mode=mode, **options)
    actual = F.interpolate(to_jax(image), size, mode=mode, **options)
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == jnp.uint8


@pytest.mark.parametrize("shape", [(1, 2, 5), (1, 2, 3, 4, 3)], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_bytes_of_other_shapes(mode, shape):
    values = torch.arange(int(np.prod(shape)), dtype=torch.uint8).reshape(shape)
    check_function(F.interpolate, T.interpolate, (values, 7), {"mode": mode})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_half_types_stay_half(mode, dtype):
    def exact(values, *args, **options):
        """Torch rounds some weights to the half type too; we only round the result."""
        return T.interpolate(values.float(), *args, **options).to(values.dtype)

    values = x(1, 2, 4, 7, dtype=dtype)
    check_function(F.interpolate, exact, (values, (9, 14)), {"mode": mode}, gradient=False)
    assert F.interpolate(to_jax(values), (9, 14), mode=mode).dtype == to_jax(dtype)


def test_infinity_reaches_its_neighbours_only():
    values = x(1, 1, 4, 7)
    values[0, 0, 1, 2] = float("inf")
    for mode, options in MODES:
        arguments = {"size": (3, 2), "mode": mode, **options}
        check_function(F.interpolate, T.interpolate, (values,), arguments, gradient=False)


def test_antialiasing_one_column():
    """Torch reads nothing but the first row of an image of width 1; here a column is like a row."""
    row = x(1, 1, 1, 7)
    expected = T.interpolate(row, (1, 3), mode="bilinear", antialias=True)
    actual = F.interpolate(to_jax(row).mT, (3, 1), mode="bilinear", antialias=True)
    assert_close(actual.mT, expected)


def test_gradient_of_a_factor_that_only_looks_whole():
    """Torch copies by the factor here, but sends gradients back as if it were exactly 2."""
    values = to_jax(x(1, 1, 4))
    assert_close(F.interpolate(values, scale_factor=2.1), T.interpolate(x(1, 1, 4), scale_factor=2.1))
    gradient = jax.grad(lambda v: F.interpolate(v, scale_factor=2.1)[0, 0, 4:].sum())(values)
    np.testing.assert_array_equal(gradient[0, 0], [0, 1, 2, 1])


def test_derivatives_of_all_orders():
    with jax.enable_x64(True):
        values = to_jax(x(1, 1, 4, 3, dtype=torch.float64))

        def squared(v):
            return F.interpolate(v, (8, 4), mode="bilinear") ** 2

        check_grads(squared, (values,), order=2, modes=("fwd", "rev"), eps=1e-5)
        assert jax.hessian(lambda v: squared(v).sum())(values).shape == 2 * values.shape


def test_vmap_is_a_loop():
    batch = to_jax(x(3, 1, 2, 4, 7))
    for mode in ("nearest", "bilinear", "area"):
        mapped = jax.vmap(lambda image, mode=mode: F.interpolate(image, (8, 14), mode=mode))(batch)
        assert_close(mapped, np.stack([F.interpolate(one, (8, 14), mode=mode) for one in batch]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("upsample", {"scale_factor": 2, "mode": "bilinear", "align_corners": True}),
        ("upsample", {"size": [3, 5]}),
        ("upsample_nearest", {"size": 5}),
        ("upsample_bilinear", {"scale_factor": (2, 1)}),
    ],
    ids=op_db.describe,
)
def test_older_names(name, options):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        expected = getattr(T, name)(x(1, 2, 4, 3), **options)
        actual = getattr(F, name)(to_jax(x(1, 2, 4, 3)), **options)
    assert_close(actual, expected)
    first, second = [w for w in seen if "deprecated" in str(w.message)]
    assert str(first.message) == str(second.message)
    assert (first.category, second.filename) == (second.category, __file__)


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


IMAGE = r(2, 3, 4, 4)
LINE, VOLUME = r(2, 3, 4), r(2, 3, 4, 4, 4)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((IMAGE,), {}),
        ((IMAGE, 2, 2.0), {}),
        ((IMAGE, 2), {"align_corners": False}),
        ((IMAGE, (2,)), {}),
        ((IMAGE, [2, 2, 2]), {}),
        ((IMAGE, (2, 2.5)), {}),
        ((IMAGE,), {"scale_factor": (2.0,)}),
        ((IMAGE,), {"scale_factor": [2.0, 1.0, 1.0]}),
        ((IMAGE,), {"scale_factor": float("nan")}),
        ((IMAGE,), {"scale_factor": float("nan"), "recompute_scale_factor": True}),
        ((IMAGE, 2), {"recompute_scale_factor": True}),
        ((IMAGE, 2), {"antialias": True}),
        ((LINE, 2), {"mode": "linear", "antialias": True}),
        ((IMAGE, 2), {"mode": "lanczos"}),
        ((IMAGE, 2), {"mode": "lanczos", "antialias": True, "align_corners": True}),
        ((LINE, 2), {"mode": "lanczos"}),
        ((LINE, 2), {"mode": "bilinear"}),
        ((LINE, 2), {"mode": "trilinear"}),
        ((LINE, 2), {"mode": "bicubic"}),
        ((IMAGE, 2), {"mode": "linear"}),
        ((IMAGE, 2), {"mode": "trilinear"}),
        ((IMAGE, 2), {"mode": "sharp"}),
        ((VOLUME, 2), {"mode": "linear"}),
        ((VOLUME, 2), {"mode": "bilinear"}),
        ((VOLUME, 2), {"mode": "bicubic"}),
        ((r(2, 3), 2), {}),
        ((r(2, 3, 1, 1, 1, 1), 2), {}),
        ((LINE, 0), {}),
        ((IMAGE, (-1, 2)), {"mode": "bilinear"}),
        ((VOLUME,), {"scale_factor": 0.1}),
        ((r(2, 3, 0), 2), {}),
        ((r(2, 3, 4, 0), 2), {"mode": "bicubic"}),
        ((r(2, 0, 4), 2), {"mode": "linear"}),
        ((r(0, 0, 4, 4), 2), {}),
        ((r(2, 0, 4, 4, 4), 2), {"mode": "trilinear"}),
        ((IMAGE.int(), 2), {}),
        ((IMAGE.int(), 100), {}),
        ((IMAGE.bool(), 2), {"mode": "nearest-exact"}),
        ((IMAGE.int(), 2), {"mode": "bilinear"}),
        ((IMAGE.int(), 100), {"mode": "bilinear"}),
        ((IMAGE.int(), 2), {"mode": "bicubic"}),
        ((IMAGE.half(), 2), {"mode": "bilinear", "antialias": True}),
        ((LINE.int(), 2), {}),
        ((LINE.byte(), 2), {"mode": "linear"}),
        ((VOLUME.byte(), 2), {"mode": "trilinear"}),
        ((IMAGE.byte(), 2), {"mode": "area"}),
        ((IMAGE, -1), {"mode": "area"}),
    ],
    ids=op_db.describe,
)
def test_errors(args, kwargs):
    check_error(
        lambda: F.interpolate(*to_jax(list(args)), **kwargs), lambda: T.interpolate(*args, **kwargs)
    )


@pytest.mark.parametrize("options", [{"size": 2.5}, {"size": "a"}, {"scale_factor": "a"}], ids=str)
def test_types(options):
    """Torch answers with the list of its overloads; the type is the same."""
    with pytest.raises(TypeError):
        F.interpolate(to_jax(IMAGE), **options)
    with pytest.raises(TypeError):
        T.interpolate(IMAGE, **options)


def test_nothing_in_the_batch():
    check_function(F.interpolate, T.interpolate, (r(0, 3, 4, 4), 6), {"mode": "bilinear"})
