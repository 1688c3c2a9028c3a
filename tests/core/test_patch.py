"""bridge.patch: activations replaced by name, as values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bridge
import purestate as ps
from purestate import nn


X = jnp.arange(6.0).reshape(3, 2)


@pytest.fixture
def model():
    return ps.init(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), 0)


def test_a_value_and_a_function(model):
    value = jnp.ones((3, 4))
    y, after = bridge.patch(model, {"1": value}, X)
    np.testing.assert_allclose(y, model[2](value), rtol=1e-6)
    assert after is model
    y, _ = bridge.patch(model, {"1": lambda output: output * 2}, X)
    np.testing.assert_allclose(y, model[2](2 * jnp.tanh(model[0](X))), rtol=1e-6)


def test_another_value_compiles_nothing_anew(model):
    traces = []

    @jax.jit
    def steered(model, x, value):
        traces.append(1)
        return bridge.patch(model, {"0": lambda output: output + value}, x)[0]

    for scale in (0.0, 1.0, 2.0):
        value = jnp.full(4, scale)
        np.testing.assert_allclose(
            steered(model, X, value), model[2](jnp.tanh(model[0](X) + value)), rtol=1e-5
        )
    assert len(traces) == 1


def test_what_was_captured_is_put_back(model):
    _, _, cache = ps.capture(model, X, at="0")
    y, _ = bridge.patch(model, cache, X + 100)
    np.testing.assert_allclose(y, model(X), rtol=1e-6)


def test_gradients_flow_into_a_patch(model):
    gradient = jax.grad(lambda v: jnp.sum(bridge.patch(model, {"1": v}, X)[0]))(jnp.zeros((3, 4)))
    np.testing.assert_allclose(gradient, jnp.ones((3, 2)) @ model[2].weight, rtol=1e-6)


def test_state_comes_back_and_selectors_add_up():
    model = ps.init(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.Linear(2, 2)), 0)
    y, after = bridge.patch(model, {nn.Linear: lambda o: o + 1, "2": lambda o: o * 0}, X)
    np.testing.assert_array_equal(y, jnp.zeros((3, 2)))
    assert int(after[0].num_batches_tracked) == 1


def test_inside_of_many_equal_layers_under_jit():
    model = ps.init(nn.Sequential(*(nn.Linear(2, 2) for _ in range(14))), 0)
    expected = X
    for position, layer in enumerate(model):
        expected = layer(expected) + (position == 5)
    y = jax.jit(lambda m, x: bridge.patch(m, {"5": lambda o: o + 1}, x)[0])(model, X)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_a_selector_that_matches_nothing(model):
    with pytest.raises(ps.SelectorError):
        bridge.patch(model, {"9": jnp.zeros(())}, X)


class Apart(nn.Module):
    """Runs its part in a call of its own, or through a transform."""

    def __init__(self, through=None):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.head = nn.Linear(2, 2)
        self.through = through

    def forward(self, x):
        y, self.part = (self.through or (lambda f: f))(ps.call)(self.part, x)
        return self.head(y)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_module_that_runs_in_a_call_of_its_own(wrap):
    model = ps.init(Apart(), 0)
    y, after, outputs = wrap(ps.capture)(model, X)
    assert set(outputs) == {"part.0", "part.1", "part", "head"}
    np.testing.assert_allclose(outputs["part.0"], model.part[0](X), rtol=1e-6)
    np.testing.assert_array_equal(outputs["head"], y)
    assert int(after.part[1].num_batches_tracked) == 1
    value = jnp.ones((3, 2))
    y, after = wrap(bridge.patch)(model, {"part": value}, X)
    np.testing.assert_allclose(y, model.head(value), rtol=1e-6)
    assert int(after.part[1].num_batches_tracked) == 1


def test_a_module_that_runs_as_a_value_is_not_passed_over():
    model = ps.init(Apart(jax.checkpoint), 0)
    with pytest.raises(RuntimeError, match=r"\['part'\] did not run in this call"):
        bridge.patch(model, {"part": jnp.zeros((3, 2))}, X)
    for at in ("part", "part.*", ["head", nn.BatchNorm1d]):
        with pytest.raises(RuntimeError, match=r"\['part.*'\] did not run in this call"):
            ps.capture(model, X, at=at)
    assert list(ps.capture(model, X)[2]) == ["head"]


def test_a_call_of_its_own_inside_a_transform_is_refused():
    class Inside(Apart):
        def forward(self, x):
            return jax.checkpoint(lambda x: ps.call(self.part, x)[0])(x)

    with pytest.raises(ps.LeakedWriteError, match=r"the output of 'part\.0' is produced inside"):
        ps.capture(ps.init(Inside(), 0), X)
