"""Pooling beyond plain windows: bins, random windows, norms and the way back; ties, NaN, refusals."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, raised, to_jax


INF, NAN = torch.inf, torch.nan


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


def both(name, args, kwargs):
    check_error(
        lambda: getattr(F, name)(*to_jax(list(args)), **to_jax(kwargs)),
        lambda: getattr(T, name)(*args, **kwargs),
    )


def awkward(n):
    """Values with NaN in two places of a window, a channel of ties, and one of minus infinity."""
    values = torch.randn(2, 3, *(7,) * n, generator=torch.Generator().manual_seed(0))
    values[0, 0, ..., 2:4] = NAN
    values[1, 1] = 1
    values[1, 2] = -INF
    return values


@pytest.mark.parametrize(
    "window",
    [(2, 2, 1), (3, 1, 1), (3, 2, 1, 2), (4, 3, 2), (3, 2, 1, 1, True), (2, 1, 1, 5)],
    ids=str,
)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_never_wins(n, window):
    """Where all is minus infinity, the first entry of the input has the gradient."""
    name = f"max_pool{n}d"
    for return_indices in (False, True):
        options = {"return_indices": return_indices}
        check_function(getattr(F, name), getattr(T, name), (awkward(n), *window), options)


@pytest.mark.parametrize("kernel", [1, (1, 1, 2), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_windows_of_one_entry_have_positions(n, kernel):
    name, x = f"max_pool{n}d", awkward(n)
    kernel = kernel if isinstance(kernel, int) else kernel[:n]
    for stride in (1, 2):
        options = {"kernel_size": kernel, "stride": stride, "return_indices": True}
        check_function(getattr(F, name), getattr(T, name), (x,), options)
        check_function(getattr(F, name), getattr(T, name), (x[0],), options)
        mapped = jax.vmap(functools.partial(getattr(F, name), **options))(to_jax(x))
        assert_close(mapped, getattr(T, name)(x, **options))


def test_the_position_of_a_window_of_padding():
    x = torch.zeros(2, 1, 2, 7)
    options: Any = (3, None, 1, 2, True, True)
    values, positions = T.max_pool3d(x, *options)
    assert_close(F.max_pool3d(to_jax(x), *options), (values, torch.full_like(positions, -1)))
    assert (positions >= x[0].numel()).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_max_pool_chooses_as_torch(n):
    name = f"adaptive_max_pool{n}d"
    for size in (3, 9):
        options = {"output_size": size, "return_indices": True}
        check_function(getattr(F, name), getattr(T, name), (awkward(n),), options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [2, 3])
def test_fractional_max_pool_chooses_as_torch(n, dtype):
    """The starts of the windows are rounded as torch rounds them, in half types too."""
    name = f"fractional_max_pool{n}d"
    drawn = torch.rand(3, 3, n, generator=torch.Generator().manual_seed(1)).to(dtype)
    for kernel, size in [(2, 4), (3, (3, 1, 2)[:n])]:
        options = {"kernel_size": kernel, "output_size": size, "return_indices": True}
        check_function(
            functools.partial(getattr(F, name), **options, _random_samples=to_jax(drawn)),
            functools.partial(getattr(T, name), **options, _random_samples=drawn),
            (awkward(n).to(dtype),),
            gradient=dtype == torch.float32,
        )


def test_fractional_max_pool_draws():
    x = jnp.arange(2.0 * 3 * 12 * 12).reshape(2, 3, 12, 12)
    pool: Any = functools.partial(F.fractional_max_pool2d, x, 2, output_ratio=(0.6, 0.6))
    first, second = pool(rng=jax.random.key(0)), pool(rng=jax.random.key(1))
    assert first.shape == (2, 3, 7, 7)
    assert_close(first, pool(rng=jax.random.key(0)))
    assert not np.array_equal(first, second)
    # The last window always ends with the input; the channels are drawn one by one.
    np.testing.assert_array_equal(first[..., -1, -1], x[..., -1, -1])
    assert len(np.unique(first[0] - x[0, :, :1, :1], axis=0)) > 1
    batch = jax.vmap(lambda key: pool(rng=key))(jax.random.split(jax.random.key(0), 3))
    assert batch.shape == (3, 2, 3, 7, 7)


def test_fractional_max_pool_needs_a_key():
    error = raised(lambda: F.fractional_max_pool2d(jnp.zeros((1, 3, 5, 5)), 2, 3))
    assert isinstance(error, ValueError)
    assert "rng=key" in str(error)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_with_indices(n):
    """Torch's second names return positions whatever ``return_indices`` says."""
    x = torch.randn(1, 2, *(6,) * n)
    drawn = torch.rand(1, 2, n)
    calls = {f"max_pool{n}d": (2, 1), f"adaptive_max_pool{n}d": (2,)}
    if n > 1:
        calls[f"fractional_max_pool{n}d"] = (2, 3, None, False, drawn)
    for name, options in calls.items():
        ours, theirs = getattr(F, f"{name}_with_indices"), getattr(T, f"{name}_with_indices")
        assert_close(ours(to_jax(x), *to_jax(options)), theirs(x, *options))


