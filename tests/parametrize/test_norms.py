"""weight_norm, spectral_norm and orthogonal next to torch: structure, errors, numbers, training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch.nn.utils import parametrize

import bridge
import purestate as ps
from purestate import nn
from tests import tolerances
from tests.differential.sides import OURS, TORCH
from tests.parametrize.both import (
    THEIRS,
    agree,
    arrays,
    classes,
    described,
    linear,
    outcome,
    pair,
    same_state,
    tools,
)
from tests.parity import assert_close


LAYERS = {
    "linear": lambda library: library.Linear(3, 4),
    "conv": lambda library: library.Conv2d(4, 6, 3, groups=2),
    "transposed": lambda library: library.ConvTranspose1d(4, 6, 3),
    "embedding": lambda library: library.Embedding(5, 3),
}
INPUTS = {
    "linear": (2, 3),
    "conv": (1, 4, 5, 5),
    "transposed": (1, 4, 6),
    "embedding": None,
}


def given(kind):
    if INPUTS[kind] is None:
        return np.array([[0, 4, 2]])
    return np.random.default_rng(1).normal(size=INPUTS[kind]).astype(np.float32)


def both_sides(change, make, seed=0):
    """The changed model on both sides, ours with the numbers of torch's."""
    models = pair(make, seed)
    theirs, ours = change(THEIRS, models["torch"]), change(bridge.parametrize, models["purestate"])
    assert described(OURS, ours) == described(TORCH, theirs)
    ours, report = bridge.load_state_dict(ours, arrays(theirs.state_dict()))
    assert report == ([], [])
    return theirs, ours


def compare_gradients(theirs, ours, x):
    """One backward pass of the squared outputs."""
    (theirs(torch.tensor(x)) ** 2).sum().backward()
    definition, params, buffers = ps.split(ours)
    grads = jax.grad(lambda p: (ps.apply(definition, p, buffers, jnp.array(x))[0] ** 2).sum())(params)
    for name, parameter in theirs.named_parameters():
        assert_close(grads[name], parameter.grad, table=tolerances.GRADIENT, where=name)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("kind", LAYERS)
def test_weight_norm(kind, dim):
    models = pair(LAYERS[kind])
    theirs = THEIRS.weight_norm(models["torch"], dim=dim)
    ours = bridge.parametrize.weight_norm(models["purestate"], dim=dim)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    x = given(kind)
    assert_close(ours(jnp.array(x)), theirs(torch.tensor(x)))
    compare_gradients(theirs, ours, x)


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("kind", LAYERS)
def test_spectral_norm(kind, dim):
    theirs, ours = both_sides(lambda utils, m: utils.spectral_norm(m, dim=dim), LAYERS[kind])
    x = given(kind)
    for _ in range(3):  # Each call in training mode improves the vectors.
        expected = theirs(torch.tensor(x))
        output, ours = ps.call(ours, jnp.array(x))
        assert_close(output, expected)
        same_state(ours, theirs)
    theirs, ours = theirs.eval(), bridge.eval(ours)
    before = ours
    output, ours = ps.call(ours, jnp.array(x))
    assert ours is before
    assert_close(output, theirs(torch.tensor(x)))
    assert_close(ours.weight, theirs.weight)
    compare_gradients(theirs, ours, x)


@pytest.mark.parametrize("iterations", [1, 3])
def test_spectral_norm_in_training_has_torchs_gradient(iterations):
    theirs, ours = both_sides(
        lambda utils, m: utils.spectral_norm(m, n_power_iterations=iterations), linear
    )
    compare_gradients(theirs, ours, given("linear"))


