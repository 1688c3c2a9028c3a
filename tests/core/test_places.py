"""Names with dots where a function takes a name and ``at``: the error says the line."""

import jax.numpy as jnp
import pytest

import bridge
import purestate as ps
from bridge import parametrize, prune
from purestate import nn


class Same(nn.Module):
    def forward(self, x):
        return x


CALLS = {
    "delete": lambda model, name: bridge.delete(model, name),
    "register_parameter": lambda model, name: bridge.register_parameter(model, name, jnp.ones(2)),
    "register_buffer": lambda model, name: bridge.register_buffer(model, name, jnp.ones(2)),
    "register_module": lambda model, name: bridge.register_module(model, name, nn.ReLU()),
    "register_parametrization": lambda model, name: parametrize.register_parametrization(
        model, name, Same()
    ),
    "set_parametrized": lambda model, name: parametrize.set_parametrized(model, name, jnp.ones(2)),
    "remove_parametrizations": parametrize.remove_parametrizations,
    "weight_norm": parametrize.weight_norm,
    "spectral_norm": parametrize.spectral_norm,
    "orthogonal": parametrize.orthogonal,
    "l1_unstructured": lambda model, name: prune.l1_unstructured(model, name, 1),
    "identity": prune.identity,
    "remove": prune.remove,
}
REMEDY = r'write: "weight", at="body\.0" '


@pytest.mark.parametrize("call", CALLS)
def test_a_name_with_dots(call):
    model = ps.init(nn.Sequential(), 0)
    model = bridge.register_module(model, "body", ps.init(nn.Sequential(nn.Linear(2, 2)), 0))
    errors = AttributeError, KeyError, ValueError
    with pytest.raises(errors, match=REMEDY):
        CALLS[call](model, "body.0.weight")
    with pytest.raises(errors) as caught:
        CALLS[call](model, "other.weight")
    assert "at=" not in str(caught.value)


def test_a_name_with_dots_in_a_constructor_and_of_a_definition():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2))
            parametrize.weight_norm(self, "body.0.weight")

    with pytest.raises(ValueError, match=REMEDY):
        Net()
    model = nn.Sequential()
    model = bridge.register_module(model, "body", nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(AttributeError, match=REMEDY):
        bridge.delete(model._definition, "body.0.weight")
