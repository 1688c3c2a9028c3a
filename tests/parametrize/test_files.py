"""Files: a parametrized model to torch and back, and the names of torch's older functions."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.differential.sides import OURS, TORCH
from tests.parametrize.both import arrays, classes, outcome, pair, same_state, tools
from tests.parity import assert_close


P = bridge.parametrize


def net(side):
    utils, library = tools(side), side.nn

    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.a = utils.weight_norm(library.Linear(3, 4))
            self.b = utils.spectral_norm(library.Conv1d(4, 3, 2))
            self.c = utils.orthogonal(library.Linear(3, 5))
            self.d = utils.register_parametrization(
                library.Linear(3, 3), "weight", classes(side).Symmetric()
            )
            self.d = utils.register_parametrization(self.d, "bias", classes(side).Scale())
            self.e = utils.spectral_norm(utils.weight_norm(library.Linear(3, 3)))

    return Net()


def test_a_file_to_torch_and_back(tmp_path):
    ours, theirs = ps.init(net(OURS), 0), net(TORCH)
    bridge.save(bridge.state_dict(ours), tmp_path / "ours.pt")
    loaded = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert theirs.load_state_dict(loaded, strict=True) == ([], [])
    same_state(ours, theirs)
    theirs.eval()
    for name in "abcde":
        assert_close(getattr(ours, name).weight, getattr(theirs, name).weight, where=name)
    torch.save(net(TORCH).state_dict(), tmp_path / "theirs.pt")
    again, report = bridge.load_state_dict(net(OURS), bridge.load(tmp_path / "theirs.pt"))
    assert report == ([], [])
    theirs.load_state_dict(torch.load(tmp_path / "theirs.pt", weights_only=True))
    same_state(again, theirs)


NORMS = {
    "weight_norm": lambda utils, layer: utils.weight_norm(layer),
    "spectral_norm": lambda utils, layer: utils.spectral_norm(layer),
    "orthogonal": lambda utils, layer: utils.orthogonal(layer),
    "both": lambda utils, layer: utils.spectral_norm(utils.weight_norm(layer)),
    "removed": lambda utils, layer: utils.remove_parametrizations(utils.weight_norm(layer), "weight"),
}


def kept_dtypes(sd):
    return {name: str(value.dtype).removeprefix("torch.") for name, value in sd.items()}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("how", ["loaded", "undrawn", "drawn", "constructor"])
def test_a_float64_weight_is_saved_as_one(kind, how):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = NORMS[kind](P, nn.Linear(3, 3, dtype="float64"))

    theirs = torch.nn.Linear(3, 3, dtype=torch.float64)
    expected = {name: value.numpy().copy() for name, value in theirs.state_dict().items()}
    if how == "constructor":
        ours = Net().fc
    else:
        ours = nn.Linear(3, 3, dtype="float64" if how != "loaded" else None)
        if how == "loaded":
            ours, _ = bridge.load_state_dict(ours, expected, assign=True)
        ours = NORMS[kind](P, ps.init(ours, 0) if how == "drawn" else ours)
    assert all(leaf.dtype == jnp.float32 for leaf in ours._leaves)
    assert kept_dtypes(bridge.state_dict(ours)) == kept_dtypes(
        NORMS[kind](tools(TORCH), theirs).state_dict()
    )


def old_weight_norm(dim):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(3, 4), dim=dim))


@pytest.mark.parametrize("dim", [0, 1, None])
def test_the_old_weight_norm(dim):
    old = old_weight_norm(dim)
    sd = arrays(old.state_dict())
    assert "0.weight_g" in sd
    given = dict(sd)
    model = P.weight_norm(nn.Sequential(nn.Linear(3, 4)), dim=dim, at="0")
    loaded, report = bridge.load_state_dict(model, sd)
    assert report == ([], [])
    assert sd == given
    assert_close(loaded[0].weight, old[0].weight)
    new = torch.nn.Sequential(tools(TORCH).weight_norm(torch.nn.Linear(3, 4), dim=dim))
    new.load_state_dict(old.state_dict())
    same_state(loaded, new)


@pytest.mark.parametrize("stacked", [False, True])
def test_the_old_spectral_norm(stacked):
    torch.manual_seed(0)
    old = torch.nn.utils.spectral_norm(torch.nn.Conv2d(2, 3, 2))
    x = np.ones((1, 2, 4, 4), np.float32)
    old(torch.tensor(x))
    old.eval()
    model = nn.Conv2d(2, 3, 2)
    if stacked:
        model = P.register_parametrization(model, "weight", classes(OURS).Identity())
    model = bridge.eval(P.spectral_norm(model))
    loaded, report = bridge.load_state_dict(model, arrays(old.state_dict()))
    assert report == ([], [])
    assert_close(loaded(jnp.array(x)), old(torch.tensor(x)))
    assert isinstance(loaded, nn.Conv2d)


@pytest.mark.parametrize("layer", ["Linear", "ConvTranspose1d"])
def test_a_spectral_norm_from_before_the_second_vector(layer):
    torch.manual_seed(0)
    sizes = (4, 3) if layer == "Linear" else (4, 3, 2)
    old = torch.nn.utils.spectral_norm(getattr(torch.nn, layer)(*sizes))
    x = np.ones((1, 4) if layer == "Linear" else (1, 4, 5), np.float32)
    for _ in range(20):
        old(torch.tensor(x))
    sd = old.eval().state_dict()
    expected = old(torch.tensor(x))
    sd["weight"] = old.weight.detach().clone()
    del sd["weight_v"]
    model = bridge.eval(P.spectral_norm(getattr(nn, layer)(*sizes)))
    loaded, report = bridge.load_state_dict(model, arrays(sd))
    assert report == ([], [])
    assert_close(loaded(jnp.array(x)), expected, table={"float32": (1e-4, 1e-4)})
    chain = loaded.parametrizations.weight
    matrix = jnp.moveaxis(chain.original, chain[0].dim, 0).reshape(len(chain[0]._u), -1)
    along = matrix @ chain[0]._v
    assert_close(along / jnp.linalg.norm(along), chain[0]._u, table={"float32": (1e-4, 1e-4)})


def test_half_of_the_old_names_is_reported_as_torch_does():
    def ask(side):
        model = tools(side).weight_norm(side.nn.Linear(2, 2))
        sd = {"weight_g": side.array([[1.0], [1.0]]), "bias": side.array([1.0, 1.0])}
        return outcome(lambda: side.load(model, sd))

    assert ask(OURS) == ask(TORCH)


def test_a_removed_norm_takes_no_old_names():
    model = P.remove_parametrizations(P.weight_norm(ps.init(nn.Linear(2, 2), 0)), "weight")
    sd = {"weight_g": np.ones((2, 1)), "weight_v": np.ones((2, 2)), "bias": np.ones(2)}
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"weight_g", "weight_v"'):
        bridge.load_state_dict(model, sd)


def test_a_plain_file_is_refused_as_torch_refuses_it():
    def ask(side):
        model = tools(side).spectral_norm(side.nn.Linear(2, 2))
        return outcome(lambda: side.load(model, side.state_dict(pair(linear)[side.name])))

    assert ask(OURS) == ask(TORCH)


def linear(library):
    return library.Linear(2, 2)