def test_spectral_norm_of_a_vector():
    theirs, ours = both_sides(lambda utils, m: utils.spectral_norm(m, "bias"), linear)
    x = given("linear")
    assert_close(ours(jnp.array(x)), theirs(torch.tensor(x)))
    assert_close(jnp.linalg.norm(ours.bias), 1.0)
    compare_gradients(theirs, ours, x)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_spectral_norm_of_nothing(shape):
    theirs, ours = both_sides(
        lambda utils, model: utils.spectral_norm(model), lambda library: library.Linear(*shape)
    )
    assert ours.weight.shape == tuple(theirs.weight.shape)
    y, _ = ps.call(ours, jnp.ones((2, shape[0])))
    assert_close(y, theirs(torch.ones(2, shape[0])))


def test_the_vectors_start_near_the_largest_singular_value():
    model = bridge.parametrize.spectral_norm(pair(linear)["purestate"])
    expected = jnp.linalg.norm(model.parametrizations.weight.original, 2)
    sigma = model.parametrizations.weight.original[0, 0] / model.weight[0, 0]
    assert abs(float(sigma / expected) - 1) < 1e-2


def test_reading_a_spectrally_normalised_weight_changes_nothing():
    model = bridge.parametrize.spectral_norm(pair(linear)["purestate"])
    first = model.weight
    assert_close(model.weight, first)
    theirs = THEIRS.spectral_norm(torch.nn.Linear(3, 3))
    norm: Any = theirs.parametrizations["weight"][0]
    norm._v.copy_(torch.eye(3)[0])
    vector = norm._u.clone()
    _ = theirs.weight
    assert not torch.equal(vector, norm._u)
    with pytest.raises(ps.StatefulCallError, match="_u"):
        model(jnp.ones((1, 3)))


def test_a_weight_used_twice_iterates_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x))

    model = bridge.parametrize.spectral_norm(ps.init(Twice(), 0), at="fc")
    once = ps.call(model.fc, jnp.ones((1, 3)))[1]
    twice = ps.call(model, jnp.ones((1, 3)))[1]
    assert_close(twice.fc.parametrizations.weight[0]._u, once.parametrizations.weight[0]._u)


MAPS = [None, "matrix_exp", "cayley", "householder"]


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("trivialization", [True, False])
@pytest.mark.parametrize("map", MAPS)
def test_orthogonal(map, trivialization, shape):
    def change(utils, model):
        return utils.orthogonal(model, orthogonal_map=map, use_trivialization=trivialization)

    theirs, ours = both_sides(change, lambda library: library.Linear(shape[1], shape[0]))
    short = min(shape)
    gram = ours.weight @ ours.weight.T if shape[0] < shape[1] else ours.weight.T @ ours.weight
    assert_close(gram, jnp.eye(short))
    state = arrays(theirs.state_dict())
    name = "parametrizations.weight.original"
    noise = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    below = np.tril(noise, -1) if shape[0] >= shape[1] else np.triu(noise, 1)
    state[name] = state[name] + 0.3 * below
    theirs.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
    ours, _ = bridge.load_state_dict(ours, state)
    assert_close(ours.weight, theirs.weight)
    x = np.ones((2, shape[1]), np.float32)
    compare_gradients(theirs, ours, x)


@pytest.mark.parametrize("map", ["matrix_exp", "cayley", "householder"])
def test_a_batch_of_matrices(map):
    def change(utils, model):
        return utils.orthogonal(model, orthogonal_map=map)

    theirs, ours = both_sides(change, lambda library: library.Conv1d(4, 3, 2))
    gram = ours.weight.mT @ ours.weight
    assert_close(gram, jnp.broadcast_to(jnp.eye(2), gram.shape))
    assert_close(ours.weight, theirs.weight)


@pytest.mark.parametrize("map", MAPS)
def test_a_weight_that_is_orthogonal_stays(map):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0].astype(np.float32)

    def start(side):
        model = pair(linear)[side.name]
        sd = {"weight": rotation, "bias": np.zeros(3, np.float32)}
        if side is TORCH:
            model.load_state_dict({name: torch.tensor(value) for name, value in sd.items()})
        else:
            model, _ = bridge.load_state_dict(model, sd)
        return tools(side).orthogonal(model, orthogonal_map=map)

    theirs, ours = start(TORCH), start(OURS)
    assert_close(ours.weight, rotation)
    same_state(ours, theirs)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)], ids=["square", "tall", "wide"])
