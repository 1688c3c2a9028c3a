"""A container costs what its children cost: nothing is done for each pair of them."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import bridge
import purestate as ps
from purestate import nn


class Indexed(nn.Module):
    """Reads its layers by number, as much of torch's code does."""

    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.BatchNorm1d(1) for _ in range(width)])

    def forward(self, x: Any) -> Any:
        for index in range(len(self.layers)):
            x = self.layers[index](x)
        return x


def wide(width: int) -> Any:
    return ps.init(Indexed(width), jax.random.key(0))


def called(model: Any) -> Any:
    return ps.call(model, jnp.ones((2, 1)))


ACTIONS: dict[str, Callable[[Any], Any]] = {
    "index a value": lambda model: [model.layers[i] for i in range(len(model.layers))],
    "call": called,
    "trace": lambda model: jax.jit(ps.call).trace(model, jnp.ones((2, 1))),
    "capture": lambda model: ps.capture(model, jnp.ones((2, 1))),
    "build": lambda model: Indexed(len(model.layers)),
    "init": lambda model: ps.init(Indexed(len(model.layers)), jax.random.key(0)),
    "eval": bridge.eval,
    "state_dict": bridge.state_dict,
    "load_state_dict": lambda model: bridge.load_state_dict(model, bridge.state_dict(model)),
    "named_modules": lambda model: list(model.named_modules()),
    "named_parameters": lambda model: list(model.named_parameters()),
    "map_modules": lambda model: ps.map_modules(model, lambda module: module),
    "split": lambda model: ps.split(model),
    "repr": repr,
}


def calls(action: Callable[[Any], Any], model: Any) -> int:
    """How many functions an action calls."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action(model)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ACTIONS)
def test_four_times_the_children_are_at_most_six_times_the_work(name: str) -> None:
    action = ACTIONS[name]
    action(wide(3))  # What is imported and compiled once is not counted.
    few, many = (calls(action, wide(width)) for width in (20, 80))
    assert many < 6 * few
