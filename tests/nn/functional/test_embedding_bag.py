"""embedding_bag beyond the database's samples: edges, ties, errors, transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import assert_close, check_error, check_function, raised, to_jax


torch.manual_seed(0)
WEIGHT = torch.randn(6, 3) * 2
INDEX, OFFSETS = torch.tensor([0, 2, 3, 5, 1, 2]), torch.tensor([0, 2, 2, 4])
MODES = ["sum", "mean", "max"]


def check(*args, **options):
    check_function(F.embedding_bag, T.embedding_bag, args, options)


@pytest.mark.parametrize("mode", MODES)
def test_bags(mode):
    for options in ({}, {"padding_idx": 2}, {"padding_idx": -4}, {"max_norm": 1.5, "norm_type": 1.0}):
        check(INDEX, WEIGHT, OFFSETS, mode=mode, **options)
        check(INDEX.reshape(2, 3), WEIGHT, mode=mode, **options)
    check(INDEX.int(), WEIGHT, torch.tensor([0, 2, 6]), mode=mode)
    check(INDEX, WEIGHT, torch.tensor([0, 2, 6]), mode=mode, include_last_offset=True)


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_nothing(mode):
    check(INDEX[:0], WEIGHT, OFFSETS[:1], mode=mode)
    check(torch.tensor([2, 2, 3]), WEIGHT, torch.tensor([0, 2]), mode=mode, padding_idx=2)
    check(torch.tensor([[2, 2], [3, 1]]), WEIGHT, mode=mode, padding_idx=2)
    assert F.embedding_bag(*to_jax((INDEX, WEIGHT, OFFSETS[:0])), mode=mode).shape == (0, 3)
    assert F.embedding_bag(*to_jax((INDEX[:0].reshape(0, 2), WEIGHT)), mode=mode).shape == (0, 3)


def test_the_first_of_equal_rows_gets_the_gradient():
    same = torch.ones(6, 3)
    for options in ({}, {"padding_idx": 0}):
        check(INDEX, same, OFFSETS, mode="max", **options)
        check(INDEX.reshape(2, 3), same, mode="max", **options)


def test_weights_of_samples():
    weights = torch.arange(6.0)
    for options in ({}, {"padding_idx": 2}, {"max_norm": 1.0}):
        check(INDEX, WEIGHT, OFFSETS, mode="sum", per_sample_weights=weights, **options)
    check(INDEX.reshape(2, 3), WEIGHT, mode="sum", per_sample_weights=weights.reshape(2, 3))


@pytest.mark.parametrize("mode", MODES)
def test_dtypes(mode):
    for dtype in (torch.bfloat16, torch.float16):
        check(INDEX, WEIGHT.to(dtype), OFFSETS, mode=mode)
    with jax.enable_x64(True):
        check(INDEX, WEIGHT.double(), OFFSETS, mode=mode)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradient_by_frequency(mode):
    """Divided by the count of the row itself; torch takes those of other rows on the CPU."""
    weight, run = to_jax(WEIGHT), lambda *args, **kw: F.embedding_bag(*args, mode=mode, **kw).sum()
    args = to_jax((INDEX, OFFSETS))
    plain, scaled = (
        jax.grad(lambda w: run(args[0], w, args[1], scale_grad_by_freq=scale))(weight)  # noqa: B023
        for scale in (False, True)
    )
    np.testing.assert_allclose(scaled, plain / np.array([1, 1, 2, 1, 1, 1])[:, None], rtol=1e-6)


def test_past_the_last_offset_is_no_bag():
    """Torch reads memory there that it has not written."""
    args = to_jax((INDEX, WEIGHT, torch.tensor([0, 2, 4])))
    for mode in MODES:
        actual = F.embedding_bag(*args, mode=mode, include_last_offset=True)
        assert_close(actual, F.embedding_bag(args[0][:4].reshape(2, 2), args[1], mode=mode))


def test_not_a_number():
    """Torch's maximum sees a NaN only in the first row of a bag."""
    weight = to_jax(WEIGHT).at[3].set(jnp.nan)
    actual = F.embedding_bag(to_jax(INDEX), weight, to_jax(OFFSETS), mode="max")
    np.testing.assert_array_equal(np.isnan(actual).all(1), [False, False, True, False])
    actual = F.embedding_bag(jnp.array([[5, 3], [1, 2]]), weight, mode="max")
    np.testing.assert_array_equal(np.isnan(actual).all(1), [True, False])


