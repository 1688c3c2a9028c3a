"""A call without ``jit``: what 20 small layers cost where nothing but dispatch costs anything.

The first thing a user tries is one call of a model, and it is where JAX libraries are slowest: every
operation is dispatched by itself. Here each functional is one jitted call (docs/design/0010). A linear
layer of 8 features and a ReLU, 20 times, batch 4; one thread, CPU time, gradients recorded by torch.
Once as the functionals alone, once as 20 layers in a ``ModuleList`` with ``F.relu``, once as a
``Sequential`` of 40 modules; each beside the same code in torch. The exit status is 1 when one of them
misses the goal.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import bridge
import purestate as ps
from purestate import nn
from tests.benchmarks.timing import interleaved


LAYERS, FEATURES, BATCH = 20, 8, 4
GOAL = 1.2


def listed(library: Any) -> Any:
    """The layers in a list, with the functional for what has no arrays."""

    class Listed(library.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [library.Linear(FEATURES, FEATURES) for _ in range(LAYERS)]
            self.layers = library.ModuleList(layers)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = library.functional.relu(layer(x))
            return x

    return Listed()


def sequential(library: Any) -> Any:
    """The layers one after the other, all of them modules."""
    pairs = [(library.Linear(FEATURES, FEATURES), library.ReLU()) for _ in range(LAYERS)]
    return library.Sequential(*(module for pair in pairs for module in pair))


def functional(library: Any, weights: list[tuple[Any, Any]]) -> Callable[[Any], Any]:
    """The functionals alone."""
    relu, linear = library.functional.relu, library.functional.linear

    def call(x: Any) -> Any:
        for weight, bias in weights:
            x = relu(linear(x, weight, bias))
        return x

    return call


def calls() -> dict[str, Callable[[], Any]]:
    """Name to a call; each gives the same numbers but for Equinox's, which starts from its own.

    Raises:
        AssertionError: They do not.
    """
    input_ = np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype(np.float32)
    x, y = torch.from_numpy(input_), jnp.asarray(input_)
    theirs = listed(torch.nn)
    values = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    in_order = list(values.values())
    in_sequence = sequential(torch.nn)
    names = list(in_sequence.state_dict())
    in_sequence.load_state_dict(dict(zip(names, theirs.state_dict().values(), strict=True)))
    weights = [(layer.weight, layer.bias) for layer in theirs.layers]
    arrays = [(jnp.asarray(w.detach()), jnp.asarray(b.detach())) for w, b in weights]
    ours, _ = bridge.load_state_dict(listed(nn), values)
    sequence, _ = bridge.load_state_dict(sequential(nn), dict(zip(names, in_order, strict=True)))
    alone, theirs_alone = functional(nn, arrays), functional(torch.nn, weights)

    def raw() -> Any:
        z = y
        for weight, bias in arrays:
            z = jnp.maximum(z @ weight.T + bias, 0)
        return z

    keys = jax.random.split(jax.random.key(0), LAYERS)
    peers = [eqx.nn.Linear(FEATURES, FEATURES, key=key) for key in keys]

    def equinox() -> Any:
        z = y
        for layer in peers:
            z = jax.nn.relu(jax.vmap(layer)(z))
        return z

    result: dict[str, Callable[[], Any]] = {
        "torch, functionals": lambda: theirs_alone(x),
        "torch, ModuleList": lambda: theirs(x),
        "torch, Sequential": lambda: in_sequence(x),
        "purestate, functionals": lambda: alone(y),
        "purestate, ModuleList": lambda: ps.call(ours, y)[0],
        "purestate, Sequential": lambda: ps.call(sequence, y)[0],
        "raw jax": raw,
    }
    expected = theirs(x).detach().numpy()
    for name, call in result.items():
        np.testing.assert_allclose(_numbers(call()), expected, 1e-4, 1e-6, err_msg=name)
    return result | {"equinox": equinox}


def _numbers(output: Any) -> np.ndarray:
    return output.detach().numpy() if isinstance(output, torch.Tensor) else np.asarray(output)


def main(arguments: list[str]) -> None:
    """Print the table, and exit with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks eager", description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    every = calls()
    columns = ("call", "CPU us", "ratio", "quartiles", "to", "goal")
    table, missed = Table(*columns, title="eager calls of a 20-layer MLP"), []
    forms = {"functionals": [], "ModuleList": ["raw jax", "equinox"], "Sequential": []}
    for form, rivals in forms.items():
        reference = f"torch, {form}"
        chosen = [reference, f"purestate, {form}", *rivals]
        figures = interleaved({name: every[name] for name in chosen}, reference, rounds=options.rounds)
        for name, figure in figures.items():
            quartiles = f"{figure.low:.2f}-{figure.high:.2f}"
            row = f"{figure.seconds * 1e6:.0f}", f"{figure.ratio:.2f}", quartiles
            goal = GOAL if name.startswith("purestate") else None
            table.add_row(name, *row, reference, f"{goal}" if goal else "")
            if goal and figure.ratio > goal:
                missed.append(f"{name}: {figure.ratio:.2f}, not {goal}")
        table.add_section()
    Console(width=100).print(table)
    if missed:
        print("\n".join(["missed:", *missed]))
        sys.exit(1)
