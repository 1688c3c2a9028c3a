"""LSTM beyond the module database: names, projections, states, refusals, dropout, transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, to_jax, to_numpy


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False, "proj_size": 2, "bidirectional": True},
    {"num_layers": 3, "proj_size": 1, "batch_first": True},
    {"num_layers": 2, "dropout": 0.5, "bias": False},
]


def pair(**options):
    theirs = torch.nn.LSTM(3, 4, **options)
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    return bridge.load_state_dict(nn.LSTM(3, 4, **options), values)[0], theirs


@pytest.mark.parametrize("options", OPTIONS)
def test_built_as_torch(options):
    check_same(lambda nn: nn.LSTM(3, 4, **options))


@pytest.mark.parametrize("options", OPTIONS[1:4])
@pytest.mark.parametrize("batched", [True, False])
def test_given_states(options, batched):
    ours, theirs = pair(**options)
    rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    batch = (2,) if batched else ()
    width = options.get("proj_size") or 4
    x = (2, 5, 3) if options.get("batch_first") and batched else (5, *batch, 3)
    states = (torch.randn(rows, *batch, width), torch.randn(rows, *batch, 4))
    for state in states:
        state.requires_grad_()
    compare_call(ours, theirs, [torch.randn(x, requires_grad=True), states])


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.LSTM(3, 4, dropout=1.5),
        lambda nn: nn.LSTM(3, 4, dropout=True),
        lambda nn: nn.LSTM(3, 4, bias=1),
        lambda nn: nn.LSTM(3, 4, batch_first=0),
        lambda nn: nn.LSTM(3.0, 4),
        lambda nn: nn.LSTM(0, 4),
        lambda nn: nn.LSTM(3, "4"),
        lambda nn: nn.LSTM(3, -1),
        lambda nn: nn.LSTM(3, 4, num_layers=0),
        lambda nn: nn.LSTM(3, 4, proj_size=-1),
        lambda nn: nn.LSTM(3, 4, proj_size=4),
    ],
)
def test_refused_as_torch(build):
    check_same_error(build)


CALLS = {
    "1-D": lambda m, ones: m(ones(3)),
    "input size": lambda m, ones: m(ones(5, 2, 4)),
    "batched state axes": lambda m, ones: m(ones(5, 2, 3), (ones(1, 4), ones(1, 4))),
    "unbatched state axes": lambda m, ones: m(ones(5, 3), (ones(1, 1, 4), ones(1, 1, 4))),
    "hidden size": lambda m, ones: m(ones(5, 2, 3), (ones(1, 2, 5), ones(1, 2, 4))),
    "cell size": lambda m, ones: m(ones(5, 2, 3), (ones(1, 2, 4), ones(1, 3, 4))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_refused_as_torch(call):
    ours, theirs = pair()
    check_error(
        lambda: call(ours, lambda *shape: jnp.ones(shape)),
        lambda: call(theirs, lambda *shape: torch.ones(shape)),
    )


def test_another_dtype_is_refused():
    """Torch's error, with the lines to write here."""
    with pytest.raises(ValueError, match=r"does not match weight dtype.*input\.astype\(\"float32\"\)"):
        pair()[0](jnp.ones((5, 3), jnp.bfloat16))


def test_useless_dropout_warns():
    with pytest.warns(UserWarning, match="expects num_layers greater than 1") as record:
        nn.LSTM(3, 4, dropout=0.5)
    assert record[0].filename == __file__


def test_dropout_draws_in_training_only():
    ours, theirs = pair(num_layers=2, dropout=0.5)
    x = torch.randn(5, 2, 3)
    assert_close(bridge.eval(ours)(to_jax(x)), theirs.eval()(x))
    with pytest.raises(ps.MissingRngError):
        ours(to_jax(x))
    first = ps.call(ours, to_jax(x), rng=0)[0][0]
    assert np.array_equal(first, ps.call(ours, to_jax(x), rng=0)[0][0])
    assert not np.array_equal(first, ps.call(ours, to_jax(x), rng=1)[0][0])


def test_under_transforms():
    ours, theirs = pair(bidirectional=True)
    x = torch.randn(5, 2, 3)
    expected = theirs(x)
    assert_close(jax.jit(lambda m, x: m(x))(ours, to_jax(x)), expected)
    mapped = jax.vmap(lambda x: ours(x)[0], in_axes=1, out_axes=1)(to_jax(x))
    assert_close(mapped, expected[0])


def test_all_weights():
    ours, theirs = pair(num_layers=2)
    shapes = [[tuple(weight.shape) for weight in layer] for layer in ours.all_weights]
    assert shapes == [[tuple(weight.shape) for weight in layer] for layer in theirs.all_weights]


def test_drawn_within_the_hidden_size():
    for values in ps.init(nn.LSTM(100, 100), 0).parameters():
        assert 0.09 < np.abs(np.asarray(values)).max() <= 0.1
