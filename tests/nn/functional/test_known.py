"""Values are looked at where this process has them: not under a trace, not on another host."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import purestate as ps
from purestate import nn
from purestate.nn import functional as F
from purestate.nn.functional._known import known


MESH = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))


def spread(values):
    """Integers over two devices."""
    return jax.device_put(jnp.array(values), NamedSharding(MESH, PartitionSpec("data")))


INDICES = spread([0, 1, 2, 1])
LENGTHS = spread([3, 4])
LOG_PROBS = jnp.log(jnp.full((4, 2, 3), 1 / 3))
MASK = jnp.where(INDICES[:, None] < INDICES, -jnp.inf, 0.0)
LAYER = nn.TransformerEncoderLayer(2, 1, 2, dropout=0.0)
ENCODER = ps.init(nn.TransformerEncoder(LAYER, 1, enable_nested_tensor=False), 0)

CALLS = {
    "embedding": lambda: F.embedding(INDICES, jnp.ones((3, 2))),
    "embedding_bag": lambda: F.embedding_bag(INDICES[:, None], jnp.ones((3, 2))),
    "max_unpool1d": lambda: F.max_unpool1d(jnp.ones((4, 1, 1)), INDICES[:, None, None] // 2, 2),
    "one_hot": lambda: F.one_hot(INDICES, 3),
    "ctc_loss": lambda: F.ctc_loss(LOG_PROBS, jnp.ones((2, 4), int), LENGTHS, LENGTHS - 2),
    "nll_loss": lambda: F.nll_loss(jnp.ones((4, 3)), INDICES),
    "TransformerEncoder": lambda: ENCODER(jnp.ones((4, 1, 2)), MASK),
}


@pytest.fixture
def elsewhere():
    """As if another process had the second device: JAX refuses to fetch what is spread over both."""
    is_here = property(lambda array: len(array.sharding.device_set) == 1)
    with mock.patch.object(type(INDICES), "is_fully_addressable", is_here):
        yield


def test_an_array_of_this_process_is_known():
    assert known(INDICES)
    assert known(np.ones(2))


def test_a_traced_array_and_an_empty_one_are_not():
    assert not jax.eval_shape(lambda x: (jnp.zeros(int(known(x))),), INDICES)[0].size
    assert not known(jnp.zeros((2, 0)))


def test_an_array_of_several_hosts_is_not(elsewhere):
    assert not known(INDICES)
    with pytest.raises(RuntimeError, match="spans non-addressable"):
        np.asarray(INDICES + 0)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_fetched_from_other_hosts(name, elsewhere):
    CALLS[name]()


TABLE = jnp.arange(1.0, 5.0)[:, None]
TARGETS = jnp.array([[1, 2], [2, 1]])
ADAPTIVE = ps.init(nn.AdaptiveLogSoftmaxWithLoss(2, 4, [2], div_value=1.0), 0)


def bags(offsets):
    return F.embedding_bag(jnp.arange(4), TABLE, offsets, mode="sum")[:, 0]


def entropies(input, target):
    return F.binary_cross_entropy(input, target, reduction="none")


def aligned(inputs, targets):
    return F.ctc_loss(LOG_PROBS, TARGETS, inputs, targets, reduction="none")


def usual(inputs, targets):
    """The losses of the lengths that one of the others stands for."""
    return aligned(jnp.array(inputs), jnp.array(targets))


NAN, INF = np.nan, np.inf
HIDDEN = {
    "embedding_bag, first offset": (bags, ([1, 2],), lambda: [2, 7]),
    "embedding_bag, last offset": (bags, ([0, 9],), lambda: [10, 0]),
    "binary_cross_entropy, input": (entropies, ([-0.5, 1.5], [0.0, 1.0]), lambda: [NAN, NAN]),
    "binary_cross_entropy, target": (entropies, ([0.5, 0.5], [2.0, -1.0]), lambda: [np.log(2)] * 2),
    "ctc_loss, long inputs": (aligned, ([9, 4], [2, 1]), lambda: usual([4, 4], [2, 1])),
    "ctc_loss, negative inputs": (aligned, ([-1, -4], [2, 1]), lambda: [INF, INF]),
    "ctc_loss, long targets": (aligned, ([4, 4], [3, 9]), lambda: [NAN, NAN]),
    "multilabel_margin_loss": (
        lambda target: F.multilabel_margin_loss(jnp.ones((2, 2)), target, reduction="none"),
        ([[2, -1], [-2, -1]],),
        lambda: [NAN, NAN],
    ),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda target: ADAPTIVE(jnp.ones((2, 2)), target).output,
        ([4, -1],),
        lambda: [NAN, NAN],
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_values_that_torch_refuses_and_jit_hides(name):
    function, args, expected = HIDDEN[name]
    arrays = tuple(map(jnp.array, args))
    np.testing.assert_allclose(jax.jit(function)(*arrays), expected(), rtol=1e-6)
    with pytest.raises((RuntimeError, IndexError)):
        function(*arrays)
