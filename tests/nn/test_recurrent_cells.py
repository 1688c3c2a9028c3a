"""Cells beyond the module database: states, refusals, transforms, other dtypes."""

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.test_util import check_grads

import bridge
from purestate import nn
from purestate.nn import functional as F
from tests.nn.both import check_same
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, check_function, to_jax, to_numpy


KINDS = ["GRUCell", "LSTMCell", "RNNCell"]
FUNCTIONS = ["gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"]


def pair(kind, **options):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, kind)(3, 4, **options)
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    return bridge.load_state_dict(getattr(nn, kind)(3, 4, **options), values)[0], theirs


def state(kind, make, *shape):
    return (make(*shape), make(*shape)) if kind.lower().startswith("lstm") else make(*shape)


@pytest.mark.parametrize("kind", KINDS)
def test_built_as_torch(kind):
    check_same(lambda nn: getattr(nn, kind)(3, 4))
    check_same(lambda nn: getattr(nn, kind)(3, 4, bias=False))


def test_the_others_built_as_torch():
    check_same(lambda nn: nn.RNNCell(3, 4, False, "relu"))
    check_same(lambda nn: nn.RNNCellBase(3, 4, True, 2))


@pytest.mark.parametrize("batch", [(2,), ()], ids=["batched", "unbatched"])
@pytest.mark.parametrize("kind", KINDS)
def test_given_states(kind, batch):
    ours, theirs = pair(kind, bias=not batch)
    h = state(kind, lambda *shape: torch.randn(*shape, requires_grad=True), *batch, 4)
    compare_call(ours, theirs, [torch.randn(*batch, 3, requires_grad=True), h])


CALLS = {
    "3-D": lambda m, ones, kind: m(ones(1, 2, 3)),
    "0-D": lambda m, ones, kind: m(ones()),
    "state axes": lambda m, ones, kind: m(ones(2, 3), state(kind, ones, 1, 2, 4)),
    "input size": lambda m, ones, kind: m(ones(2, 4)),
    "unbatched input size": lambda m, ones, kind: m(ones(4)),
    "state size": lambda m, ones, kind: m(ones(2, 3), state(kind, ones, 2, 5)),
    "state batch": lambda m, ones, kind: m(ones(2, 3), state(kind, ones, 3, 4)),
    "batched state": lambda m, ones, kind: m(ones(3), state(kind, ones, 1, 4)),
    "unbatched state": lambda m, ones, kind: m(ones(2, 3), state(kind, ones, 4)),
    "as many as the batch": lambda m, ones, kind: m(ones(4, 3), state(kind, ones, 4)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_refused_as_torch(call, kind):
    ours, theirs = pair(kind)
    check_error(
        lambda: call(ours, lambda *shape: jnp.ones(shape), kind),
        lambda: call(theirs, lambda *shape: torch.ones(shape), kind),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_other_dtypes_refused_as_torch(kind):
    ours, theirs = pair(kind)
    half = lambda *shape: torch.ones(shape).half()  # noqa: E731
    jax_half = lambda *shape: jnp.ones(shape, jnp.float16)  # noqa: E731
    check_error(lambda: ours(jax_half(2, 3)), lambda: theirs(half(2, 3)))
    check_error(
        lambda: ours(jnp.ones((2, 3)), state(kind, jax_half, 2, 4)),
        lambda: theirs(torch.ones(2, 3), state(kind, half, 2, 4)),
    )


@pytest.mark.parametrize(
    "hx",
    [lambda ones: (ones(2, 4), ones(2, 5)), lambda ones: (ones(2, 4),)],
    ids=["cell size", "one"],
)
def test_cell_states_refused_as_torch(hx):
    ours, theirs = pair("LSTMCell")
    check_error(
        lambda: ours(jnp.ones((2, 3)), hx(lambda *shape: jnp.ones(shape))),
        lambda: theirs(torch.ones(2, 3), hx(torch.ones)),
    )


def test_another_nonlinearity_is_refused_in_the_call():
    check_error(
        lambda: nn.RNNCell(3, 4, nonlinearity="x")(jnp.ones((2, 3))),
        lambda: torch.nn.RNNCell(3, 4, nonlinearity="x")(torch.ones(2, 3)),
    )


def case(name, dtype=torch.float32):
    """The arguments of a functional."""
    torch.manual_seed(0)
    rows = {"l": 16, "g": 12, "r": 4}[name[0]]
    sizes = [(rows, 3), (rows, 4), (rows,), (rows,)]
    h = state(name, lambda *shape: torch.randn(*shape, dtype=dtype), 2, 4)
    return [torch.randn(2, 3, dtype=dtype), h, *(torch.randn(size, dtype=dtype) for size in sizes)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_float64(name):
    with jax.enable_x64(True):
        check_function(getattr(F, name), getattr(torch, name), case(name, torch.float64))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_bfloat16(name):
    args = case(name, torch.bfloat16)
    for out in jax.tree.leaves(getattr(F, name)(*to_jax(args))):
        assert out.dtype == jnp.bfloat16


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_both_orders_in_both_modes(name):
    with jax.enable_x64(True):
        check_grads(getattr(F, name), to_jax(case(name, torch.float64)), 2, modes=("fwd", "rev"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    args = case(name)
    arrays = to_jax(args)
    mapped = jax.vmap(getattr(F, name), in_axes=(0, 0, *(None,) * 4))(*arrays)
    assert_close(mapped, getattr(torch, name)(*args))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_state_and_no_bias(name):
    x, h, w_ih, w_hh, *_ = case(name)
    zeros = jax.tree.map(torch.zeros_like, h)
    expected = getattr(torch, name)(x, zeros, w_ih, w_hh)
    assert_close(getattr(F, name)(to_jax(x), None, to_jax(w_ih), to_jax(w_hh)), expected)
