"""Layers that the module database lacks, and calls that must be refused: with values from torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.oracles.module_db import compare_call
from tests.parity import check_error, raised, to_jax


def r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


CALLS = {
    "RReLU-eval": (lambda nn: nn.RReLU(), [r(2, 3)]),
    "RReLU-one-slope": (lambda nn: nn.RReLU(0.25, 0.25), [r(2, 3)]),
    "CosineSimilarity": (lambda nn: nn.CosineSimilarity(), [r(2, 3), r(2, 3) + 1]),
    "CosineSimilarity-options": (lambda nn: nn.CosineSimilarity(0, 0.5), [r(2, 3), r(3)]),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(), [r(2, 3), r(2, 3) + 1]),
    "PairwiseDistance-options": (lambda nn: nn.PairwiseDistance(1.0, 0.1, True), [r(2, 3), r(3)]),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, -1)), [r(2, 6)]),
    "Unflatten-negative": (lambda nn: nn.Unflatten(-2, [1, 2, 1]), [r(2, 6)]),
    "Unflatten-empty": (lambda nn: nn.Unflatten(1, (0, 3)), [r(2, 0)]),
}


@pytest.mark.parametrize(("build", "args"), CALLS.values(), ids=CALLS)
def test_calls(build, args):
    training = args[0].shape == (2, 3) and "0.25" in repr(build(nn))
    ours, theirs = bridge.train(build(nn), training), build(torch.nn).train(training)
    assert repr(ours) == repr(theirs)
    compare_call(ours, theirs, [arg.detach().requires_grad_() for arg in args])


def test_rrelu_draws_in_training_only():
    layer, x = nn.RReLU(0.1, 0.5), -jnp.ones(1000)
    with pytest.raises(ps.MissingRngError, match="RReLU at "):
        layer(x)
    y, after = ps.call(layer, x, rng=0)
    assert after is layer
    assert y.min() >= -0.5
    assert y.max() <= -0.1
    assert len(np.unique(y)) > 900
    np.testing.assert_array_equal(y, ps.call(layer, x, rng=0)[0])
    jitted = jax.jit(lambda m, x, key: ps.call(m, x, rng=key)[0])
    np.testing.assert_allclose(jitted(layer, x, jax.random.key(0)), y, rtol=1e-6)
    np.testing.assert_allclose(bridge.eval(layer)(x), -0.3, rtol=1e-6)


REFUSED = {
    "softmax2d": (lambda nn: nn.Softmax2d(), r(2, 3)),
    "celu": (lambda nn: nn.CELU(0.0), r(2, 3)),
    "glu": (lambda nn: nn.GLU(), r(2, 3)),
    "softshrink": (lambda nn: nn.Softshrink(-1), r(2, 3)),
    "rrelu": (lambda nn: nn.RReLU(0.5, 0.25), r(2, 3)),
}


@pytest.mark.parametrize(("build", "x"), REFUSED.values(), ids=REFUSED)
def test_refused_calls(build, x):
    check_error(lambda: build(nn)(to_jax(x)), lambda: build(torch.nn)(x))


@pytest.mark.parametrize(
    ("dim", "sizes", "shape"),
    [
        (1, (2, 3), (2, 4)),
        (1, (3, -1), (2, 4)),
        (1, (-1, -1), (2, 4)),
        (1, (), (2, 4)),
        (2, (2, 2), (2, 4)),
        (-3, [2, 2], (2, 4)),
        (0, (1, 1), ()),
        (1, (-2, -2), (2, 4)),
        (1, (0, -1), (2, 4)),
        (1, (0, -1), (2, 0)),
    ],
)
def test_unflatten_refuses(dim, sizes, shape):
    ours = raised(lambda: nn.Unflatten(dim, sizes)(jnp.ones(shape)))
    theirs = raised(lambda: torch.nn.Unflatten(dim, sizes)(torch.ones(shape)))
    # Of some errors torch prints the C++ stack after the text.
    text = str(theirs).split("\nException raised from")[0]
    assert (type(ours), str(ours)) == (type(theirs), text)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Softmin"])
def test_the_implicit_axis_warns_where_the_layer_is_called(name):
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = getattr(nn, name)()

        def forward(self, x):
            return self.part(x)

    with pytest.warns(UserWarning, match="Implicit dimension") as record:
        Host()(jnp.ones((2, 3)))
    assert record[0].filename == __file__
