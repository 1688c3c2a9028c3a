"""Parametrized before it has values: what purestate.init draws is what it would have drawn."""

import pickle

import jax
import jax.numpy as jnp
import pytest

import bridge
import purestate as ps
from purestate import nn
from tests.parity import assert_close


P = bridge.parametrize


class Symmetric(nn.Module):
    def forward(self, X):
        return jnp.triu(X) + jnp.triu(X, 1).T

    def right_inverse(self, A):
        return jnp.triu(A)


class Double(nn.Module):
    def forward(self, X):
        return 2 * X


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.conv = nn.Conv1d(4, 2, 3)

    def forward(self, x):
        return self.conv(self.fc(x).T[None])


CHANGES = {
    "weight_norm": lambda m: P.weight_norm(m, at="fc"),
    "spectral_norm": lambda m: P.spectral_norm(m, at="fc"),
    "user": lambda m: P.register_parametrization(m, "weight", Symmetric(), at="fc"),
    "no inverse": lambda m: P.register_parametrization(m, "weight", Double(), at="fc"),
    "stacked": lambda m: P.spectral_norm(P.weight_norm(m, at="fc"), at="fc"),
    "stacked on one original": lambda m: P.spectral_norm(
        P.register_parametrization(m, "weight", Symmetric(), at="fc"), at="fc"
    ),
    "orthogonal": lambda m: P.orthogonal(m, at="fc"),
    "householder": lambda m: P.orthogonal(m, at="fc", orthogonal_map="householder"),
    "pruned": lambda m: bridge.prune.custom_from_mask(m, "weight", jnp.eye(4), at="fc"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_before_and_after_init_are_the_same(name):
    change = CHANGES[name]
    late = change(ps.init(Net(), 7))
    early = change(Net())
    assert early.fc.weight.shape == (4, 4)  # A shape, before there is a value.
    assert repr(early) == repr(late)
    early = ps.init(early, 7)
    assert early._definition is late._definition
    ours, expected = bridge.state_dict(early), bridge.state_dict(late)
    for key in ours:
        if "_u" in key or "_v" in key:
            continue  # They start from another key.
        assert_close(ours[key], expected[key], where=key)
    if name != "no inverse":
        assert_close(jnp.abs(early.fc.weight), jnp.abs(late.fc.weight), table={"float32": (2e-3, 2e-3)})


def test_the_vectors_belong_to_the_weight_that_was_drawn():
    for name in ("spectral_norm", "stacked", "stacked on one original"):
        model = ps.init(CHANGES[name](Net()), 7)
        assert abs(float(jnp.linalg.norm(model.fc.weight, 2)) - 1) < 5e-3, name


def test_orthogonal_is_completed_from_one_draw():
    model = ps.init(P.orthogonal(nn.Linear(5, 3)), 0)
    norm = model.parametrizations.weight[0]
    assert_close(norm.base.T @ norm.base, jnp.eye(5))
    assert_close(model.weight @ model.weight.T, jnp.eye(3))


@pytest.mark.parametrize("name", CHANGES)
def test_an_undrawn_model_is_pickled(name):
    model = CHANGES[name](Net())
    again = pickle.loads(pickle.dumps(model))
    assert again._definition is model._definition
    for ours, theirs in zip(ps.init(again, 3)._leaves, ps.init(model, 3)._leaves, strict=True):
        assert (ours == theirs).all()
    for leaf in model._leaves:
        assert isinstance(hash(leaf.init), int) if hasattr(leaf, "init") else True


@pytest.mark.parametrize("name", CHANGES)
def test_init_under_jit(name):
    model = CHANGES[name](Net())
    eager, traced = ps.init(model, 0), jax.jit(lambda: ps.init(model, 0))()
    for ours, theirs in zip(traced._leaves, eager._leaves, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("name", CHANGES)
def test_converted_before_init(name):
    if "orthogonal" in name or "householder" in name:
        return  # jnp.linalg has no bfloat16.
    model = ps.init(bridge.bfloat16(CHANGES[name](Net())), 0)
    assert {str(leaf.dtype) for leaf in model._leaves} == {"bfloat16"}


def test_equal_initialisers_are_equal():
    first, second = P.weight_norm(nn.Linear(2, 2)), P.weight_norm(nn.Linear(2, 2))
    inits = [[leaf.init for leaf in model._leaves] for model in (first, second)]
    assert inits[0] == inits[1]
    assert [hash(init) for init in inits[0]] == [hash(init) for init in inits[1]]


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize("name", ["user", "spectral_norm", "stacked", "orthogonal", "weight_norm"])
def test_removed_before_init(name, leave):
    if not leave and name in ("stacked", "weight_norm"):
        with pytest.raises(ValueError, match="Cannot leave"):
            P.remove_parametrizations(CHANGES[name](Net()), "weight", leave, at="fc")
        return
    model = CHANGES[name](Net())
    drawn = ps.init(P.remove_parametrizations(model, "weight", leave, at="fc"), 7)
    expected = P.remove_parametrizations(ps.init(model, 7), "weight", leave, at="fc")
    assert drawn._definition is expected._definition
    assert_close(drawn.fc.weight, expected.fc.weight)


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self, which):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight
            setattr(self, which, P.spectral_norm(getattr(self, which)))

    for which, other in (("first", "second"), ("second", "first")):
        model = ps.init(Tied(which), 0)
        chain = getattr(model, which).parametrizations.weight
        assert chain.original is getattr(model, other).weight
        assert abs(float(jnp.linalg.norm(getattr(model, which).weight, 2)) - 1) < 5e-3
        assert_close(
            chain.original, ps.init(nn.ModuleDict({"first": nn.Linear(3, 3)}), 0)["first"].weight
        )


def test_another_initialiser_for_an_original():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = P.weight_norm(nn.Linear(2, 2))
            nn.init.ones_(self.fc.parametrizations.weight.original0)

    assert_close(ps.init(Own(), 0).fc.parametrizations.weight.original0, jnp.ones((2, 1)))


def test_assigning_before_init():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = P.weight_norm(nn.Linear(2, 2))
            self.fc.weight = ps.empty(2, 2, init=nn.init.constant(3.0))

    assert_close(ps.init(Own(), 0).fc.weight, jnp.full((2, 2), 3.0))


def test_without_an_initialiser():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(ps.empty(2, 2))

    for change in (P.weight_norm, P.spectral_norm, P.orthogonal):
        model = change(Bare())
        with pytest.raises(ps.UninitializedError, match="no initializer"):
            ps.init(model, 0)


def test_a_parametrization_without_values_that_is_inverted():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(ps.empty(2, 2, init=nn.init.normal()))

        def forward(self, X):
            return X + self.shift

        def right_inverse(self, Y):
            return Y - self.shift

    with pytest.raises(ps.UninitializedError, match="shift"):
        P.register_parametrization(nn.Linear(2, 2), "weight", Shifted())
    model = P.register_parametrization(nn.Linear(2, 2), "weight", ps.init(Shifted(), 1))
    assert_close(ps.init(model, 0).weight, ps.init(nn.Linear(2, 2), 0).weight)


def test_a_weight_that_is_no_function_of_one_key():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(ps.empty(2, 2, init=nn.init.normal()))

        def forward(self, X):
            return X + self.shift

    model = P.register_parametrization(nn.Linear(2, 2), "weight", Shifted())
    with pytest.raises(ps.UninitializedError, match=r"0\.shift"):
        P.spectral_norm(model)
    with pytest.raises(ps.UninitializedError, match=r"0\.shift"):
        P.remove_parametrizations(model, "weight")
    assert P.spectral_norm(ps.init(model, 0)).weight.shape == (2, 2)
