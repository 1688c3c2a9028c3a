"""functional_call and stack_module_state next to torch's (rows 152-156)."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import to_jax


X = np.arange(6.0, dtype=np.float32).reshape(3, 2)
W = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def tied(nn):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            self.b.weight = self.a.weight
            self.register_buffer("shift", _zeros(nn))

        def forward(self, x, scale=1.0):
            return self.b(self.a(x)) * scale + self.shift

    return Tied()


def _zeros(library):
    return torch.zeros(2) if library is torch.nn else jnp.zeros(2)


def models():
    torch.manual_seed(0)
    theirs = tied(torch.nn)
    mine, _ = bridge.load_state_dict(tied(nn), to_jax(theirs.state_dict()))
    return mine, theirs


CALLS = {
    "one name of a tie sets both (153)": ({"a.weight": W}, {}),
    "the other name too": ({"b.weight": W}, {}),
    "a part of a tie": ({"b.weight": W}, {"tie_weights": False}),
    "several dictionaries": (({"a.weight": W}, {"shift": W[0]}), {}),
    "a name in two dictionaries (152)": (({"a.weight": W}, {"a.weight": W}), {}),
    "two values for a tie": ({"a.weight": W, "b.weight": W + 1}, {}),
    "strict, all there": (
        {
            "a.weight": W,
            "a.bias": W[0],
            "b.bias": W[1],
            "shift": W[0],
        },
        {"strict": True},
    ),
    "strict, missing and unexpected (154)": ({"a.weight": W, "q": W}, {"strict": True}),
    "unknown name": ({"q": W}, {}),
    "unknown parent": ({"q.weight": W}, {}),
    "another shape is not looked at (154)": ({"shift": W[0][:1]}, {}),
    "another shape that does not fit": ({"a.weight": W[:, :1]}, {}),
    "no bias": ({"a.bias": None}, {}),
    "no dictionary": (3, {}),
    "no dictionaries": ([3], {}),
    "keyword arguments": ({}, {"kwargs": {"scale": 3.0}}),
}


def array(value, make) -> Any:
    if isinstance(value, dict):
        return {name: None if item is None else make(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(array(item, make) for item in value)
    return value


def outcome(call) -> Any:
    try:
        return np.asarray(call())
    except (AttributeError, RuntimeError, ValueError) as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", CALLS)
def test_the_same_call(name):
    given, options = CALLS[name]
    mine, theirs = models()
    with torch.no_grad():
        expected = outcome(
            lambda: torch.func.functional_call(
                theirs, array(given, torch.tensor), (torch.tensor(X),), **options
            )
        )
    actual = outcome(lambda: bridge.functional_call(mine, array(given, jnp.asarray), X, **options))
    if isinstance(expected, tuple):
        assert actual == expected
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_a_written_buffer_is_not_lost_in_silence():
    model = ps.init(nn.BatchNorm1d(2), 0)
    with pytest.raises(ps.StatefulCallError, match=r"purestate\.apply"):
        bridge.functional_call(model, {}, X)
    assert bridge.functional_call(bridge.eval(model), {}, X).shape == (3, 2)


def test_torch_writes_into_the_callers_dictionary_152():
    """Here nothing can: the call above is refused, and ``apply`` returns the new state."""
    theirs = torch.nn.BatchNorm1d(2)
    given = {name: value.clone() for name, value in theirs.named_buffers()}
    torch.func.functional_call(theirs, given, torch.tensor(X))
    assert int(given["num_batches_tracked"]) == 1
    assert int(theirs.num_batches_tracked or 0) == 0
    definition, params, buffers = ps.split(ps.init(nn.BatchNorm1d(2), 0))
    _, after = ps.apply(definition, params, buffers, X)
    for name, value in given.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-6)
    assert int(buffers["num_batches_tracked"]) == 0


def test_hooks_and_recurrences_are_honoured_155():
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.LSTM(2, 3))
    ours, _ = bridge.load_state_dict(nn.Sequential(nn.LSTM(2, 3)), to_jax(theirs.state_dict()))
    log = []

    def hook(module, args, output):
        log.append(type(module).__name__)
        return output[0] * 2

    theirs[0].register_forward_hook(hook)
    ours, _ = bridge.register_forward_hook(ours, hook, at="0")
    weight = np.ones((12, 2), np.float32)
    given = {"0.weight_ih_l0": weight}
    expected = torch.func.functional_call(theirs, array(given, torch.tensor), torch.tensor(X))
    np.testing.assert_allclose(
        bridge.functional_call(ours, given, X), expected.detach(), rtol=1e-5, atol=1e-6
    )
    assert log == ["LSTM", "LSTM"]


def test_a_lazy_model_is_called_by_torch_only_143():
    assert torch.func.functional_call(torch.nn.LazyLinear(3), {}, torch.tensor(X)).shape == (3, 3)
    with pytest.raises(ps.UninitializedError, match="need an example input"):
        bridge.functional_call(nn.LazyLinear(3), {}, X)


def test_statistics_are_turned_off_for_an_ensemble_157():
    """Torch empties the buffers in place; here each BatchNorm becomes one without statistics."""
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    ours, _ = bridge.load_state_dict(
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), to_jax(theirs.state_dict())
    )
    torch.func.replace_all_batch_norm_modules_(theirs)

    def untracked(module):
        new = nn.BatchNorm1d(module.num_features, module.eps, track_running_stats=False)
        return ps.replace(new, dict(module.named_parameters()))

    ours = ps.map_modules(ours, untracked, where=nn.BatchNorm1d)
    assert list(bridge.state_dict(ours)) == list(theirs.state_dict())
    np.testing.assert_allclose(ours(X), theirs(torch.tensor(X)).detach(), rtol=1e-4, atol=1e-5)
    output = jax.vmap(ours)(jnp.stack([X, X]))
    np.testing.assert_allclose(output[1], ours(X), rtol=1e-5)


def test_ties_and_other_names_in_an_ensemble_156():
    found = []
    for library, stack in (
        (torch.nn, torch.func.stack_module_state),
        (nn, lambda models: bridge.stack_module_state([ps.init(m, 0) for m in models])),
    ):
        model = tied(library)
        params, buffers = stack([model, copy.deepcopy(model)])
        found.append(({n: tuple(p.shape) for n, p in params.items()}, list(buffers)))
        with pytest.raises(KeyError, match="bias"):
            stack([library.Linear(1, 1), library.Linear(1, 1, bias=False)])
    assert found[0] == found[1]
    assert "b.weight" not in found[0][0]


def test_an_ensemble_156():
    torch.manual_seed(0)
    theirs = [torch.nn.Linear(2, 2) for _ in range(3)]
    mine = [bridge.load_state_dict(nn.Linear(2, 2), to_jax(m.state_dict()))[0] for m in theirs]
    params, buffers = bridge.stack_module_state(mine)
    expected, _ = torch.func.stack_module_state(theirs)
    assert list(params) == list(expected)
    outputs = jax.vmap(lambda p, b: bridge.functional_call(mine[0], (p, b), X), in_axes=(0, 0))(
        params, buffers
    )
    for output, model in zip(outputs, theirs, strict=True):
        np.testing.assert_allclose(output, model(torch.tensor(X)).detach(), rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [],
        lambda n: [n.Linear(1, 1), n.ReLU()],
        lambda n: [n.Linear(1, 1), _evaluated(n.Linear(1, 1))],
        lambda n: [n.Linear(1, 1), _frozen(n.Linear(1, 1))],
    ],
    ids=["none", "classes", "modes", "requires_grad"],
)
def test_what_cannot_be_stacked(make):
    found = []
    for library, stack in (
        (torch.nn, torch.func.stack_module_state),
        (nn, lambda models: bridge.stack_module_state([ps.init(m, 0) for m in models])),
    ):
        with pytest.raises(RuntimeError) as caught:
            stack(make(library))
        found.append(str(caught.value))
    assert found[0] == found[1]


def _evaluated(model):
    return model.eval() if isinstance(model, torch.nn.Module) else bridge.eval(model)


def _frozen(model):
    if isinstance(model, torch.nn.Module):
        return model.requires_grad_(False)
    return bridge.requires_grad(model, False)


def test_a_name_that_is_no_array_is_refused():
    model = bridge.parametrize.weight_norm(ps.init(nn.Linear(2, 2), 0))
    with pytest.raises(TypeError, match="attribute 'weight' is not a registered array"):
        bridge.functional_call(model, {"weight": W}, X)
    with pytest.raises(TypeError, match="attribute 'in_features'"):
        bridge.functional_call(ps.init(nn.Linear(2, 2), 0), {"in_features": W}, X)
