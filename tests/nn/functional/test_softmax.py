"""The softmaxes: the axis, the dtypes, rows without a finite number, and the Gumbel draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import assert_close, check_error, check_function, to_jax


NAMES = ["softmax", "log_softmax", "softmin"]
KEY = jax.random.key(0)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", NAMES)
def test_the_implicit_axis_warns_and_is_torchs(name, shape):
    x = torch.randn(shape)
    with pytest.warns(UserWarning, match="Implicit dimension") as theirs:
        expected = getattr(T, name)(x)
    with pytest.warns(UserWarning, match="Implicit dimension") as ours:
        actual = getattr(F, name)(to_jax(x))
    assert_close(actual, expected)
    assert str(ours[0].message) == str(theirs[0].message)
    assert ours[0].filename == __file__


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_rows_with_infinities(name, dtype):
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[inf, 1], [-inf, -inf], [-inf, 1], [nan, 1], [0.3, 80], [0, 0]]).to(dtype)
    check_function(getattr(F, name), getattr(T, name), (x, 1))


@pytest.mark.parametrize("name", NAMES)
def test_dtype(name):
    for x in (torch.randn(2, 4).half(), torch.arange(8, dtype=torch.int32).reshape(2, 4)):
        check_function(getattr(F, name), getattr(T, name), (x, 1), {"dtype": torch.float32})
    with jax.enable_x64(True):
        x = torch.randn(2, 4)
        check_function(getattr(F, name), getattr(T, name), (x, 0), {"dtype": torch.float64})
        check_function(getattr(F, name), getattr(T, name), (x.double(), 0))


@pytest.mark.parametrize("name", NAMES)
def test_empty_integers_stay(name):
    assert getattr(F, name)(jnp.ones((0, 3), int), 0).dtype == jnp.int32


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [2, -3, 5])
def test_an_axis_that_there_is_not(name, dim):
    x = torch.ones(2, 3)
    check_error(lambda: getattr(F, name)(to_jax(x), dim), lambda: getattr(T, name)(x, dim))


@pytest.mark.parametrize("name", NAMES)
def test_transforms(name):
    function = getattr(F, name)
    x = jnp.arange(6.0).reshape(2, 3) / 5
    np.testing.assert_allclose(jax.vmap(lambda r: function(r, 0))(x), function(x, 1), rtol=1e-6)
    hessian = jax.hessian(lambda r: function(r, 0)[0])(x[1])
    t = torch.tensor(np.array(x[1]))
    expected = torch.autograd.functional.hessian(lambda r: getattr(T, name)(r, 0)[0], t)
    assert_close(hessian, expected)


def test_gumbel_softmax_draws_the_classes_by_their_probability():
    logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))
    drawn = jax.vmap(lambda key: F.gumbel_softmax(logits, hard=True, rng=key))(
        jax.random.split(KEY, 20000)
    )
    np.testing.assert_allclose(drawn.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(drawn.mean(0), [0.5, 0.3, 0.2], atol=0.015)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gumbel_softmax_is_soft_and_hard(dim):
    logits = jax.random.normal(jax.random.key(1), (4, 5))
    soft = F.gumbel_softmax(logits, 0.7, dim=dim, rng=KEY)
    hard = F.gumbel_softmax(logits, 0.7, hard=True, dim=dim, rng=KEY)
    np.testing.assert_allclose(soft.sum(dim), 1, rtol=1e-5)
    np.testing.assert_allclose(hard, soft == soft.max(dim, keepdims=True), atol=1e-6)

    def weighted(logits, hard):
        y = F.gumbel_softmax(logits, 0.7, hard=hard, dim=dim, rng=KEY)
        return (y * jnp.arange(20).reshape(4, 5)).sum()

    gradients = [jax.grad(weighted)(logits, flag) for flag in (False, True)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)
    # The noise that was drawn, by torch's formula.
    noise = jax.random.gumbel(KEY, (4, 5))
    expected = ((torch.tensor(np.array(logits + noise))) / 0.7).softmax(dim)
    assert_close(soft, expected)


def test_gumbel_softmax_of_halves_scalars_and_nothing():
    half = F.gumbel_softmax(jnp.zeros((2, 3), jnp.bfloat16), hard=True, rng=KEY)
    assert half.dtype == jnp.bfloat16
    assert set(np.unique(half).tolist()) == {0.0, 1.0}
    for hard in (False, True):
        assert F.gumbel_softmax(jnp.zeros(()), hard=hard, rng=KEY) == 1
    assert F.gumbel_softmax(jnp.zeros((3, 0)), rng=KEY).shape == (3, 0)


def test_gumbel_softmax_refuses():
    x = torch.ones(2, 3)
    for tensor, options in [
        (x.int(), {}),
        (x.bool(), {"dim": 7}),
        (x, {"dim": 2}),
        (torch.ones(2, 0), {"hard": True}),
    ]:
        check_error(
            lambda tensor=tensor, options=options: F.gumbel_softmax(to_jax(tensor), rng=KEY, **options),
            lambda tensor=tensor, options=options: T.gumbel_softmax(tensor, **options),
        )
    with pytest.raises(ValueError, match=r"rng=self.next_key\(\)"):
        F.gumbel_softmax(jnp.ones(3))
    with pytest.warns(UserWarning, match="`eps` parameter is deprecated") as record:
        F.gumbel_softmax(jnp.ones(3), eps=1e-8, rng=KEY)
    assert record[0].filename == __file__