def test_swapped_arguments():
    with pytest.warns(UserWarning, match="Argument order"):
        actual = F.embedding_bag(*to_jax((WEIGHT, INDEX.reshape(2, 3))))
    assert_close(actual, T.embedding_bag(INDEX.reshape(2, 3), WEIGHT))


@pytest.mark.parametrize("mode", MODES)
def test_transforms(mode):
    index, weight, offsets = to_jax((INDEX, WEIGHT, OFFSETS))
    run = lambda w, index, offsets: F.embedding_bag(index, w, offsets, mode=mode)  # noqa: E731
    expected = run(weight, index, offsets)
    np.testing.assert_allclose(jax.jit(run)(weight, index, offsets), expected, rtol=1e-6)
    both = jax.vmap(run, (0, None, None))(jnp.stack([weight, 3 * weight]), index, offsets)
    np.testing.assert_allclose(both, [expected, 3 * expected], rtol=1e-5)
    tangent = jax.jvp(lambda w: run(w, index, offsets), (weight,), (weight,))[1]
    np.testing.assert_allclose(tangent, expected, rtol=1e-6)
    rows = jax.vmap(lambda i: run(weight, i, jnp.array([0])))(jnp.array([[0, 1], [4, 7]]))
    np.testing.assert_array_equal(np.isnan(rows).all((1, 2)), [False, True])


X2, PSW = INDEX.reshape(2, 3), torch.ones(6)
ERRORS = [
    ((INDEX.reshape(1, 2, 3), WEIGHT), {}),
    ((INDEX, WEIGHT), {}),
    ((INDEX, WEIGHT, OFFSETS[None]), {}),
    ((INDEX, WEIGHT[0], OFFSETS), {}),
    ((X2[:, :0], WEIGHT), {}),
    ((INDEX.float(), WEIGHT, OFFSETS), {}),
    ((INDEX.short(), WEIGHT, OFFSETS.short()), {}),
    ((INDEX, WEIGHT.int(), OFFSETS), {}),
    ((INDEX, WEIGHT, torch.tensor([0, 2, 7])), {}),
    ((INDEX, WEIGHT, OFFSETS), {"padding_idx": 6}),
    ((INDEX, WEIGHT, OFFSETS), {"padding_idx": -7}),
    ((INDEX - 1, WEIGHT, OFFSETS), {"mode": "max"}),
    ((INDEX + 2, WEIGHT, OFFSETS), {"mode": "max"}),
    ((INDEX + 2, WEIGHT, OFFSETS), {"padding_idx": 0}),
    ((INDEX + 2, WEIGHT, OFFSETS[:1]), {"mode": "sum"}),
    ((INDEX - 1, WEIGHT, OFFSETS[:1].int()), {"mode": "mean"}),
    ((INDEX + 2, WEIGHT.half(), OFFSETS[:1]), {"mode": "sum", "per_sample_weights": PSW.half()}),
    ((INDEX, WEIGHT, OFFSETS[:0]), {"include_last_offset": True}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "some"}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "max", "scale_grad_by_freq": True}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "max", "sparse": True}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "mean", "per_sample_weights": PSW}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "sum", "per_sample_weights": PSW[:5]}),
    ((INDEX, WEIGHT, OFFSETS), {"mode": "sum", "per_sample_weights": PSW.half()}),
]


@pytest.mark.parametrize(("args", "options"), ERRORS, ids=range(len(ERRORS)))
def test_errors(args, options):
    check_error(
        lambda: F.embedding_bag(*to_jax(args), **to_jax(options)),
        lambda: T.embedding_bag(*args, **options),
    )


def test_errors_that_name_a_type_of_tensor():
    expected = raised(lambda: T.embedding_bag(INDEX, WEIGHT, OFFSETS + 1))
    actual = raised(lambda: F.embedding_bag(*to_jax((INDEX, WEIGHT, OFFSETS + 1))))
    assert str(expected).startswith(str(actual))  # Torch's goes on with the dtype of the offsets.
    with pytest.raises(ValueError, match="if input is 2D, then offsets has to be None"):
        F.embedding_bag(*to_jax((X2, WEIGHT, OFFSETS)))
