"""Random module trees, built by one program on torch and here, compared in everything visible.

A tree is data: a list of steps that an interpreter carries out inside the constructors of both
sides. The steps include what breaks naive trees: shared modules, tied parameters, a Parameter
registered as a buffer, None slots, re-assignment, deletion.
"""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from hypothesis import given, settings, strategies as st

import bridge
import purestate as ps
from purestate import nn
from tests.parity import raised, to_numpy


NAMES = st.sampled_from(["a", "b", "weight", "x1", "_hidden", "n0"])
SIZES = st.integers(1, 3)


def steps(depth: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Programs of a constructor; children are programs of their own."""
    leaf = st.one_of(
        st.tuples(st.just("parameter"), NAMES, SIZES, st.booleans()),
        st.tuples(st.just("buffer"), NAMES, SIZES, st.booleans()),
        st.tuples(st.just("none"), NAMES, st.sampled_from(["parameter", "buffer", "module"])),
        st.tuples(st.just("attribute"), NAMES, st.sampled_from([1, 2.5, "text", None])),
        st.tuples(st.just("tie"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("share"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("adopt"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("mode"), st.booleans()),
    )
    if depth == 0:
        return st.lists(leaf, max_size=8)
    child = st.tuples(st.just("child"), NAMES, steps(depth - 1))
    return st.lists(st.one_of(leaf, child), min_size=3, max_size=12)


class Side:
    """What the interpreter needs of a library."""

    def __init__(self, module: type, parameter: Any, array: Any):
        self.module, self.parameter, self.array = module, parameter, array


TORCH = Side(torch.nn.Module, torch.nn.Parameter, lambda n: torch.arange(n, dtype=torch.float32))
OURS = Side(nn.Module, nn.Parameter, lambda n: jnp.arange(n, dtype=jnp.float32))


def build(side: Side, program: list[tuple[Any, ...]]) -> tuple[Any, list[str]]:
    """The model and the log of what each step said."""
    log: list[str] = []
    parameters: list[Any] = []
    modules: list[Any] = []

    class Net(side.module):
        def __init__(self, program, extra):
            super().__init__()
            self._extra = extra
            for step in program:
                error = raised(lambda step=step: run(self, *step))
                log.append("" if error is None else f"{type(error).__name__}: {normalised(error)}")
            modules.append(self)

        def extra_repr(self):
            return self._extra

    def run(self, kind, *args):
        if kind == "parameter":
            name, size, trains = args
            parameter = side.parameter(side.array(size), requires_grad=trains)
            parameters.append(parameter)
            setattr(self, name, parameter)
        elif kind == "buffer":
            name, size, persistent = args
            self.register_buffer(name, side.array(size), persistent=persistent)
        elif kind == "none":
            name, what = args
            getattr(self, f"register_{what}")(name, None)
        elif kind == "attribute":
            setattr(self, *args)
        elif kind == "tie" and parameters:
            setattr(self, args[0], parameters[args[1] % len(parameters)])
        elif kind == "share" and modules:
            setattr(self, args[0], modules[args[1] % len(modules)])
        elif kind == "adopt" and parameters:
            self.register_buffer(args[0], parameters[args[1] % len(parameters)])
        elif kind == "delete":
            delattr(self, args[0])
        elif kind == "mode":
            self.train(args[0])
        elif kind == "child":
            setattr(self, args[0], Net(args[1], f"depth={len(args[1])}"))

    return Net(program, ""), log


def normalised(error: Exception) -> str:
    """The text, with the names of the array types of both sides made one."""
    text = str(error)
    for name in ("torch.FloatTensor", "jax.Array"):
        text = text.replace(f"'{name}'", "'array'")
    for name in ("torch.nn.parameter.Parameter", "purestate._parameter.Parameter"):
        text = text.replace(name, "Parameter")
    return text.replace("tests.differential.test_random_trees.build.<locals>.", "")


def observed(model: Any) -> dict[Any, Any]:
    """Everything both sides can say about a model."""
    seen: dict[Any, Any] = {}
    for unique in (True, False):
        seen["parameters", unique] = [n for n, _ in model.named_parameters(remove_duplicate=unique)]
        seen["buffers", unique] = [n for n, _ in model.named_buffers(remove_duplicate=unique)]
        seen["modules", unique] = [n for n, _ in model.named_modules(remove_duplicate=unique)]
    seen["prefixed"] = [n for n, _ in model.named_parameters(prefix="p.", recurse=False)]
    seen["prefixed modules"] = [n for n, _ in model.named_modules(prefix="root")]
    seen["children"] = [n for n, _ in model.named_children()]
    seen["modes"] = [m.training for m in model.modules()]
    seen["values"] = [np.asarray(numpy(v)).tolist() for v in (*model.parameters(), *model.buffers())]
    seen["repr"] = repr(model)
    return seen


def numpy(value: Any) -> np.ndarray:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def trainable(model: Any) -> list[str]:
    if isinstance(model, torch.nn.Module):
        return [name for name, p in model.named_parameters() if p.requires_grad]
    definition = model._definition
    names = [name for name, _ in model.named_parameters()]
    assert set(ps.split(model)[1]) <= set(names)
    return [name for name in names if definition.leaves[definition.leaf_at[name]].trainable]


@settings(derandomize=True, max_examples=250, deadline=None)
@given(steps(2))
def test_the_same_constructor_gives_the_same_model(program):
    theirs, their_log = build(TORCH, program)
    ours, our_log = build(OURS, program)
    assert our_log == their_log
    assert observed(ours) == observed(theirs)
    expected, actual = theirs.state_dict(), bridge.state_dict(ours)
    assert list(actual) == list(expected)
    assert actual.metadata == dict(expected._metadata)
    assert all(np.array_equal(actual[k], to_numpy(v)) for k, v in expected.items())
    assert sorted(trainable(ours)) == sorted(trainable(theirs))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(steps(2))
def test_copies_are_the_same_model(program):
    ours, _ = build(OURS, program)
    before = observed(ours)
    for twin in (copy.copy(ours), copy.deepcopy(ours), jax.tree.map(lambda a: a, ours)):
        assert twin is not ours
        assert twin._definition is ours._definition
        assert observed(twin) == before
    leaves = pickle.loads(pickle.dumps([np.asarray(leaf) for leaf in ours._leaves]))
    assert all(np.array_equal(a, b) for a, b in zip(leaves, ours._leaves, strict=True))


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("drop"), st.integers(0, 20)),
        st.tuples(st.just("add"), st.sampled_from(["new", "a.new", "weight.x", "b", "a.b.c.d"])),
        st.tuples(st.just("reshape"), st.integers(0, 20)),
        st.tuples(st.just("object"), st.integers(0, 20)),
    ),
    max_size=4,
)


@settings(derandomize=True, max_examples=250, deadline=None)
@given(steps(2), CHANGES, st.booleans())
def test_a_damaged_state_dict_gives_the_same_report(program, changes, strict):
    theirs, _ = build(TORCH, program)
    ours, _ = build(OURS, program)
    damaged = {name: to_numpy(value) + 1 for name, value in theirs.state_dict().items()}
    for kind, which in changes:
        name = (
            which
            if kind == "add"
            else next(iter(list(damaged)[which % len(damaged) :]), None)
            if damaged
            else None
        )
        if name is None:
            continue
        if kind == "drop":
            del damaged[name]
        else:
            damaged[name] = {
                "add": np.ones(2, np.float32),
                "reshape": np.ones((4, 4), np.float32),
                "object": 3,
            }[kind]
    given_torch = {
        name: torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value
        for name, value in damaged.items()
    }
    before = ours._parts
    expected = raised(lambda: theirs.load_state_dict(given_torch, strict=strict))
    actual = raised(lambda: bridge.load_state_dict(ours, damaged, strict=strict))
    assert ours._parts is before
    if expected is not None:
        assert (type(actual), str(actual)) == (type(expected), str(expected))
        return
    loaded, report = bridge.load_state_dict(ours, damaged, strict=strict)
    theirs_report = theirs.load_state_dict(given_torch, strict=strict)
    assert tuple(report) == tuple(theirs_report)
    assert observed(loaded) == observed(theirs)
