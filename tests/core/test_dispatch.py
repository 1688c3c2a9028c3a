"""The claims behind the cost: what a cached call does not do. Times are in tests.benchmarks."""

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp

import purestate as ps
from purestate._definition import Definition
from tests.benchmarks.dispatch import Stack, forms, frames, jit_calls, traces
from tests.core.models import Tied


def test_a_cached_call_enters_at_most_two_python_frames():
    calls = jit_calls(forms(25))
    for name in ("model", "split", "model, donated", "split, donated"):
        assert frames(calls[name]) <= 2, name


def test_a_cached_call_neither_compares_nor_hashes_the_definition(monkeypatch):
    model = Tied()
    step = jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m))
    step(model)
    counts = {"__eq__": 0, "__hash__": 0}

    def counted(name):
        original = getattr(Definition, name)

        def method(self, *args):
            counts[name] += 1
            return original(self, *args)

        return method

    for name in counts:
        monkeypatch.setattr(Definition, name, counted(name), raising=False)
    assert Definition.__eq__(model._definition, model._definition) is True
    assert counts["__eq__"] == 1, "the counter itself must count"
    counts["__eq__"] = 0
    for _ in range(10):
        model = step(model)
    step(Tied())  # Built anew: interning gives the very same definition.
    assert counts == {"__eq__": 0, "__hash__": 0}


def test_a_thousand_steps_trace_once():
    assert traces(1000) == 1


def test_train_and_eval_add_one_entry_each():
    import bridge

    step: Any = jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m))
    model = Stack(2)
    for _ in range(3):
        step(model)
        step(bridge.eval(model))
        step(bridge.train(bridge.eval(model)))
    assert step._cache_size() == 2


def test_import_brings_in_neither_equinox_nor_optax():
    program = (
        "import sys, jax; before = set(sys.modules); import purestate, bridge; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new & {'equinox', 'optax', 'torch', 'rich', 'jaxtyping'}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_flattening_is_constant_python_work():
    model = Stack(25)
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    flatten = jax.tree_util.default_registry.flatten
    flatten(model)
    sys.setprofile(profile)
    try:
        flatten(model)
    finally:
        sys.setprofile(None)
    assert count == 0


def test_key_paths_are_the_dotted_names():
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(Tied())[0]]
    shown = [jax.tree_util.keystr(path, simple=True) for path in paths]
    assert shown[:3] == ["encoder.weight", "encoder.bias", "encoder.calls"]
    _, params, _ = ps.split(Tied())
    shown = [
        jax.tree_util.keystr(path, simple=True)
        for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]
    ]
    assert shown == ["encoder.weight", "encoder.bias", "decoder.bias"]


def test_unflattening_never_looks_at_its_leaves():
    leaves, treedef = jax.tree.flatten(Tied())
    for stand_in in (None, object(), True, jnp.ones(1)):
        model = jax.tree.unflatten(treedef, [stand_in] * len(leaves))
        assert model._leaves == (stand_in,) * len(leaves)
