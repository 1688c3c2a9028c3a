"""Random module trees, built by one program on torch and here, compared in everything visible.

A tree is data: a list of steps that an interpreter carries out inside the constructors of both
sides. The steps include what breaks naive trees: shared modules, tied parameters, a Parameter
registered as a buffer, None slots, re-assignment, deletion, a deep copy of a part. A step that is
refused must be refused by both sides with the same words, and leave the same module behind.
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
from tests.differential.sides import OURS, SIDES, TORCH, Side, normalise, plain, registries
from tests.parity import raised, to_numpy


NAMES = ("a", "b", "weight", "x1", "_hidden", "0")

Program = list[tuple[Any, ...]]

names = st.sampled_from(NAMES)
sizes = st.integers(1, 3)
indices = st.integers(0, 9)
paths = st.sampled_from(["", "a", "b", "a.b", "0.a", "weight.x1", "b._hidden.a"])


def step(kind: str, *arguments: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(kind), *arguments)


def programs(depth: int) -> st.SearchStrategy[Program]:
    """Programs of a constructor; children are programs of their own."""
    leaf = st.one_of(
        step("parameter", names, sizes, st.booleans()),
        step("parameter", names, sizes, st.booleans()),
        step("register parameter", names, sizes, st.booleans()),
        step("buffer", names, sizes, st.booleans(), st.sampled_from(["float32", "int32"])),
        step("buffer object", names, sizes, st.booleans()),
        step("array", names, sizes),
        step("none", names, st.sampled_from(["parameter", "buffer", "module"])),
        step("attribute", names, st.sampled_from([1, 2.5, "text", None])),
        step("tie", names, indices),
        step("share", names, indices),
        step("adopt", names, indices),
        step("alias", names, indices, names),
        step("copy", names, indices),
        step("layer", names),
        step("set submodule", paths, st.booleans()),
        step("delete", names),
        step("mode", st.booleans()),
        step("trains", st.booleans()),
    )
    if depth == 0:
        return st.lists(leaf, min_size=2, max_size=8)
    child = step("child", names, programs(depth - 1))
    return st.lists(st.one_of(leaf, leaf, leaf, child, child), min_size=5, max_size=14)


def build(side: Side, program: Program) -> tuple[Any, list[Any]]:
    """The model, and what each step said and what it left in its module."""
    log: list[Any] = []
    parameters: list[Any] = []
    modules: list[Any] = []

    def values(size, dtype="float32"):
        return side.array(list(range(size)), dtype)

    class Net(side.nn.Module):
        def __init__(self, program, extra):
            super().__init__()
            self._extra = extra
            for kind, *args in program:
                error = raised(lambda kind=kind, args=args: run(self, kind, *args))
                log.append(said(error))
                log.append(registries(side, self, NAMES))
            modules.append(self)

        def extra_repr(self):
            return self._extra

    def run(self, kind, *args):
        if kind == "parameter":
            name, size, trains = args
            parameters.append(side.nn.Parameter(values(size), requires_grad=trains))
            setattr(self, name, parameters[-1])
        elif kind == "register parameter":
            name, size, trains = args
            parameters.append(side.nn.Parameter(values(size), requires_grad=trains))
            self.register_parameter(name, parameters[-1])
        elif kind == "buffer":
            name, size, persistent, dtype = args
            self.register_buffer(name, values(size, dtype), persistent=persistent)
        elif kind == "buffer object":
            name, size, persistent = args
            setattr(self, name, side.nn.Buffer(values(size), persistent=persistent))
        elif kind == "array":
            setattr(self, args[0], values(args[1]))
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
        elif kind == "alias" and modules:
            setattr(self, args[0], getattr(modules[args[1] % len(modules)], args[2]))
        elif kind == "copy" and modules:
            setattr(self, args[0], copy.deepcopy(modules[args[1] % len(modules)]))
        elif kind == "layer":
            self.add_module(args[0], side.nn.ReLU())
        elif kind == "set submodule":
            self.set_submodule(args[0], side.nn.Tanh(), args[1])
        elif kind == "delete":
            delattr(self, args[0])
        elif kind == "mode":
            self.train(args[0])
        elif kind == "trains":
            self.requires_grad_(args[0])
        elif kind == "child":
            setattr(self, args[0], Net(args[1], f"depth={len(args[1])}"))

    return Net(program, ""), log


def said(error: Exception | None) -> tuple[str, str] | None:
    return None if error is None else (type(error).__name__, normalise(str(error)))


OPTIONS = [
    {"prefix": prefix, "recurse": recurse, "remove_duplicate": unique}
    for prefix in ("", "p.")
    for recurse in (True, False)
    for unique in (True, False)
]


def observed(side: Side, model: Any) -> dict[Any, Any]:
    """Everything both sides can say about a model."""
    seen: dict[Any, Any] = {}

    def pairs(items):
        return [(name, plain(side, value)) for name, value in items]

    for options in OPTIONS:
        key = tuple(options.values())
        seen["parameters", key] = pairs(model.named_parameters(**options))
        seen["buffers", key] = pairs(model.named_buffers(**options))
    for prefix in ("", "root"):
        for unique in (True, False):
            walk = model.named_modules(prefix=prefix, remove_duplicate=unique)
            seen["modules", prefix, unique] = pairs(walk)
    seen["children"] = pairs(model.named_children()), len(list(model.children()))
    seen["modes"] = [module.training for module in model.modules()]
    seen["own"] = [registries(side, module, NAMES) for module in model.modules()]
    seen["unnamed"] = [[plain(side, v) for v in (*model.parameters(), *model.buffers())]]
    seen["repr"] = repr(model)
    sd = side.state_dict(model)
    seen["state_dict"] = [(name, str(side.numpy(v).dtype), plain(side, v)) for name, v in sd.items()]
    seen["versions"] = list(side.metadata(sd).items())
    seen["trains"] = trainable(side, model)
    return seen


def trainable(side: Side, model: Any) -> list[str]:
    if side is TORCH:
        return [name for name, p in model.named_parameters() if p.requires_grad]
    definition = model._definition
    own = [name for name, _ in model.named_parameters()]
    assert set(ps.split(model)[1]) <= set(own)
    return [name for name in own if definition.leaves[definition.leaf_at[name]].trainable]


@settings(derandomize=True, max_examples=250, deadline=None)
@given(programs(2))
def test_the_same_constructor_gives_the_same_model(program):
    theirs, their_log = build(TORCH, program)
    ours, our_log = build(OURS, program)
    assert our_log == their_log
    assert observed(OURS, ours) == observed(TORCH, theirs)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(programs(2))
def test_copies_are_the_same_model(program):
    ours, _ = build(OURS, program)
    theirs, _ = build(TORCH, program)
    expected = observed(TORCH, copy.deepcopy(theirs))
    assert observed(TORCH, theirs) == expected
    for twin in (copy.copy(ours), copy.deepcopy(ours), jax.tree.map(lambda a: a, ours)):
        assert twin is not ours
        assert twin._definition is ours._definition
        assert observed(OURS, twin) == expected
    leaves = pickle.loads(pickle.dumps([np.asarray(leaf) for leaf in ours._leaves]))
    assert all(np.array_equal(a, b) for a, b in zip(leaves, ours._leaves, strict=True))
    assert build(OURS, program)[0]._definition.leaves == ours._definition.leaves


CASTS = ["half", "bfloat16", "float", "double"]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(programs(1), st.lists(st.sampled_from(CASTS), min_size=1, max_size=3))
def test_casts_touch_the_same_arrays(program, casts):
    theirs, _ = build(TORCH, program)
    ours, _ = build(OURS, program)
    with jax.enable_x64(True):
        for cast in casts:
            theirs = getattr(theirs, cast)()
            ours = getattr(bridge, cast)(ours)
        found = []
        for side, model in ((TORCH, theirs), (OURS, ours)):
            members = (
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False),
            )
            attributes = [
                (path, name, getattr(module, name))
                for path, module in model.named_modules()
                for name in NAMES
                if isinstance(getattr(module, name, None), torch.Tensor | jax.Array)
            ]
            found.append(
                (
                    [(n, str(v.dtype).removeprefix("torch."), plain(side, v)) for n, v in members],
                    [(p, n, str(v.dtype).removeprefix("torch.")) for p, n, v in attributes],
                    trainable(side, model),
                    [module.training for module in model.modules()],
                )
            )
        assert found[1] == found[0]


# What a file may have wrong.

DAMAGE = st.lists(
    st.one_of(
        step("drop", st.integers(0, 20)),
        step("add", st.sampled_from(["new", "a.new", "weight.x", "b", "a.b.c.d", "0", "", "x1."])),
        step("reshape", st.integers(0, 20)),
        step("scalar", st.integers(0, 20)),
        step("object", st.integers(0, 20)),
        step("move last", st.integers(0, 20)),
    ),
    max_size=4,
)

VALUES = {
    "add": np.ones(2, np.float32),
    "reshape": np.ones((4, 4), np.float32),
    "scalar": np.array(3.0, np.float32),
    "object": 3,
}


def damaged(sd: dict[str, Any], changes: Program) -> dict[str, Any]:
    sd = dict(sd)
    for kind, which in changes:
        existing = list(sd)
        if kind == "add":
            sd[which] = VALUES["add"]
        elif existing:
            name = existing[which % len(existing)]
            value = sd.pop(name)
            if kind == "move last":
                sd[name] = value
            elif kind != "drop":
                sd = {key: VALUES[kind] if key == name else sd.get(key) for key in existing}
    return sd


def carried(side: Side, sd: dict[str, Any]) -> dict[str, Any]:
    """The same values as one side's arrays; what is no array stays."""
    return {
        name: side.array(value.tolist(), str(value.dtype)) if isinstance(value, np.ndarray) else value
        for name, value in sd.items()
    }


