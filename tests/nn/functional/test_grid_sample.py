"""Reading at positions: at, on and beyond the borders, where gradients are decided."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax.test_util import check_grads

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, to_jax


SPECIAL = [-1, 1, 0, -1.5, 1.5, -3, 3, -0.5, 0.5, 0.25, -0.75, 2, -2, 7.3, -9.1, 1e6, 0.999999]
"""Borders, centres between and of entries, reflections of them, and far outside."""


def x(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def special_grid(n):
    generator = torch.Generator().manual_seed(0)
    picks = torch.randint(0, len(SPECIAL), (2, *(5,) * n, n), generator=generator)
    return torch.tensor(SPECIAL)[picks]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("size", "mode"),
    [
        ((4, 5), "bilinear"),
        ((4, 5), "nearest"),
        ((4, 5, 3), "bilinear"),
        ((4, 5, 3), "nearest"),
        ((1, 3), "bilinear"),
    ],
    ids=op_db.describe,
)
def test_special_positions(size, mode, padding_mode, align_corners):
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    args = (x(2, 3, *size), special_grid(len(size)))
    check_function(F.grid_sample, T.grid_sample, args, options)


@pytest.mark.parametrize("padding_mode", ["border", "reflection"])
def test_special_positions_bicubic(padding_mode):
    """Here each entry is moved inside, and the gradient at the border is not zero."""
    options = {"mode": "bicubic", "padding_mode": padding_mode, "align_corners": False}
    check_function(F.grid_sample, T.grid_sample, (x(2, 3, 4, 5), special_grid(2)), options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_float64(mode):
    options = {"mode": mode, "padding_mode": "reflection", "align_corners": True}
    args = (x(2, 3, 4, 5, dtype=torch.float64), x(2, 5, 5, 2, dtype=torch.float64))
    with jax.enable_x64(True):
        check_function(F.grid_sample, T.grid_sample, args, options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_stay_half(dtype):
    def exact(input, grid, **options):
        """Torch rounds positions and weights to the half type too; we only round the result."""
        return T.grid_sample(input.float(), grid.float(), **options).to(input.dtype)

    args = (x(2, 3, 4, 5, dtype=dtype), x(2, 5, 5, 2, dtype=dtype))
    check_function(F.grid_sample, exact, args, {"align_corners": False}, gradient=False)
    assert F.grid_sample(*to_jax(args), align_corners=False).dtype == to_jax(dtype)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_nan_positions(mode):
    """They read the first entry of the axis, or nothing."""
    grid = x(2, 2, 2, 2)
    grid[0, 0, 0, 0] = grid[1, 1, 0, 1] = float("nan")
    for padding_mode in ("zeros", "border"):
        options = {"mode": mode, "padding_mode": padding_mode, "align_corners": False}
        args = (x(2, 3, 4, 5), grid)
        check_function(F.grid_sample, T.grid_sample, args, options, gradient=False)


STRANGE = [np.nan, np.inf, -np.inf, 1e308, -1e308, 2.5]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_strange_positions_in_a_volume(dtype, mode, padding_mode, align_corners):
    """Torch reads a volume by other rules than an image, and has no gradient where it clips NaN."""
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    grid = torch.full((3, len(STRANGE), 3), 0.1, dtype=torch.float64)
    for axis in range(3):
        grid[axis, :, axis] = torch.tensor(STRANGE, dtype=torch.float64)
    grid, volume = grid.to(dtype)[None, None], x(1, 2, 4, 5, 3, dtype=dtype)
    with jax.enable_x64(dtype == torch.float64):
        check_function(F.grid_sample, T.grid_sample, (volume, grid), options, gradient=False)
        if padding_mode != "zeros":
            grid = grid[grid.isfinite().all(-1)][None, None, None]
        if padding_mode != "reflection":
            check_function(F.grid_sample, T.grid_sample, (volume, grid), options)


def test_the_gradient_of_a_clipped_nan_is_that_of_the_entry_read():
    grid = to_jax(torch.full((1, 1, 1, 1, 3), np.nan))
    for padding_mode in ("border", "reflection"):
        gradient = jax.grad(
            lambda v, mode=padding_mode: F.grid_sample(v, grid, "nearest", mode, False).sum()
        )
        expected = np.zeros((1, 1, 2, 3, 4))
        expected[0, 0, 1, 2, 3] = 1
        assert_close(gradient(jnp.ones((1, 1, 2, 3, 4))), expected)


def test_infinity_outside_is_not_read():
    values = torch.full((1, 1, 2, 2), float("inf"))
    grid = torch.tensor([[[[-3.0, 0.0], [5.0, 5.0]]]])
    check_function(F.grid_sample, T.grid_sample, (values, grid), {"align_corners": False})


def test_derivatives_of_all_orders():
    with jax.enable_x64(True):
        arrays = to_jax((x(1, 2, 4, 3, dtype=torch.float64), x(1, 2, 3, 2, dtype=torch.float64) / 3))

        def call(input, grid):
            return F.grid_sample(input, grid, "bilinear", "border", False)

        check_grads(call, arrays, order=2, modes=("fwd", "rev"), eps=1e-5)
        assert jax.hessian(lambda g: call(arrays[0], g).sum())(arrays[1]).shape == 2 * (1, 2, 3, 2)


def test_forward_derivative_of_bicubic():
    with jax.enable_x64(True):
        arrays = to_jax((x(1, 2, 4, 3, dtype=torch.float64), x(1, 2, 3, 2, dtype=torch.float64) / 3))
        check_grads(
            lambda *args: F.grid_sample(*args, mode="bicubic", align_corners=False),
            arrays,
            order=1,
            modes=("fwd",),
            eps=1e-5,
        )


def test_vmap_is_a_loop():
    images, grids = to_jax((x(3, 1, 2, 4, 5), x(3, 1, 2, 3, 2)))

    def call(image, grid):
        return F.grid_sample(image, grid, align_corners=False)

    mapped = jax.vmap(call)(images, grids)
    assert_close(mapped, np.stack([call(images[i], grids[i]) for i in range(3)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 1, 5)], ids=str)
@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
def test_affine_grid(size, align_corners, dtype):
    n = len(size) - 2
    with jax.enable_x64(dtype == torch.float64):
        args = (x(2, n, n + 1, dtype=dtype), size, align_corners)
        check_function(F.affine_grid, T.affine_grid, args)


def test_affine_grid_of_half_types():
    theta = to_jax(x(2, 2, 3, dtype=torch.bfloat16))
    expected = T.affine_grid(x(2, 2, 3, dtype=torch.bfloat16).float(), [2, 3, 4, 5], False)
    assert_close(F.affine_grid(theta, [2, 3, 4, 5], False), expected.to(torch.bfloat16))


def test_affine_grid_transforms():
    theta = to_jax(x(3, 2, 2, 3))
    mapped = jax.vmap(lambda t: F.affine_grid(t, (2, 1, 4, 5), False))(theta)
    assert_close(mapped[1], np.asarray(F.affine_grid(theta[1], (2, 1, 4, 5), False)))
    hessian = jax.hessian(lambda t: (F.affine_grid(t, (2, 1, 4, 5), False) ** 2).sum())(theta[0])
    assert hessian.shape == (2, 2, 3, 2, 2, 3)
    assert jnp.isfinite(hessian).all()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("grid_sample", (x(1, 1, 2, 2), x(1, 1, 1, 2))),
        ("affine_grid", (x(1, 2, 3), [1, 1, 2, 2])),
        ("affine_grid", (x(1, 2, 3), [1, 1, 1, 2], True)),
    ],
    ids=op_db.describe,
)
def test_warnings(name, args):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        expected = getattr(T, name)(*args)
        actual = getattr(F, name)(*to_jax(list(args)))
    assert_close(actual, expected)
    first, second = [w for w in seen if "1.3.0" in str(w.message)]
    assert str(first.message) == str(second.message)
    assert second.filename == __file__


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


IMAGE, GRID = r(2, 3, 4, 4), r(2, 5, 5, 2)
VOLUME, POINTS = r(2, 3, 4, 4, 4), r(2, 5, 5, 5, 3)


@pytest.mark.parametrize(
    "args",
    [
        (IMAGE, GRID, "sharp"),
        (IMAGE, GRID, "nearest", "mirror"),
        (IMAGE, r(1, 5, 5, 2)),
        (IMAGE, r(2, 5, 5, 3)),
        (IMAGE, r(2, 5, 2)),
        (IMAGE, r(2, 5, 5, 5, 2)),
        (VOLUME, r(2, 5, 5, 3)),
        (r(2, 3, 4), r(2, 5, 1)),
        (r(2, 3, 4, 4, 4, 4), r(2, 5, 5, 5, 5, 4)),
        (r(2, 3), r(2, 0)),
        (r(()), r(2)),
        (r(2, 3, 0, 4), GRID),
        (VOLUME, POINTS, "bicubic"),
        (IMAGE.int(), GRID.int()),
        (VOLUME.bool(), POINTS.bool()),
        (IMAGE, GRID.half()),
        (VOLUME.half(), POINTS),
    ],
    ids=op_db.describe,
)
def test_errors(args):
    check_error(
        lambda: F.grid_sample(*to_jax(args), align_corners=False),
        lambda: T.grid_sample(*args, align_corners=False),
    )


@pytest.mark.parametrize(
    "args",
    [
        (r(2, 2, 3).int(), (2, 3, 4, 4)),
        (r(2, 2, 3), (2, 3, 4, 4, 4)),
        (r(2, 3, 3), [2, 3, 4, 4]),
        (r(2, 3), (2, 3, 4, 4)),
        (r(2, 2, 3), [2, 3, 4]),
        (r(2, 2, 3), (2, 3, 0, 4)),
        (r(2, 2, 3), (2, 3, 2, -1)),
        (r(2, 2, 3), (3, 3, 4, 4)),
        (r(2, 3, 4), (1, 3, 4, 4, 4)),
    ],
    ids=op_db.describe,
)
def test_affine_grid_errors(args):
    check_error(
        lambda: F.affine_grid(*to_jax(args), align_corners=False),
        lambda: T.affine_grid(*args, align_corners=False),
    )


@pytest.mark.parametrize("shape", [(2, 0, 4, 4), (0, 3, 4, 4)], ids=str)
def test_nothing(shape):
    grid = r(shape[0], 5, 5, 2)
    check_function(F.grid_sample, T.grid_sample, (r(*shape), grid), {"align_corners": False})
