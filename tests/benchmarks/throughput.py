"""Training and inference of six networks against eager torch, in one interleaved run.

The figure of a row is the median of paired ratios: ours divided by torch's time in the same round
(``tests.benchmarks.timing``), in wall time, both on the same number of threads. A training step is
forward, cross-entropy, backward and Adam. Raw JAX (``raw.py``), Equinox (``in_equinox.py``) and, where
Flax is installed (the extra ``bench``), Flax NNX (``in_nnx.py``) run in the same rounds.
Tracing, and all until the first step is done, which is mostly compiling, have columns of their own. The
deep transformer is there for these two: raw JAX, unrolled, compiles it for minutes. Its Adam works on
stacks of equal arrays (``stacked.py``), in every library, or most of what is traced would be Optax.

Raw JAX starts from our values, and must give our output and our loss before it is timed. The exit
status is 1 when a row misses its goal.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from rich.console import Console
from rich.table import Table

import bridge
import purestate as ps
from purestate import nn
from tests.benchmarks import in_equinox, models, raw
from tests.benchmarks.stacked import stacked
from tests.benchmarks.timing import interleaved


class Task(NamedTuple):
    """A network and what it is run on.

    Attributes:
        build: From ``nn`` to the network.
        inputs: A batch, numpy.
        labels: One class for each row of the output; of a text, one for each token.
        train: The goal for a training step, as a ratio to torch.
        infer: The goal for inference.
        optimizer: What trains it.
    """

    build: Callable[[Any], Any]
    inputs: np.ndarray
    labels: np.ndarray
    train: float | None = None
    infer: float | None = None
    optimizer: optax.GradientTransformation = optax.adam(1e-3)


def tasks() -> dict[str, Task]:
    """What is measured."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def classes(count: int, *shape: int) -> np.ndarray:
        return rng.integers(0, count, shape).astype(np.int32)

    images, of_images = floats(16, 3, 64, 64), classes(10, 16)
    return {
        "mlp": Task(models.mlp, floats(256, 784), classes(10, 256), 0.65),
        "resnet18": Task(models.resnet18, images, of_images, 1.05, 0.9),
        "mobilenet_v2": Task(models.mobilenet_v2, images, of_images, 1.3, 1.0),
        "gpt": Task(models.gpt, classes(1024, 4, 256), classes(1024, 4 * 256), 1.25, 1.05),
        "lstm": Task(models.lstm, floats(128, 32, 256), classes(10, 32), 1.25, 1.3),
        "deep_transformer": Task(
            models.deep_transformer,
            floats(4, 32, 64),
            classes(10, 4),
            optimizer=stacked(optax.adam(1e-3)),
        ),
    }


class Run(NamedTuple):
    """One side of a task.

    Attributes:
        train: A training step.
        infer: A call in evaluation.
        trace: Seconds to trace the training step.
        first: Seconds until its first results: tracing, compiling, running.
    """

    train: Callable[[], Any]
    infer: Callable[[], Any]
    trace: float = 0.0
    first: float = 0.0


def theirs(task: Task) -> tuple[Any, Run]:
    """Eager torch; the network too, for its values."""
    torch.manual_seed(0)
    model = task.build(torch.nn)
    evaluated = task.build(torch.nn).eval()
    evaluated.load_state_dict(model.state_dict())
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    inputs = torch.from_numpy(task.inputs)
    inputs = inputs if inputs.is_floating_point() else inputs.long()
    labels = torch.from_numpy(task.labels).long()

    def train() -> float:
        optimizer.zero_grad()
        output = model(inputs)
        loss = torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    def infer() -> Any:
        with torch.inference_mode():
            return evaluated(inputs)

    return start, Run(train, infer)


def as_vectors(tree: Any) -> Any:
    """The weights of convolutions as vectors, for the elementwise work of an optimizer.

    XLA's CPU loops follow an array's axes, and those of such a weight end in 3 x 3: the same update
    of as many numbers takes 3.4 times as long there as on a vector.
    """
    return jax.tree.map(lambda leaf: leaf.ravel() if leaf.ndim > 2 else leaf, tree)


