"""The throughput benchmark says by its exit status whether the goals are met."""

import numpy as np
import pytest

from tests.benchmarks import models, raw, throughput


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