@pytest.mark.parametrize(("map", "trivialization"), [("matrix_exp", True), ("householder", False)])
def test_assigning_an_orthogonal_value(map, trivialization, shape):
    rows, columns = shape
    value = np.linalg.qr(np.random.default_rng(0).normal(size=(max(shape), min(shape))))[0]
    value = (value if rows >= columns else value.T).astype(np.float32)

    def start(side):
        utils = tools(side)
        model = pair(lambda library: library.Linear(columns, rows))[side.name]
        model = utils.orthogonal(model, orthogonal_map=map, use_trivialization=trivialization)
        return utils.set_parametrized(model, "weight", side.array(value.tolist()))

    theirs, ours = start(TORCH), start(OURS)
    assert_close(value, theirs.weight)
    assert_close(ours.weight, value)
    if rows == columns:
        same_state(ours, theirs)


def test_assigning_what_is_not_orthogonal_makes_it_so():
    value = np.arange(9, dtype=np.float32).reshape(3, 3) + np.eye(3, dtype=np.float32) * 5

    def start(side):
        model = tools(side).orthogonal(pair(linear)[side.name])
        return tools(side).set_parametrized(model, "weight", side.array(value.tolist()))

    same_state(start(OURS), start(TORCH))


@pytest.mark.parametrize("map", ["matrix_exp", "cayley"])
def test_assigning_without_trivialization(map):
    def ask(side, utils, model):
        model = utils.orthogonal(model, orthogonal_map=map, use_trivialization=False)
        value = side.array(np.eye(3).tolist())
        return outcome(lambda: utils.set_parametrized(model, "weight", value))

    assert agree(ask)[0] == "NotImplementedError"


def test_assigning_another_shape():
    def ask(side, utils, model):
        model = utils.orthogonal(model)
        return outcome(lambda: utils.set_parametrized(model, "weight", side.array([[1.0]])))

    assert agree(ask)[0] == "ValueError"


def test_orthogonal_on_top_of_another():
    def change(utils, model):
        side = OURS if utils is bridge.parametrize else TORCH
        model = utils.register_parametrization(model, "weight", classes(side).Double())
        return utils.orthogonal(model, use_trivialization=False)

    theirs, ours = both_sides(change, linear)
    assert_close(ours.weight, theirs.weight)
    with_base = bridge.parametrize.orthogonal(
        bridge.parametrize.register_parametrization(
            pair(linear)["purestate"], "weight", classes(OURS).Double()
        )
    )
    assert_close(with_base.weight, theirs.weight)


