"""repr, copy, deepcopy and pickle: the same text and the same model on torch and here.

The classes stand at the top level of this file, as pickle asks, one of each for either side.
"""

import concurrent.futures
import copy
import functools
import math
import pickle
import threading
from collections import namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bridge
import purestate as ps
from tests.differential.sides import OURS, SIDES, TORCH, construct, outcome, plain, registries


# repr.

EXTRAS = ["", "size=3", "a=1, b='x'", "a\nb", "a\n\nb", "a\n", "\na", "\n", "  spaced  ", "(a): b"]


def labelled(side, extra, children=()):
    """A module with this extra_repr and these children by name."""

    class Labelled(side.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = side.nn.Parameter(side.array([1.0]))
            self.register_buffer("count", side.array([1.0]))
            for name, child in children:
                self.add_module(name, child)
            self.extra = extra

        def extra_repr(self):
            return self.extra

    return Labelled()


def printed(build):
    """What both sides print, while the module is built and when it is finished; it must agree."""
    texts = []
    for side in SIDES:
        early = []

        def run(side, m):
            build(side, m)
            early.append(repr(m))  # noqa: B023

        model = construct(side, run)
        texts += [early[0], repr(model), str(model), f"{model}"]
    assert set(texts) == {texts[0]}
    return texts[0]


@pytest.mark.parametrize("extra", EXTRAS, ids=repr)
def test_extra_repr_without_children(extra):
    assert repr(labelled(OURS, extra)) == repr(labelled(TORCH, extra))


@pytest.mark.parametrize("extra", EXTRAS, ids=repr)
def test_extra_repr_with_children(extra):
    def build(side, m):
        m.plain = labelled(side, extra)
        inner = labelled(side, extra)
        m.parent = labelled(side, extra, [("0", inner), ("gone", None), ("last", labelled(side, ""))])

    printed(build)


def test_an_empty_module():
    assert printed(lambda side, m: None) == "Net()"


def test_one_line_without_children_and_one_item_a_line_with_them():
    def build(side, m):
        m.only = labelled(side, "size=3")
        m.two = labelled(side, "a\nb", [("x", labelled(side, ""))])

    assert printed(build) == (
        "Net(\n"
        "  (only): Labelled(size=3)\n"
        "  (two): Labelled(\n"
        "    a\n"
        "    b\n"
        "    (x): Labelled()\n"
        "  )\n"
        ")"
    )


def test_children_that_are_none_shared_or_hidden():
    def build(side, m):
        m.register_module("gone", None)
        m.act = side.nn.ReLU()
        m.act2 = m.act
        m.emptied = side.nn.ReLU()
        m.emptied = None
        m.taken = side.nn.Tanh()  # The class has this name; the child is registered all the same.

    assert printed(build) == (
        "Net(\n"
        "  (gone): None\n"
        "  (act): ReLU()\n"
        "  (act2): ReLU()\n"
        "  (emptied): None\n"
        "  (taken): Tanh()\n"
        ")"
    )


def test_a_child_with_a_repr_of_its_own():
    def build(side, m):
        class Own(side.nn.Module):
            def __repr__(self):
                return "first\n\n  second"

        m.own = Own()
        m.deep = labelled(side, "", [("own", Own())])

    assert printed(build) == (
        "Net(\n"
        "  (own): first\n\n    second\n"
        "  (deep): Labelled(\n"
        "    (own): first\n\n      second\n"
        "  )\n"
        ")"
    )


def test_a_name_of_its_own():
    def build(side, m):
        class Named(side.nn.Module):
            def _get_name(self):
                return "Other"

        m.named = Named()

    assert printed(build) == "Net(\n  (named): Other()\n)"


def test_extra_repr_may_read_the_module():
    def build(side, m):
        class Reader(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = side.nn.Parameter(side.array([[1.0, 2.0]]))
                self.register_parameter("bias", None)
                self.sizes = (2, 3)
                self.eval()

            def extra_repr(self):
                return f"{self.sizes}, {tuple(self.weight.shape)}, bias={self.bias}, {self.training}"

        m.reader = Reader()

    assert printed(build) == "Net(\n  (reader): Reader((2, 3), (1, 2), bias=None, False)\n)"


def test_an_error_in_extra_repr_is_raised():
    class Ours(OURS.nn.Module):
        def extra_repr(self):
            raise ValueError("no")

    class Theirs(TORCH.nn.Module):
        def extra_repr(self):
            raise ValueError("no")

    assert outcome(lambda: repr(Ours())) == outcome(lambda: repr(Theirs())) == ("ValueError", "no")


# copy, deepcopy, pickle: of a finished model.

Pair = namedtuple("Pair", ["first", "second"])


def double(value, factor=2):
    """A plain function, as pickle wants them."""
    return factor * value


class Options:
    """An object without a hash or an order: torch keeps it, so does a model here."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, size):
        self.size = size

    def __eq__(self, other):
        return isinstance(other, Options) and self.size == other.size


def make_classes(side):
    """Part and Whole of one side, known at the top level as ``torch_Part`` and so on."""

    class Part(side.nn.Module):
        scale = 1

        def __init__(self, value):
            super().__init__()
            self.weight = side.nn.Parameter(side.array([value, value]))
            self.fixed = side.nn.Parameter(side.array([value]), requires_grad=False)
            self.register_parameter("bias", None)
            self.register_buffer("count", side.array([int(value)], "int32"))
            self.register_buffer("scratch", side.array([value]), persistent=False)
            self.register_buffer("none", None, persistent=False)
            self.scale = 3  # Hides the class's.

    class Whole(side.nn.Module):
        label = "class"

        def __init__(self):
            super().__init__()
            self.first = Part(1.0)
            self.second = Part(2.0)
            self.second.weight = self.first.weight
            self.again = self.first
            self.register_module("gone", None)
            self.add_module("0", Part(3.0))
            self.tied = self.first.fixed
            self.late = Part(4.0)
            late = self.late
            del self.late
            self.late = late
            self.label = "own"
            self.number, self.text, self.real = 3, "text", float("nan")
            self.items = [1, (2.5, None), {"a": [True]}]
            self.pair = Pair(1, "two")
            self.function = functools.partial(double, factor=3)
            self.raw = side.array([5.0, 6.0])
            self.host = np.arange(3)
            self.parts = [self.first, self.second]
            self.favourite = {"part": self.second}
            self.second.eval()

        def forward(self, x):
            return self.function(x) * self.first.weight + self.second.weight

    for cls in (Part, Whole):
        cls.__qualname__ = f"{side.name}_{cls.__name__}"
        cls.__module__ = __name__
        globals()[cls.__qualname__] = cls
    return Whole


WHOLE = {side.name: make_classes(side) for side in SIDES}

WAYS: dict[str, Any] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "pickle protocol 2": lambda model: pickle.loads(pickle.dumps(model, protocol=2)),
    "deepcopy in a list": lambda model: copy.deepcopy([model, model])[1],
}


def described(side, model):
    """Everything a copy keeps."""
    kept = "number", "text", "items", "pair", "raw", "label"
    return {
        "modules": [name for name, _ in model.named_modules()],
        "paths": [name for name, _ in model.named_modules(remove_duplicate=False)],
        "parameters": [name for name, _ in model.named_parameters()],
        "names": [name for name, _ in model.named_parameters(remove_duplicate=False)],
        "registries": [registries(side, module) for module in model.modules()],
        "modes": [module.training for module in model.modules()],
        "trains": trains(side, model),
        "state_dict": plain(side, side.state_dict(model)),
        "metadata": side.metadata(side.state_dict(model)),
        "attributes": {name: plain(side, getattr(model, name)) for name in kept},
        "host": model.host.tolist(),
        "nan": model.real != model.real,
        "function": model.function(7),
        "references": (model.parts[0] is model.first, model.favourite["part"] is model.second),
        "scales": [part.scale for part in model.children()],
        "repr": repr(model),
    }


def trains(side, model):
    if side is TORCH:
        return [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    trainable = set(ps.split(model)[1])
    return [name for name, _ in model.named_parameters() if name in trainable]


def test_the_models_of_both_sides_agree_to_begin_with():
    assert described(OURS, WHOLE["purestate"]()) == described(TORCH, WHOLE["torch"]())


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_keeps_everything(way):
    expected = described(TORCH, WHOLE["torch"]())
    for side in SIDES:
        twin = WAYS[way](WHOLE[side.name]())
        assert described(side, twin) == expected, side.name


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_another_object_with_the_one_definition(way):
    for side in SIDES:
        model = WHOLE[side.name]()
        twin = WAYS[way](model)
        assert twin is not model
        assert twin != model  # Identity, as in torch.
        assert len({model, twin}) == 2
        assert type(twin) is type(model)
    model = WHOLE["purestate"]()
    twin = WAYS[way](model)
    assert twin._definition is model._definition
    for name, part in model.named_modules():
        assert twin.get_submodule(name)._definition is part._definition


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_runs_the_program_compiled_for_the_model(way):
    traces = []

    @jax.jit
    def run(model, x):
        traces.append(1)
        return model(x)

    model = WHOLE["purestate"]()
    expected = run(model, jnp.ones(2))
    np.testing.assert_array_equal(run(WAYS[way](model), jnp.ones(2)), expected)
    assert len(traces) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_part_is_a_model_of_its_own(way):
    for side in SIDES:
        part = WHOLE[side.name]().second
        twin = WAYS[way](part)
        assert plain(side, side.state_dict(twin)) == plain(side, side.state_dict(part))
        assert registries(side, twin) == registries(side, part)
        assert twin.training is False
        assert twin.scale == 3
    part = WHOLE["purestate"]().second
    assert WAYS[way](part)._definition is part._definition


@pytest.mark.parametrize("way", WAYS)
def test_a_shared_child_is_one_object_under_both_names(way):
    for side in SIDES:
        twin = WAYS[way](WHOLE[side.name]())
        assert twin.again is twin.first, side.name


@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_the_copy_is_none_of_the_model(way):
    model = WHOLE["purestate"]()
    before = described(OURS, model)
    twin = WAYS[way](model)
    twin = bridge.register_module(twin, "extra", twin.first)
    twin = bridge.register_buffer(bridge.eval(twin), "seen", jnp.ones(1))
    twin = ps.replace(twin, {"first.weight": jnp.zeros(2)})
    assert "extra.weight" in bridge.state_dict(twin)
    assert described(OURS, model) == before


def test_torchs_shallow_copy_shares_its_registries_and_a_value_has_nothing_to_share():
    theirs = WHOLE["torch"]()
    copy.copy(theirs).add_module("extra", TORCH.nn.ReLU())
    assert "extra" in dict(theirs.named_children())
    ours = WHOLE["purestate"]()
    twin = bridge.register_module(copy.copy(ours), "extra", OURS.nn.ReLU())
    assert "extra" in dict(twin.named_children())
    assert "extra" not in dict(ours.named_children())


@pytest.mark.parametrize("way", WAYS)
def test_a_tie_in_a_copy_is_still_one_array(way):
    for side in SIDES:
        twin = WAYS[way](WHOLE[side.name]())
        sd = dict(side.state_dict(twin))
        for name in ("first.weight", "second.weight", "again.weight"):
            sd[name] = side.array([8.0, 9.0])
        twin, _ = side.load(twin, sd)
        assert plain(side, twin.first.weight) == plain(side, twin.second.weight) == [8.0, 9.0]
        assert len(list(twin.parameters())) == len(list(WHOLE[side.name]().parameters()))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_as_frozen_as_its_model(way):
    twin = WAYS[way](WHOLE["purestate"]())
    with pytest.raises(ps.FrozenModelError, match="write:"):
        twin.first.weight = jnp.ones(2)
    with pytest.raises(ps.FrozenModelError, match=r"bridge\.eval"):
        twin.eval()


@pytest.mark.parametrize("way", WAYS)
def test_modes_and_flags_changed_after_construction_are_kept(way):
    model = bridge.requires_grad(bridge.eval(WHOLE["purestate"]()), False, "0")
    twin = WAYS[way](model)
    assert twin._definition is model._definition
    assert not any(module.training for module in twin.modules())
    assert list(ps.split(twin)[1]) == ["first.weight", "late.weight"]


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_values_stays_one(way):
    model = ps.abstract(WHOLE["purestate"]())
    twin = WAYS[way](model)
    assert twin._definition is model._definition
    assert [(a.shape, a.dtype) for a in twin.parameters()] == [
        (a.shape, a.dtype) for a in model.parameters()
    ]
    full, report = bridge.load_state_dict(twin, bridge.state_dict(WHOLE["purestate"]()))
    assert report == ([], [])
    np.testing.assert_array_equal(full.first.weight, [1.0, 1.0])


@pytest.mark.parametrize("way", WAYS)
def test_the_dtype_that_jax_narrowed_is_remembered(way):
    model = bridge.register_buffer(WHOLE["purestate"](), "seen", np.array([2**20], np.int64))
    twin = WAYS[way](model)
    assert twin._definition is model._definition
    assert bridge.state_dict(twin)["seen"].dtype == np.int64


def test_a_numpy_leaf_is_copied_by_deepcopy():
    model = jax.tree.map(np.array, WHOLE["purestate"]())
    twin = copy.deepcopy(model)
    model._leaves[0][...] = 99.0
    assert not np.any(twin._leaves[0] == 99.0)


class Holder(OURS.nn.Module):
    """A model with one plain attribute."""

    def __init__(self, value):
        super().__init__()
        self.value = value


class TorchHolder(TORCH.nn.Module):
    """The same for torch."""

    def __init__(self, value):
        super().__init__()
        self.value = value


@pytest.mark.parametrize("way", WAYS)
def test_an_attribute_without_a_hash_survives(way):
    for cls in (Holder, TorchHolder):
        assert WAYS[way](cls(Options(4))).value == Options(4)


FUNCTIONS: dict[str, Any] = {
    "a function": double,
    "a builtin": math.sqrt,
    "a ufunc": np.tanh,
    "a partial of a builtin": functools.partial(math.pow, 2.0),
    "a class": Options,
    "a method of a class": Pair._make,
    "in a list": [double, {"f": (math.sqrt, np.tanh)}],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_as_an_attribute_survives(name, way):
    value = FUNCTIONS[name]
    for cls in (Holder, TorchHolder):
        twin = WAYS[way](cls(value)).value
        if isinstance(value, functools.partial):
            assert (twin.func, twin.args) == (value.func, value.args)
        else:
            assert twin == value
    model = Holder(value)
    assert WAYS[way](model)._definition is model._definition


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", ["relu", "gelu", "softmax", "linear"])
def test_a_functional_as_an_attribute_survives(function, way):
    theirs = getattr(TORCH.nn.functional, function)
    assert WAYS[way](TorchHolder(theirs)).value is theirs
    model = Holder(getattr(OURS.nn.functional, function))
    twin = WAYS[way](model)
    assert twin.value is model.value
    assert twin._definition is model._definition


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "value",
    [
        jnp.float32,
        np.dtype("int8"),
        jnp.dtype("bfloat16"),
        slice(1, 2),
        range(3),
        ...,
        {1},
        {"z": 1, "a": 2},
        b"bytes",
        1j,
        -0.0,
        Pair([1], {"k": ()}),
    ],
    ids=repr,
)
def test_a_plain_value_as_an_attribute_survives(value, way):
    for cls in (Holder, TorchHolder):
        twin = WAYS[way](cls(value)).value
        assert twin == value
        assert repr(twin) == repr(cls(value).value)
    model = Holder(value)
    assert WAYS[way](model)._definition is model._definition


def test_a_pickle_holds_the_definition_once_and_no_constructor_runs():
    calls = []
    model = WHOLE["purestate"]()
    init = type(model).__init__
    try:
        type(model).__init__ = lambda self: calls.append(1)
        twins = pickle.loads(pickle.dumps([model, model, copy.copy(model)]))
    finally:
        type(model).__init__ = init
    assert calls == []
    assert twins[0] is twins[1]
    assert all(twin._definition is model._definition for twin in twins)


# copy and deepcopy in a constructor.


def in_constructor(build):
    """What both sides hold after a constructor that copies; it must agree."""
    seen = []
    for side in SIDES:
        model = construct(side, build)
        seen.append(
            {
                "parameters": [name for name, _ in model.named_parameters()],
                "names": [name for name, _ in model.named_parameters(remove_duplicate=False)],
                "buffers": [name for name, _ in model.named_buffers()],
                "modules": [name for name, _ in model.named_modules()],
                "modes": [module.training for module in model.modules()],
                "trains": trains(side, model),
                "own": [registries(side, module) for module in model.modules()],
                "repr": repr(model),
                "state_dict": plain(side, side.state_dict(model)),
            }
        )
    assert seen[1] == seen[0]
    return seen[1]


def block(side, value=1.0):
    """A module with a tie, a shared child, a frozen parameter, an unsaved buffer and a mode."""

    class Block(side.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = side.nn.Parameter(side.array([value]))
            self.b = self.a
            self.fixed = side.nn.Parameter(side.array([value]), requires_grad=False)
            self.act = side.nn.ReLU()
            self.act2 = self.act
            self.register_buffer("scratch", side.array([value]), persistent=False)
            self.count = side.nn.Buffer(side.array([value]))
            self.count2 = self.count
            self.eval()

    return Block()


def test_a_deep_copy_in_a_constructor_has_arrays_of_its_own():
    def build(side, m):
        m.first = block(side)
        m.second = copy.deepcopy(m.first)
        m.third = copy.deepcopy(m.first)
        m.third.a = side.nn.Parameter(side.array([7.0]))

    seen = in_constructor(build)
    assert "second.a" in seen["parameters"]
    assert "second.b" not in seen["parameters"]
    assert {"third.a", "third.b"} <= set(seen["parameters"])


def test_a_shallow_copy_in_a_constructor_shares_its_parameters():
    def build(side, m):
        m.first = block(side)
        m.second = copy.copy(m.first)
        m.second.training = True
        m.second.late = side.nn.Parameter(side.array([2.0]))

    seen = in_constructor(build)
    assert "first.late" in seen["parameters"]
    assert "second.a" not in seen["parameters"]


def test_a_list_copied_in_one_go_keeps_what_its_modules_share():
    def build(side, m):
        one, two = block(side), block(side, 2.0)
        two.a = one.a
        twins = copy.deepcopy([one, two, one])
        m.one, m.two = one, two
        m.first, m.second, m.third = twins
        assert m.third is m.first

    seen = in_constructor(build)
    assert "second.a" not in seen["parameters"]


def test_a_module_copied_into_itself():
    def build(side, m):
        m.first = block(side)
        m.weight = side.nn.Parameter(side.array([1.0]))
        m.twin = copy.deepcopy(m)

    assert in_constructor(build)["parameters"] == [
        "weight",
        "first.a",
        "first.fixed",
        "twin.weight",
        "twin.first.a",
        "twin.first.fixed",
    ]


def test_a_parameter_and_a_buffer_copied_in_a_constructor():
    def build(side, m):
        m.a = side.nn.Parameter(side.array([1.0]), requires_grad=False)
        m.b = copy.deepcopy(m.a)
        twins = copy.deepcopy({"x": m.a, "y": m.a})
        m.c = twins["x"]
        m.d = twins["y"]
        m.register_buffer("count", side.array([1.0]))
        m.register_buffer("twin", copy.deepcopy(m.count))

    seen = in_constructor(build)
    assert seen["names"] == ["a", "b", "c", "d"]
    assert seen["parameters"] == ["a", "b", "c"]


def test_a_finished_model_copied_in_the_constructor_of_another():
    finished = {side.name: block(side) for side in SIDES}

    def build(side, m):
        m.first = finished[side.name]
        m.second = copy.deepcopy(finished[side.name])
        m.third = finished[side.name]

    seen = in_constructor(build)
    assert "third.a" not in seen["parameters"]
    assert "second.a" in seen["parameters"]


def test_a_deep_copy_in_a_constructor_keeps_references_to_what_was_copied():
    def build(side, m):
        class Holder(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.part = side.nn.ReLU()
                self.listed = [self.part]

        m.holder = Holder()
        m.twin = copy.deepcopy(m.holder)
        assert m.twin.listed[0] is m.twin.part
        assert m.twin.part is not m.holder.part

    in_constructor(build)


# One definition for equal models.


def at_once(function, count=8):
    """What ``function()`` gives in so many threads that start together."""
    barrier = threading.Barrier(count)

    def run(_):
        barrier.wait()
        return function()

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_eight_threads_build_one_definition():
    models = [model for _ in range(5) for model in at_once(WHOLE["purestate"])]
    assert len(models) == 40
    assert len({id(model._definition) for model in models}) == 1
    expected = described(TORCH, WHOLE["torch"]())
    assert described(OURS, models[0]) == described(OURS, models[-1]) == expected


def test_eight_threads_build_a_definition_nobody_had():
    for size in range(10):
        value = ("fresh", size)
        models = at_once(lambda value=value: Holder(value))
        assert len({id(model._definition) for model in models}) == 1


def test_threads_that_copy_and_edit_one_model_agree():
    model = WHOLE["purestate"]()

    def change():
        twin = bridge.eval(copy.deepcopy(copy.copy(model)))
        return bridge.register_buffer(twin, "seen", jnp.ones(1))

    twins = at_once(change)
    assert len({id(twin._definition) for twin in twins}) == 1
    assert described(OURS, model) == described(TORCH, WHOLE["torch"]())


def test_threads_that_unpickle_agree():
    model = WHOLE["purestate"]()
    data = pickle.dumps(model)
    assert {id(twin._definition) for twin in at_once(lambda: pickle.loads(data))} == {
        id(model._definition)
    }


def test_there_and_back_is_the_definition_of_before():
    model = WHOLE["purestate"]()
    definition = bridge.train(model)._definition
    model = bridge.train(model)
    assert bridge.eval(model)._definition is not definition
    assert bridge.train(bridge.eval(model))._definition is definition
    added = bridge.register_buffer(model, "seen", jnp.ones(1))
    assert added._definition is not definition
    assert bridge.delete(added, "seen")._definition is definition