@settings(derandomize=True, max_examples=250, deadline=None)
@given(programs(2), DAMAGE, st.booleans())
def test_a_damaged_state_dict_gives_the_same_report(program, changes, strict):
    theirs, _ = build(TORCH, program)
    ours, _ = build(OURS, program)
    file = damaged({name: to_numpy(v) + 1 for name, v in theirs.state_dict().items()}, changes)
    before = observed(OURS, ours)
    outcomes = []
    for side, model in ((TORCH, theirs), (OURS, ours)):
        try:
            model, report = side.load(model, carried(side, file), strict=strict)
        except RuntimeError as error:
            outcomes.append(str(error))
        else:
            outcomes.append((tuple(report), observed(side, model)))
    assert outcomes[1] == outcomes[0]
    assert observed(OURS, ours) == before


@settings(derandomize=True, max_examples=100, deadline=None)
@given(programs(2), DAMAGE, st.booleans())
def test_assign_gives_the_report_of_copying(program, changes, strict):
    theirs, _ = build(TORCH, program)
    ours, _ = build(OURS, program)
    file = damaged({name: to_numpy(v) + 1 for name, v in theirs.state_dict().items()}, changes)
    outcomes = []
    for side, model in ((TORCH, theirs), (OURS, ours)):
        try:
            _, report = side.load(model, carried(side, file), strict=strict, assign=True)
        except RuntimeError as error:
            outcomes.append(str(error))
        else:
            outcomes.append(tuple(report))
    assert outcomes[1] == outcomes[0]