@pytest.mark.parametrize("p", [2, 2.0, 1, 3, -1, 0.5, 1.5, INF, -INF])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_lp_pool(n, p):
    name = f"lp_pool{n}d"
    x = torch.randn(1, 3, *(5,) * n, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 0
    x[0, 1] = x[0, 1].abs()
    for options in [(2,), (3, 2, True)]:
        check_function(getattr(F, name), getattr(T, name), (x, p, *options))


def test_lp_pool_of_integers():
    x = torch.arange(-4, 4).reshape(1, 2, 4)
    check_function(F.lp_pool1d, T.lp_pool1d, (x, 2, 2))
    check_function(F.lp_pool2d, T.lp_pool2d, (x, INF, (1, 2)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_lp_pool_refusals(n):
    name, x = f"lp_pool{n}d", r(2, 3, *(4,) * n)
    for args in [(x[0, 0], 2, 2), (x, 2, 5), (x, 2, 0), (x, 2, 2, 0), (x, 2, 2, (2,) * 4), (x, 0, 2)]:
        both(name, args, {})
    both(name, (x, INF, 5), {})
    both(name, (x, 2, (2,) * (n + 1)), {})
    if n > 1:
        both(name, (x, 2, (2,)), {})
    else:  # Torch multiplies by the tuple.
        assert_close(F.lp_pool1d(to_jax(x + 1), 2, (2,)), T.lp_pool1d(x + 1, 2, 2))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_max_pool_refusals(n):
    name, x = f"adaptive_max_pool{n}d", r(2, 3, *(4,) * n)
    for args in [
        (x, -1),
        (x, (2,) * (n + 1)),
        (x, None),
        (x[0, 0], 2),
        (x[None], 2),
        (x[:, :0], 2),
        (x[..., :0], -2),
        (x.short(), 2),
    ]:
        both(name, args, {})
    for args in [(x[:0], 2), (x[0, :0], 2), (x, 0)]:
        check_function(getattr(F, name), getattr(T, name), args, gradient=False)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_max_pool_refusals(n):
    name, x, drawn = f"fractional_max_pool{n}d", r(2, 3, *(5,) * n), torch.rand(2, 3, n)
    for args in [
        (x[0, 0], 2, 3),
        (x[None], 2, 3),
        (x, 2),
        (x, 2, None, (1.5,) * n),
        (x, 2, None, (-0.5,) * n),
        (x, 2, 5),
        (x, 2, (3,) * (n - 1) + (5,)),
        (x, 2, (3,) * (n + 1)),
        (x, (2,) * (n - 1), 3),
        (x, 2, -1),
        (x[:, :0], 2, 3),
        (x.int(), 2, 3),
    ]:
        both(name, args, {})
    if n == 2:
        both(name, (x, 2, None, (0.5,) * 3), {})
    for samples in [drawn[0], drawn[:1], drawn[:, :1], drawn[..., :1], drawn.half()]:
        both(name, (x, 2, 3), {"_random_samples": samples})
    both(name, (x.int(), 2, 3), {"_random_samples": drawn.int()})
    # Of an empty window torch makes minus infinity.
    error = raised(lambda: getattr(F, name)(to_jax(x), 0, 3, _random_samples=to_jax(drawn)))
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_unpool_is_the_way_back(n):
    x = torch.randn(2, 3, *(7,) * n, generator=torch.Generator().manual_seed(0))
    pool, unpool = getattr(T, f"max_pool{n}d"), getattr(T, f"max_unpool{n}d")
    for window, sizes in [((2,), (x.shape, x.shape[2:])), ((3, 2, 1), (None,))]:
        values, positions = pool(x, *window, return_indices=True)  # the second overlap
        for size in sizes:
            ours = functools.partial(getattr(F, f"max_unpool{n}d"), output_size=size)
            theirs = functools.partial(unpool, output_size=size)
            check_function(ours, theirs, (values, positions, *window))
            check_function(ours, theirs, (values[0], positions[0], *window))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_unpool_to_nothing_looks_at_no_position(n):
    ours, theirs = getattr(F, f"max_unpool{n}d"), getattr(T, f"max_unpool{n}d")
    x = r(1, 2, *(3,) * (n - 1), 2)
    options = {"kernel_size": 1, "padding": (*(0,) * (n - 1), 1)}
    for position in (2, -2):
        positions = torch.full(x.shape, position)
        check_function(ours, theirs, (x, positions), options, gradient=False)
        jitted = jax.jit(functools.partial(ours, **options))
        assert_close(jitted(*to_jax((x, positions))), theirs(x, positions, **options))


def test_max_unpool_under_jit_leaves_out_what_has_no_place():
    values, positions = jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[-1, 2, 6]])
    np.testing.assert_array_equal(
        jax.jit(lambda v, i: F.max_unpool1d(v, i, 2))(values, positions), [[0, 0, 2, 0, 0, 0]]
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_unpool_refusals(n):
    name, x = f"max_unpool{n}d", r(1, 3, *(2,) * n)
    zeros = torch.zeros_like(x, dtype=torch.int64)
    for args, kwargs in [
        ((x[0, 0], zeros[0, 0], 2), {}),
        ((x[None], zeros[None], 2), {}),
        ((x, zeros[:, :2], 2), {}),
        ((x, zeros.float(), 2), {}),
        ((x, zeros.short(), 2), {}),
        ((x, zeros + 100, 2), {}),
        ((x, zeros - 1, 2), {}),
        ((x, zeros, (2,) * (n + 1)), {}),
        ((x, zeros, 2, 2, 5), {}),
        ((x, zeros, 2), {"output_size": [6] * n}),
        ((x, zeros, 2), {"output_size": (5,) * (n + 1)}),
        ((x, zeros, 2), {"output_size": 5}),
        ((x[:, :0], zeros[:, :0], 2), {}),
        ((x[..., :0], zeros[..., :0], 2), {}),
        ((x.short(), zeros, 2), {}),
    ]:
        both(name, args, kwargs)
    if n == 3:
        both(name, (x, zeros, 2, (2,) * 4), {})
        both(name, (x, zeros, 2, 0), {})
    check_function(getattr(F, name), getattr(T, name), (x[:0], zeros[:0], 2))


@pytest.mark.parametrize(
    "name",
    [
        *(f"adaptive_max_pool{n}d" for n in (1, 2, 3)),
        *(f"max_unpool{n}d" for n in (1, 2, 3)),
    ],
)
def test_database(name):
    """What torch's database says must raise, raises here with the same text."""
    found = list(op_db.errors(name))
    assert found
    for args, kwargs in found:
        both(name, args, kwargs)
