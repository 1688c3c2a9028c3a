"""Dropout: exact at p = 0, p = 1 and in evaluation; statistics and structure in between."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import check_error, check_function


NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
SHAPES = {"dropout1d": (4, 50, 8), "dropout2d": (4, 50, 4, 4), "dropout3d": (4, 50, 2, 2, 2)}
KEY = jax.random.key(0)


def example(name):
    return torch.randn(SHAPES.get(name, (4, 50, 8)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.5, False)])
def test_exact_where_nothing_is_random(name, p, training):
    ours, theirs = getattr(F, name), getattr(T, name)
    check_function(lambda x: ours(x, p, training), lambda x: theirs(x, p, training), (example(name),))


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d"])
def test_whole_units_are_dropped_and_the_rest_is_scaled(name):
    x = jnp.ones(SHAPES.get(name, (40, 50, 8)))
    y = np.asarray(getattr(F, name)(x, 0.25, True, rng=KEY))
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    units = y if name == "dropout" else y.reshape(*y.shape[:2], -1)
    if name != "dropout":
        assert (units == units[..., :1]).all()
        units = units[..., 0]
    kept = (units != 0).mean()
    assert abs(kept - 0.75) < 4 * np.sqrt(0.75 * 0.25 / units.size)


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance_and_replaces_as_torch(name):
    x = jax.random.normal(jax.random.key(1), (400, 500))
    y = np.asarray(getattr(F, name)(x, 0.3, True, rng=KEY))
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1) < 0.02
    theirs = getattr(T, name)(torch.from_numpy(np.array(x)), 0.3, True).numpy()
    dropped = np.unique(theirs[np.isclose(theirs, theirs.min(), atol=1e-6)])[0]
    values, counts = np.unique(y.round(5), return_counts=True)
    np.testing.assert_allclose(values[counts.argmax()], _most_common(theirs), atol=2e-5)
    assert np.isfinite(dropped)


def _most_common(values):
    found, counts = np.unique(values.round(5), return_counts=True)
    return found[counts.argmax()]


def test_the_mask_is_the_keys():
    x = jnp.ones(100)
    first, again = (F.dropout(x, 0.5, True, rng=KEY) for _ in range(2))
    other = F.dropout(x, 0.5, True, rng=jax.random.key(1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    gradient = jax.grad(lambda x: F.dropout(x, 0.5, True, rng=KEY).sum())(x)
    np.testing.assert_array_equal(gradient, first)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_a_probability_outside_of_0_1(name, p):
    x = torch.ones(SHAPES.get(name, (4, 50, 8)))
    check_error(
        lambda: getattr(F, name)(jnp.asarray(x.numpy()), p, True), lambda: getattr(T, name)(x, p, True)
    )


def test_without_a_key_it_says_what_to_write():
    with pytest.raises(ValueError, match=r"rng=self.next_key\(\)"):
        F.dropout(jnp.ones(3), 0.5, True)
