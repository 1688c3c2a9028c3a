"""Dropout: exact at p = 0, p = 1 and in evaluation; statistics and structure in between."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import assert_close, check_error, check_function, to_jax


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


@pytest.mark.parametrize("ndim", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", ["dropout2d", "dropout3d"])
def test_the_number_of_axes_warns_as_torch(name, ndim):
    def warned(call):
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            call()
        return [(w.category, str(w.message), w.filename) for w in record]

    ours = warned(lambda: getattr(F, name)(jnp.ones((2,) * ndim), 0.0))
    assert ours == warned(lambda: getattr(T, name)(torch.ones((2,) * ndim), 0.0))


@pytest.mark.filterwarnings("ignore:dropout[23]d. Received a")
@pytest.mark.parametrize(
    ("name", "shape", "units"),
    [
        ("dropout1d", (400, 3), (400, 1)),
        ("dropout2d", (20, 20, 3), (20, 20, 1)),
        ("dropout2d", (20, 20), (20, 20)),
        ("dropout3d", (400, 2, 3, 2), (400, 1, 1, 1)),
        ("dropout3d", (400, 3, 2), (400, 1, 1)),
        ("dropout3d", (400,), (400,)),
    ],
)
def test_what_is_a_channel_by_the_number_of_axes(name, shape, units):
    y = np.asarray(getattr(F, name)(jnp.ones(shape), 0.5, rng=KEY))
    assert (y == np.broadcast_to(y[tuple(slice(0, size) for size in units)], shape)).all()
    # Nothing more is dropped together.
    assert 0.3 < (y == 0).mean() < 0.7


@pytest.mark.filterwarnings("ignore:dropout[23]d. Received a")
def test_too_few_axes():
    for name, x in [
        ("dropout2d", torch.ones(3)),
        ("dropout3d", torch.ones(())),
        ("feature_alpha_dropout", torch.ones(3)),
    ]:
        ours, theirs = getattr(F, name), getattr(T, name)
        check_error(
            lambda f=ours, x=x: f(to_jax(x), 0.5, True, rng=KEY), lambda f=theirs, x=x: f(x, 0.5, True)
        )
        check_function(lambda x, f=ours: f(x, 1.0, True), lambda x, f=theirs: f(x, 1.0, True), (x,))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_dtypes_are_refused_where_torch_draws(name, dtype):
    x = torch.ones(SHAPES.get(name, (4, 5, 2))).to(dtype)
    ours, theirs = getattr(F, name), getattr(T, name)
    check_error(lambda: ours(to_jax(x), 0.5, True, rng=KEY), lambda: theirs(x, 0.5, True))
    for p, training in [(0.0, True), (1.0, True), (0.5, False)]:
        actual = ours(to_jax(x), p, training)
        assert actual.dtype == to_jax(x).dtype
        assert_close(actual, theirs(x, p, training))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_halves_and_numbers_that_are_not_finite(dtype):
    x = jnp.concatenate([jnp.full(50, jnp.nan), jnp.full(50, jnp.inf), jnp.ones(100)]).astype(dtype)
    y = F.dropout(x, 0.5, rng=KEY)
    assert y.dtype == dtype
    y = np.asarray(y.astype(jnp.float32))
    # As in torch, which multiplies: a NaN is not dropped, an infinity times zero is one more.
    assert np.isnan(y[:50]).all()
    assert set(y[50:100].tolist()) >= {np.inf}
    assert np.isnan(y[50:100]).any()
    assert set(y[100:].tolist()) == {0.0, 2.0}
    assert F.alpha_dropout(jnp.ones(10, dtype), 0.5, True, rng=KEY).dtype == dtype


def test_the_mask_does_not_depend_on_x64():
    x = jnp.ones((64, 64), jnp.float32)
    narrow = F.dropout(x, 0.3, rng=KEY)
    with jax.enable_x64(True):
        wide = F.dropout(x, 0.3, rng=KEY)
    assert narrow.dtype == wide.dtype
    assert (np.asarray(narrow) == np.asarray(wide)).all()
