"""A parametrized model in every JAX transform, in copies and conversions."""

import copy
import pickle

import jax
import jax.numpy as jnp
import pytest

import bridge
import purestate as ps
from purestate import nn
from tests.differential.sides import OURS
from tests.parametrize.both import classes
from tests.parity import assert_close


P = bridge.parametrize


class Symmetric(nn.Module):
    def forward(self, X):
        return jnp.triu(X) + jnp.triu(X, 1).T

    def right_inverse(self, A):
        return jnp.triu(A)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = P.weight_norm(nn.Linear(3, 3))
        self.b = P.spectral_norm(nn.Linear(3, 3))
        self.c = P.orthogonal(nn.Linear(3, 3))
        self.d = P.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        self.e = bridge.prune.custom_from_mask(nn.Linear(3, 3), "weight", jnp.eye(3))

    def forward(self, x):
        return self.e(self.d(self.c(self.b(self.a(x)))))


@pytest.fixture(scope="module")
def model():
    return ps.init(Net(), 0)


X = jnp.linspace(-1, 1, 12).reshape(4, 3)


def equal(first, second):
    assert first._definition is second._definition
    for ours, theirs in zip(first._leaves, second._leaves, strict=True):
        assert_close(ours, theirs)


def test_jit_and_grad(model):
    output, after = ps.call(model, X)
    fast, new = jax.jit(ps.call)(model, X)
    assert_close(fast, output)
    equal(new, after)
    grads = jax.grad(lambda m: ps.call(m, X)[0].sum())(model)
    assert grads._definition is model._definition
    assert float(jnp.abs(grads.a.parametrizations.weight.original0).max()) > 0
    assert float(jnp.abs(grads.b.parametrizations.weight[0]._u).max()) == 0
    off = 1 - jnp.eye(3)
    assert float(jnp.abs(grads.e.weight_orig * off).max()) == 0


def test_one_definition_compiles_once(model):
    traced = []

    @jax.jit
    def run(m, x):
        traced.append(None)
        return ps.call(m, x)[0]

    run(model, X)
    run(ps.init(Net(), 1), X)
    assert len(traced) == 1


def test_vmap(model):
    outputs = jax.vmap(bridge.eval(model))(X[:, None])
    assert_close(outputs[:, 0], bridge.eval(model)(X))
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), model)
    both, new = jax.vmap(ps.call, in_axes=(0, None))(stacked, X)
    assert_close(both[1], ps.call(model, X)[0])
    assert new.b.parametrizations.weight[0]._u.shape == (2, 3)


def test_checkpoint_and_scan_within_forward():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = P.spectral_norm(nn.Linear(3, 3))

        def forward(self, x):
            def body(block, h):
                h, block = ps.call(block, h)
                return h, block

            x, self.block = jax.checkpoint(body)(self.block, x)
            return x

    model = ps.init(Outer(), 0)
    output, after = ps.call(model, X)
    plain, expected = ps.call(model.block, X)
    assert_close(output, plain)
    equal(after.block, expected)

    class Bad(Outer):
        def forward(self, x):
            return jax.checkpoint(lambda h: self.block(h))(x)

    bad = ps.init(Bad(), 0)
    with pytest.raises(ps.LeakedWriteError, match="_u"):
        ps.call(bad, X)
    assert_close(bridge.eval(bad)(X), bridge.eval(model)(X))


@pytest.mark.parametrize("change", [P.weight_norm, P.spectral_norm])
def test_a_deep_stack_runs_as_a_scan(change):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(change(nn.Linear(3, 3)) for _ in range(13)))

        def forward(self, x):
            return self.layers(x)

    model = ps.init(Deep(), 0)
    output, after = ps.call(model, X)
    fast, new = jax.jit(ps.call)(model, X)
    assert "scan" in str(jax.make_jaxpr(ps.call)(model, X))
    assert_close(fast, output)
    equal(new, after)


def test_copies(model):
    for again in (
        copy.copy(model),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        jax.tree.map(lambda a: a, model),
        ps.merge(*ps.split(model)),
    ):
        equal(again, model)
        assert_close(again.a.weight, model.a.weight)
        assert_close(ps.call(again, X)[0], ps.call(model, X)[0])


def test_copies_in_a_constructor():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = P.weight_norm(nn.Linear(2, 2))
            self.second = copy.deepcopy(self.first)

    model = ps.init(Two(), 0)
    assert P.is_parametrized(model.second)
    assert not (model.first.weight == model.second.weight).all()


def test_a_finished_layer_becomes_a_child(model):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model.a

    equal(Holder().inner, model.a)


def test_modes_and_conversions(model):
    frozen = bridge.requires_grad(model, False, where="a")
    assert not any(name.startswith("a.") for name in ps.split(frozen)[1])
    evaluated = bridge.eval(model)
    assert not evaluated.b.parametrizations.weight[0].training
    assert evaluated._definition is bridge.eval(model._definition)
    half = bridge.bfloat16(model)
    assert half.a.weight.dtype == half.e.weight.dtype == jnp.bfloat16
    assert half.b.parametrizations.weight[0]._u.dtype == jnp.bfloat16
    assert half.b.weight.dtype == jnp.bfloat16


def test_a_parametrized_model_is_parametrized_under_jit():
    layer = ps.init(nn.Linear(3, 3), 0)

    @jax.jit
    def normalised(layer):
        return P.weight_norm(layer)

    equal(normalised(layer), P.weight_norm(layer))


def test_capture_and_hooks_see_the_parametrization(model):
    outputs = ps.capture(model, X, at="a.**")[2]
    assert "a.parametrizations.weight.0" in outputs
    assert_close(outputs["a.parametrizations.weight.0"], model.a.weight)


def test_a_part_of_a_model(model):
    equal(
        P.remove_parametrizations(model.a, "weight"),
        P.remove_parametrizations(model, "weight", at="a").a,
    )
    x = X[:1]
    assert_close(model.a(x), x @ model.a.weight.T + model.a.bias)


def test_an_extra_repr_that_reads_the_name():
    undrawn = P.register_parametrization(nn.Linear(2, 2), "bias", classes(OURS).Double())
    assert "bias=True" in repr(undrawn)
    assert isinstance(undrawn.bias, jax.ShapeDtypeStruct)
    with pytest.raises(ps.UninitializedError):
        undrawn(jnp.ones((1, 2)))