def test_complex_weights():
    rng = np.random.default_rng(0)
    value = (rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))).astype(np.complex64)

    def start(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                array = torch.tensor if side is TORCH else jnp.array
                self.weight = side.nn.Parameter(array(value))

        return Net()

    for name in ("orthogonal", "spectral_norm"):  # torch has no complex kernel of weight_norm.
        theirs, ours = (
            getattr(THEIRS, name)(start(TORCH)),
            getattr(bridge.parametrize, name)(start(OURS)),
        )
        ours, _ = bridge.load_state_dict(bridge.eval(ours), arrays(theirs.eval().state_dict()))
        assert_close(ours.weight, theirs.weight)
    householder = [
        outcome(lambda side=side: tools(side).orthogonal(start(side), orthogonal_map="householder"))
        for side in (TORCH, OURS)
    ]
    assert householder[0] == householder[1]
    assert householder[0] is not None


REFUSED = {
    "weight_norm": [{"name": "unknown"}],
    "spectral_norm": [
        {"name": "unknown"},
        {"name": "training"},
        {"n_power_iterations": 0},
        {"n_power_iterations": -1},
        {"dim": 2},
        {"dim": -3},
        {"name": "bias", "dim": 1},
    ],
    "orthogonal": [
        {"name": "unknown"},
        {"name": "bias"},
        {"orthogonal_map": "polar"},
        {"name": "in_features"},
    ],
}
CASES = [(name, number) for name, cases in REFUSED.items() for number in range(len(cases))]


@pytest.mark.parametrize(("function", "number"), CASES)
def test_what_is_refused(function, number):
    def ask(side, utils, model):
        return outcome(lambda: getattr(utils, function)(model, **REFUSED[function][number]))

    assert agree(ask) is not None


def network(library):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.conv = library.Conv1d(2, 4, 3, padding=1)
            self.fc = library.Linear(4, 3)

        def forward(self, x):
            h = self.conv(x)
            h = (h * h).mean(-1)
            return self.fc(h)

    return Net()


NORMS = {
    "weight_norm": lambda utils, m: utils.weight_norm(m),
    "spectral_norm": lambda utils, m: utils.spectral_norm(m),
    "both": lambda utils, m: utils.spectral_norm(utils.weight_norm(m)),
    "orthogonal": lambda utils, m: utils.orthogonal(m),
}


def normalised(name, side, model):
    change = NORMS[name]
    if name == "orthogonal":
        return at(side, model, "fc", change)
    return at(side, at(side, model, "conv", change), "fc", change)


def at(side, model, path, change):
    if side is OURS:
        functions = {
            name: lambda m, name=name: getattr(bridge.parametrize, name)(m, at=path)
            for name in ("weight_norm", "spectral_norm", "orthogonal")
        }
        return change(type("", (), {k: staticmethod(v) for k, v in functions.items()}), model)
    change(THEIRS, model.get_submodule(path))
    return model


@pytest.mark.parametrize("name", NORMS)
def test_twenty_steps_of_training(name):
    models = pair(network)
    theirs, ours = (normalised(name, side, models[side.name]) for side in (TORCH, OURS))
    assert described(OURS, ours) == described(TORCH, theirs)
    ours, _ = bridge.load_state_dict(ours, arrays(theirs.state_dict()))
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(20, 8, 2, 5)).astype(np.float32)
    ys = rng.normal(size=(20, 8, 3)).astype(np.float32)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    definition, params, buffers = ps.split(ours)
    rule = optax.sgd(0.05, momentum=0.9)
    state = rule.init(params)

    @jax.jit
    def step(params, buffers, state, x, y):
        def loss(params):
            out, new = ps.apply(definition, params, buffers, x)
            return ((out - y) ** 2).mean(), new

        (value, buffers), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = rule.update(grads, state, params)
        return optax.apply_updates(params, updates), buffers, state, value

    for x, y in zip(xs, ys, strict=True):
        optimizer.zero_grad()
        expected = ((theirs(torch.tensor(x)) - torch.tensor(y)) ** 2).mean()
        expected.backward()
        optimizer.step()
        params, buffers, state, value = step(params, buffers, state, x, y)
        assert_close(value, expected, table=tolerances.GRADIENT)
    trained = ps.merge(definition, params, buffers)
    for key, tensor in theirs.state_dict().items():
        assert_close(bridge.state_dict(trained)[key], tensor, table=tolerances.GRADIENT, where=key)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_weight(kind):
    def make(library):
        return getattr(library, kind)(3, 4)

    def change(utils, model):
        return utils.weight_norm(model, "weight_hh_l0")

    theirs, ours = both_sides(change, make)
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    with parametrize.cached():
        expected = theirs(torch.tensor(x))[0]
    assert_close(ours(jnp.array(x))[0], expected)


def test_attention():
    def make(library):
        return library.MultiheadAttention(4, 2, batch_first=True)

    theirs, ours = both_sides(lambda utils, m: utils.weight_norm(m, "in_proj_weight"), make)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    array, tensor = jnp.array(x), torch.tensor(x)
    assert_close(ours(array, array, array)[0], theirs(tensor, tensor, tensor)[0])