# Edits of a finished model: torch's methods in place, the functions of bridge by value.

EDITS = st.lists(
    st.one_of(
        step("register parameter", indices, names, sizes, st.booleans()),
        step("register buffer", indices, names, sizes, st.booleans()),
        step("register none", indices, names, st.sampled_from(["parameter", "buffer", "module"])),
        step("register wrong", indices, names, st.sampled_from(["parameter", "buffer", "module"])),
        step("register module", indices, names),
        step("register part", indices, names, indices),
        step("copy part", indices, names, indices),
        step("set submodule", paths, st.booleans()),
        step("delete", indices, names),
        step("mode", indices, st.booleans()),
        step("trains", indices, st.booleans()),
    ),
    min_size=1,
    max_size=6,
)


def edited(side: Side, model: Any, kind: str, *args: Any) -> Any:
    """The model after one edit; the same object on torch's side."""
    if kind == "set submodule":
        return side.set_submodule(model, args[0], side.nn.Tanh(), args[1])
    every = [path for path, _ in model.named_modules(remove_duplicate=False)]
    at, rest = every[args[0] % len(every)], args[1:]
    if kind in ("mode", "trains"):
        change = {"mode": "train", "trains": "requires_grad"}[kind]
        if side is OURS:
            return getattr(bridge, change)(model, *rest, where=at)
        getattr(model.get_submodule(at), change.replace("grad", "grad_"))(*rest)
        return model
    name, *rest = rest
    if kind == "delete":
        if side is OURS:
            return bridge.delete(model, name, at=at)
        delattr(model.get_submodule(at), name)
        return model
    what = kind.split()[1]
    value: Any = None
    if what == "part":
        what, value = "module", model.get_submodule(every[rest[0] % len(every)])
        value = copy.deepcopy(value) if kind == "copy part" else value
    elif kind in ("register none", "register wrong"):
        what = rest[0]
        value = None if kind == "register none" else 3
    elif what == "parameter":
        value = side.nn.Parameter(side.array(list(range(rest[0]))), requires_grad=rest[1])
    elif what == "buffer":
        value = side.array(list(range(rest[0])))
    elif what == "module":
        value = build(side, [("parameter", "b", 2, True), ("child", "a", [("mode", False)])])[0]
    extra = {"persistent": rest[1]} if kind == "register buffer" else {}
    if side is OURS:
        return getattr(bridge, f"register_{what}")(model, name, value, at=at, **extra)
    getattr(model.get_submodule(at), f"register_{what}")(name, value, **extra)
    return model