def compiled(
    task: Task,
    params: Any,
    state: Any,
    call: Callable[[Any, Any, Any], tuple[Any, Any]],
    evaluate: Callable[[Any, Any, Any], Any],
) -> Run:
    """A jitted training step and inference of a network in functional form.

    Args:
        task: What to run.
        params: What trains.
        state: What else a call takes and returns.
        call: ``(params, state, inputs)`` to output and state, in training.
        evaluate: ``(params, state, inputs)`` to the output, in evaluation.
    """
    optimizer = task.optimizer
    inputs, labels = jnp.asarray(task.inputs), jnp.asarray(task.labels)

    def step(params: Any, state: Any, moments: Any) -> Any:
        def loss(params: Any) -> Any:
            output, after = call(params, state, inputs)
            logits = output.reshape(-1, output.shape[-1])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.mean(), after

        (value, after), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        vectors = as_vectors(params)
        updates, moments = optimizer.update(as_vectors(gradients), moments, vectors)
        updated = optax.apply_updates(vectors, updates)
        params = jax.tree.map(lambda new, old: new.reshape(old.shape), updated, params)
        return params, after, moments, value

    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    inference = jax.jit(evaluate)
    held = jax.tree.map(jnp.array, (params, state, optimizer.init(as_vectors(params))))
    kept = jax.tree.map(jnp.array, (params, state))

    def train() -> float:
        nonlocal held
        *held, value = jitted(*held)
        return float(value)

    def infer() -> Any:
        return jax.block_until_ready(inference(*kept, inputs))

    start = time.perf_counter()
    jitted.trace(*held)
    trace = time.perf_counter() - start
    train()
    return Run(train, infer, trace, time.perf_counter() - start)


def ours(task: Task, start: Any) -> Run:
    """The network of this project."""
    values = {name: tensor.numpy().copy() for name, tensor in start.items()}
    model, _ = bridge.load_state_dict(task.build(nn), values)
    definition, params, buffers = ps.split(model)
    evaluated = bridge.eval(definition)
    return compiled(
        task,
        params,
        buffers,
        lambda params, buffers, inputs: ps.apply(definition, params, buffers, inputs),
        lambda params, buffers, inputs: ps.apply(evaluated, params, buffers, inputs)[0],
    )


def rivals(names: Iterable[str]) -> dict[str, ModuleType]:
    """What runs beside torch and us, and where its networks are; NNX only where Flax is installed."""
    modules = {"raw jax": raw, "equinox": in_equinox}
    if "nnx" in names and importlib.util.find_spec("flax") is None:
        print("nnx is left out, for Flax is not installed: pip install -e '.[bench]'")
    elif "nnx" in names:
        modules["nnx"] = importlib.import_module("tests.benchmarks.in_nnx")
    return {name: module for name, module in modules.items() if name in names}


def check_equal(ours: Run, other: Run) -> None:
    """Another side that started from our values gives our output, and after a step our loss.

    Raises:
        AssertionError: It does not.
    """
    np.testing.assert_allclose(other.infer(), ours.infer(), 1e-3, 1e-4, err_msg="raw jax, output")
    # Adam divides by the gradient's size: a step turns rounding into numbers.
    np.testing.assert_allclose(other.train(), ours.train(), 1e-2, err_msg="raw jax, loss")


def measure(
    name: str, task: Task, rounds: int, others: Mapping[str, ModuleType]
) -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows of one network, and which of them miss their goal."""
    start, torchs = theirs(task)
    sides = {"torch": torchs, "purestate": ours(task, start)}
    values = {key: tensor.numpy().copy() for key, tensor in start.items()}
    for rival, module in others.items():
        if hasattr(module, name):
            sides[rival] = compiled(task, *getattr(module, name)(values))
    if "raw jax" in sides:
        check_equal(sides["purestate"], sides["raw jax"])
    wall = time.perf_counter
    rows, missed = [], []
    for mode, goal in (("train", task.train), ("infer", task.infer)):
        calls = {side: getattr(run, mode) for side, run in sides.items()}
        figures = interleaved(calls, "torch", rounds=rounds, seconds=0.0, clock=wall)
        if goal is not None and figures["purestate"].ratio > goal:
            missed.append(f"{name} {mode}: {figures['purestate'].ratio:.2f}, not {goal}")
        for side, figure in figures.items():
            rows.append(
                (
                    f"{name} {mode}",
                    side,
                    f"{figure.seconds * 1e3:.1f}",
                    f"{figure.ratio:.2f}",
                    f"{figure.low:.2f}-{figure.high:.2f}",
                    f"{goal}" if side == "purestate" and goal else "",
                    *(f"{s:.2f}" if s and mode == "train" else "" for s in sides[side][2:]),
                )
            )
    return rows, missed


def main(arguments: list[str]) -> None:
    """Print the table, and exit with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks throughput", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(tasks())}; all of them by default")
    parser.add_argument("--rounds", type=int, default=15)
    names = ["raw jax", "equinox", "nnx"]
    parser.add_argument("--others", nargs="*", default=names, help="beside torch")
    options = parser.parse_args(arguments)
    others = rivals(options.others)
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    title = f"throughput, {threads} threads, median of paired ratios to eager torch"
    columns = ("network", "side", "ms", "ratio", "quartiles", "goal", "trace, s", "first step, s")
    table, missed = Table(*columns, title=title), []
    for name, task in tasks().items():
        if not options.names or name in options.names:
            rows, of_network = measure(name, task, options.rounds, others)
            missed += of_network
            for row in rows:
                table.add_row(*row)
            table.add_section()
    Console(width=100).print(table)
    if missed:
        print("\n".join(["missed:", *missed]))
        sys.exit(1)
