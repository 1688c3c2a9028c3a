"""functional_call and stack_module_state next to torch's (rows 152-156)."""

from collections.abc import Callable
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
    "no dictionary": (3, {}),
    "no dictionaries": ([3], {}),
    "keyword arguments": ({}, {"kwargs": {"scale": 3.0}}),
}


def array(value: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: make(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(array(item, make) for item in value)
    return value


def outcome(call: Callable[[], Any]) -> Any:
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