def contains_itself(model: Any, parent: int, part: int) -> bool:
    """Whether registering one module of a torch model under another makes a cycle."""
    every = [module for _, module in model.named_modules(remove_duplicate=False)]
    return every[parent % len(every)] in set(every[part % len(every)].modules())


@settings(derandomize=True, max_examples=200, deadline=None)
@given(programs(1), EDITS)
def test_edits_of_a_finished_model(program, edits):
    models = {side.name: build(side, program)[0] for side in SIDES}
    for edit in edits:
        if edit[0] == "register part" and contains_itself(models["torch"], edit[1], edit[3]):
            continue
        replies = []
        for side in SIDES:
            given_model = models[side.name]
            before = observed(side, given_model) if side is OURS else None
            error = None
            try:
                models[side.name] = edited(side, given_model, *edit)
            except Exception as raised_error:
                error = raised_error
            if side is OURS:
                assert observed(side, given_model) == before
            replies.append((said(error), observed(side, models[side.name])))
        assert replies[1] == replies[0]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(programs(2))
def test_a_file_goes_through_a_fresh_model_of_the_other_side(program):
    theirs, _ = build(TORCH, program)
    ours, _ = build(OURS, program)
    shifted = {name: np.asarray(value) + 1 for name, value in bridge.state_dict(ours).items()}
    theirs.load_state_dict(carried(TORCH, shifted))
    loaded, report = bridge.load_state_dict(
        jax.tree.map(jnp.zeros_like, ours), {n: to_numpy(v) for n, v in theirs.state_dict().items()}
    )
    assert str(report) == "<All keys matched successfully>"
    assert [(n, plain(OURS, v)) for n, v in bridge.state_dict(loaded).items()] == [
        (n, plain(TORCH, v)) for n, v in theirs.state_dict().items()
    ]
