"""The throughput benchmark says by its exit status whether the goals are met."""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purestate as ps
from purestate import nn
from tests.benchmarks import models, raw, throughput
from tests.benchmarks.stacked import stacked


@pytest.fixture
def one_task(monkeypatch):
    """A multilayer perceptron on four rows instead of the tasks, with a goal for its training step."""
    inputs = np.random.default_rng(0).normal(size=(4, 784)).astype(np.float32)

    def put(goal):
        task = throughput.Task(models.mlp, inputs, np.arange(4, dtype=np.int32), goal)
        monkeypatch.setattr(throughput, "tasks", lambda: {"mlp": task})

    return put


def test_a_missed_goal_is_an_exit_status(one_task, capsys):
    one_task(1e-9)
    with pytest.raises(SystemExit) as error:
        throughput.main(["--rounds", "2", "--others"])
    assert error.value.code == 1
    assert "mlp train: " in capsys.readouterr().out


def test_a_met_goal_is_none(one_task, capsys):
    one_task(1e9)
    throughput.main(["--rounds", "2"])
    assert "missed" not in capsys.readouterr().out


def test_sides_that_compute_something_else_are_not_timed(one_task, monkeypatch):
    def other(values):
        return raw._stateless(values, lambda params, x: x @ params["0.weight"][:10].T)

    one_task(None)
    monkeypatch.setattr(raw, "mlp", other)
    with pytest.raises(AssertionError, match="raw jax"):
        throughput.main(["--rounds", "2", "--others", "raw jax"])


def test_without_flax_nnx_is_left_out_and_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "flax", None)
    assert throughput.rivals(["raw jax", "nnx"]) == {"raw jax": raw}
    assert "pip install -e '.[bench]'" in capsys.readouterr().out


def test_nnx_networks_are_of_our_size():
    pytest.importorskip("flax", reason="Flax is not installed: pip install -e '.[bench]'")
    in_nnx = importlib.import_module("tests.benchmarks.in_nnx")

    def size(params):
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    def run(name, inputs):
        params, state, call, evaluate = getattr(in_nnx, name)({})
        # Within a gradient, where NNX refuses a write to a variable from outside.
        output, pull, _ = jax.vjp(lambda params: call(params, state, inputs), params, has_aux=True)
        return *pull(output), output, evaluate(params, state, inputs)

    second_biases = {"lstm": 2 * 4 * 256}
    for name, task in throughput.tasks().items():
        gradients, *outputs = jax.eval_shape(lambda x, name=name: run(name, x), task.inputs)
        _, ours, _ = ps.split(task.build(nn))
        assert size(gradients) == size(ours) - second_biases.get(name, 0), name
        assert [output.size // output.shape[-1] for output in outputs] == [task.labels.size] * 2, name


def test_adam_on_stacks_is_adam():
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 3), "b": (3,), "c": (2, 3), "d": (3, 2)}
    start = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}

    def trained(rule):
        params, state = start, rule.init(start)
        for _ in range(3):
            gradients = jax.tree.map(lambda array: jnp.sin(7 * array), params)
            updates, state = rule.update(gradients, state, params)
            params = optax.apply_updates(params, updates)
        return params

    plain, other = trained(optax.adamw(1e-2)), trained(stacked(optax.adamw(1e-2)))
    assert jax.tree.all(jax.tree.map(np.array_equal, plain, other))
