"""The dropout layers: when they draw, from which key, and what comes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import assert_close


NAMES = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]
SHAPES = {"Dropout1d": (4, 5, 6), "Dropout3d": (4, 5, 2, 2, 2)}


def sample(name):
    return jnp.ones(SHAPES.get(name, (4, 5, 3, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_returns_the_input(name):
    x = sample(name)
    assert np.array_equal(bridge.eval(getattr(nn, name)())(x), x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certain_outcomes_need_no_key(name, p):
    x = sample(name)
    expected = getattr(torch.nn, name)(p)(torch.from_numpy(np.asarray(x).copy()))
    assert_close(getattr(nn, name)(p)(x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_training_needs_a_key_and_follows_it(name):
    layer, x = getattr(nn, name)(0.5), sample(name)
    with pytest.raises(ps.MissingRngError, match=f"{name} at "):
        layer(x)
    first, after = ps.call(layer, x, rng=0)
    assert after is layer
    assert np.array_equal(first, ps.call(layer, x, rng=0)[0])
    assert not np.array_equal(first, ps.call(layer, x, rng=1)[0])
    jitted = jax.jit(lambda m, x, key: ps.call(m, x, rng=key)[0])
    assert_close(jitted(layer, x, jax.random.key(0)), np.asarray(first))


@pytest.mark.parametrize("name", ["Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"])
def test_whole_channels(name):
    y, _ = ps.call(getattr(nn, name)(0.5), sample(name), rng=3)
    flat = np.asarray(y).reshape(20, -1)
    assert (flat == flat[:, :1]).all()
    assert len(np.unique(flat)) == 2


@pytest.mark.parametrize("p", [0.2, 0.7])
def test_rate_and_scale(p):
    y = np.asarray(ps.call(nn.Dropout(p), jnp.ones(20000), rng=0)[0])
    assert (y == 0).mean() == pytest.approx(p, abs=0.02)
    assert np.unique(y) == pytest.approx([0, 1 / (1 - p)])


def test_alpha_dropout_keeps_mean_and_variance():
    x = jax.random.normal(jax.random.key(0), (40000,))
    y = np.asarray(ps.call(nn.AlphaDropout(0.3), x, rng=0)[0])
    assert y.mean() == pytest.approx(0, abs=0.03)
    assert y.std() == pytest.approx(1, abs=0.03)


def test_two_layers_draw_differently():
    model = nn.ModuleList([nn.Dropout(), nn.Dropout()])

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model

        def forward(self, x):
            return [layer(x) for layer in self.layers] + [self.layers[0](x)]

    outputs, _ = ps.call(Both(), jnp.ones(100), rng=0)
    assert len({np.asarray(y).tobytes() for y in outputs}) == 3
