"""Walking a model and reaching into it: the same answers and errors on torch and here.

Every question is asked inside the constructor, of the module under construction, and again of the
finished model.
"""

from typing import Any

import pytest

import purestate as ps
from tests.differential.sides import (
    OURS,
    SIDES,
    TORCH,
    construct,
    normalise,
    outcome,
    plain,
    registries,
)


def tree(side, m):
    """Shared and tied members, None members, children created before the node's own members."""

    class Part(side.nn.Module):
        def __init__(self, value, inner=None):
            super().__init__()
            self.inner = inner
            self.weight = side.nn.Parameter(side.array([value, value]))
            self.register_parameter("bias", None)
            self.register_buffer("count", side.array([value]), persistent=value > 2)
            self.size = int(value)

        @property
        def core(self):
            return self.inner

        @property
        def double(self):
            return self.size * 2

    m.first = Part(1.0, Part(2.0))
    m.register_module("gap", None)
    m.weight = side.nn.Parameter(side.array([0.0]))
    m.second = Part(3.0, m.first.inner)
    m.again = m.first
    m.second.weight = m.first.weight
    m.register_buffer("count", side.array([9.0]))
    m.register_buffer("tied_count", side.nn.Buffer(side.array([8.0])))
    m.other_count = m.tied_count
    m.register_buffer("none", None)
    m.add_module("0", side.nn.ReLU())
    m.plain_list = [side.nn.ReLU()]
    m.number = 3
    m.alone = side.array([7.0])
    m.register_buffer("as_buffer", m.weight)


def in_both_lives(side, ask, build=tree):
    """What ``ask(side, module)`` gives in the constructor and of the finished model."""
    seen = []

    def run(side, module):
        build(side, module)
        seen.append(ask(side, module))

    model = construct(side, run)
    return [*seen, ask(side, model)]


def agree(ask, build=tree):
    """Both sides give the same, and so do both lives; what they give."""
    theirs = in_both_lives(TORCH, ask, build)
    ours = in_both_lives(OURS, ask, build)
    assert theirs[0] == theirs[1]
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    return theirs[0]


def pairs(side, items):
    return [(name, plain(side, value)) for name, value in items]


OPTIONS: list[dict[str, Any]] = [
    {"prefix": prefix, "recurse": recurse, "remove_duplicate": unique}
    for prefix in ("", "p", "p.", "a.b")
    for recurse in (True, False)
    for unique in (True, False)
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("kind", ["parameters", "buffers"])
def test_named_members(kind, options):
    agree(lambda side, m: pairs(side, getattr(m, f"named_{kind}")(**options)))


def test_members_in_torchs_order_and_a_tie_by_its_first_name():
    def names(side, m):
        return [name for name, _ in m.named_parameters()]

    assert agree(names) == ["weight", "first.weight", "first.inner.weight"]
    every = agree(lambda side, m: [name for name, _ in m.named_parameters(remove_duplicate=False)])
    assert every == [
        "weight",
        "first.weight",
        "first.inner.weight",
        "second.weight",
        "second.inner.weight",
        "again.weight",
        "again.inner.weight",
    ]


@pytest.mark.parametrize("arguments", [("p", False, False), ("p", True), ("p",)])
def test_named_members_take_positions(arguments):
    agree(lambda side, m: pairs(side, m.named_parameters(*arguments)))
    agree(lambda side, m: pairs(side, m.named_buffers(*arguments)))


@pytest.mark.parametrize("recurse", [True, False])
def test_unnamed_members(recurse):
    agree(lambda side, m: [plain(side, value) for value in m.parameters(recurse)])
    agree(lambda side, m: [plain(side, value) for value in m.buffers(recurse)])


@pytest.mark.parametrize("prefix", ["", "p", "p.", "a.b"])
@pytest.mark.parametrize("unique", [True, False])
def test_named_modules(prefix, unique):
    agree(lambda side, m: pairs(side, m.named_modules(prefix=prefix, remove_duplicate=unique)))


@pytest.mark.parametrize("unique", [True, False])
def test_modules(unique):
    agree(lambda side, m: [plain(side, value) for value in m.modules(remove_duplicate=unique)])


def test_a_memo_is_filled_and_left_out():
    def ask(side, m):
        memo = {m.first}
        seen = [name for name, _ in m.named_modules(memo)]
        return seen, len(memo)

    assert agree(ask)[0] == ["", "second", "second.inner", "0"]


def test_children():
    assert agree(lambda side, m: pairs(side, m.named_children())) == [
        ("first", "Part"),
        ("second", "Part"),
        ("0", "ReLU"),
    ]
    agree(lambda side, m: [plain(side, child) for child in m.children()])
    agree(lambda side, m: pairs(side, m.second.named_children()))


def test_a_submodule_is_walked_from_itself():
    agree(lambda side, m: pairs(side, m.second.named_parameters(remove_duplicate=False)))
    agree(lambda side, m: pairs(side, m.get_submodule("again.inner").named_buffers()))
    agree(lambda side, m: pairs(side, m.second.named_modules(prefix="x")))


def test_a_shared_module_reads_the_same_under_each_path():
    def ask(side, m):
        return [plain(side, m.get_parameter(f"{path}.weight")) for path in ("first", "again", "second")]

    assert agree(ask) == [[1.0, 1.0]] * 3


def test_the_iterators_are_lazy_and_named():
    def ask(side, m):
        walks = [m.parameters(), m.named_buffers(), m.modules(), m.named_modules(), m.children()]
        return [iter(walk) is walk for walk in walks]

    assert agree(ask) == [True] * 5


TARGETS = [
    "",
    "first",
    "first.inner",
    "second.inner",
    "again",
    "0",
    "gap",
    "gap.x",
    "missing",
    "first.missing",
    "first.missing.x",
    "first.weight",
    "first.weight.x",
    "weight",
    "number",
    "first.size",
    "first.core",
    "second.core",
    "first.core.weight",
    "first.double",
    "first.",
    ".first",
    ".",
    "first..inner",
    "forward",
    "alone",
    "plain_list",
    "plain_list.0",
    "first.bias",
    "none",
    "count",
    "first.count",
    "first.inner.weight",
    "other_count",
    "training",
    "first.inner.missing",
]


@pytest.mark.parametrize("method", ["get_submodule", "get_parameter", "get_buffer"])
@pytest.mark.parametrize("target", TARGETS)
def test_reaching_in(method, target):
    def ask(side, m):
        found = []
        error = outcome(lambda: found.append(plain(side, getattr(m, method)(target))))
        return found, error

    agree(ask)


def test_a_parameter_registered_as_a_buffer_is_a_buffer_here_and_both_in_torch():
    def ask(side, m):
        found = []
        error = outcome(lambda: found.append(plain(side, m.get_parameter("as_buffer"))))
        return found, error, plain(side, m.get_buffer("as_buffer"))

    assert in_both_lives(TORCH, ask) == [([[0.0]], None, [0.0])] * 2
    refused = ("AttributeError", "`as_buffer` is not an nn.Parameter")
    assert in_both_lives(OURS, ask) == [([], refused, [0.0])] * 2


def test_the_texts_of_reaching_in():
    def said(call):
        return agree(lambda side, m: outcome(lambda: call(m)))

    assert said(lambda m: m.get_submodule("first.nope")) == (
        "AttributeError",
        "Part has no attribute `nope`",
    )
    assert said(lambda m: m.get_submodule("first.size")) == (
        "AttributeError",
        "`size` is not an nn.Module",
    )
    assert said(lambda m: m.get_submodule("first.")) == ("AttributeError", "Part has no attribute ``")
    assert said(lambda m: m.get_parameter("count")) == (
        "AttributeError",
        "`count` is not an nn.Parameter",
    )
    assert said(lambda m: m.get_parameter("first.bias")) == (
        "AttributeError",
        "`bias` is not an nn.Parameter",
    )
    assert said(lambda m: m.get_buffer("weight")) == ("AttributeError", "`weight` is not a buffer")
    assert said(lambda m: m.get_buffer("none")) is None


def test_get_submodule_of_nothing_is_the_module_itself():
    assert agree(lambda side, m: m.get_submodule("") is m)
    assert agree(lambda side, m: m.first is m.first)


# set_submodule.

PLACES = [
    ("", False),
    ("first", False),
    ("first", True),
    ("first.inner", True),
    ("second.inner", False),
    ("new", False),
    ("new", True),
    ("first.new", False),
    ("first.new", True),
    ("missing.x", False),
    ("missing.x", True),
    ("gap", False),
    ("gap", True),
    ("0", True),
    ("weight", False),
    ("weight", True),
    ("first.weight", False),
    ("count", False),
    ("number", False),
    ("number.x", False),
    ("first.core", False),
    ("first.double", False),
    ("forward", False),
    (".first", False),
    ("taken", False),
    ("again.inner", False),
]


def replaced(side, target, strict, finished):
    """The outcome of a set_submodule, and the names of the model after it."""
    seen = []

    def build(side, m):
        tree(side, m)
        if not finished:
            seen.append(outcome(lambda: m.set_submodule(target, side.nn.Tanh(), strict)))

    model = construct(side, build)
    if finished:
        try:
            model = side.set_submodule(model, target, side.nn.Tanh(), strict)
            seen.append(None)
        except Exception as error:
            seen.append((type(error).__name__, normalise(str(error))))
    seen.append(pairs(side, model.named_modules(remove_duplicate=False)))
    seen.append(pairs(side, model.named_parameters(remove_duplicate=False)))
    seen.append(registries(side, model)["modules"])
    return seen


@pytest.mark.parametrize("finished", [False, True], ids=["building", "finished"])
@pytest.mark.parametrize(("target", "strict"), PLACES)
def test_set_submodule(target, strict, finished):
    assert replaced(OURS, target, strict, finished) == replaced(TORCH, target, strict, finished)


@pytest.mark.parametrize("value", [3, None, "text"])
@pytest.mark.parametrize("finished", [False, True], ids=["building", "finished"])
def test_set_submodule_of_something_else(value, finished):
    def attempt(side):
        seen = []

        def build(side, m):
            tree(side, m)
            if not finished:
                seen.append(outcome(lambda: m.set_submodule("first", value)))

        model = construct(side, build)
        if finished:
            seen.append(outcome(lambda: side.set_submodule(model, "first", value)))
        return seen

    assert attempt(OURS) == attempt(TORCH)


def test_set_submodule_takes_the_target_before_the_module():
    for side in SIDES:
        model = construct(side, tree)
        assert outcome(lambda: side.set_submodule(model, "", 3)) == (  # noqa: B023
            "ValueError",
            "Cannot set the submodule without a target name!",
        )


def test_set_submodule_leaves_the_model_it_was_given():
    model = construct(OURS, tree)
    before = pairs(OURS, model.named_modules())
    changed = OURS.set_submodule(model, "first.inner", OURS.nn.Tanh())
    assert pairs(OURS, model.named_modules()) == before
    assert type(changed.first.inner).__name__ == "Tanh"
    # The shared parent keeps being shared, the other parent of the replaced module keeps it.
    assert type(changed.again.inner).__name__ == "Tanh"
    assert type(changed.second.inner).__name__ == "Part"


# A child that the class hides.


def hidden(side, m):
    m.taken = side.nn.ReLU()
    m.forward = side.nn.Tanh()


def test_a_child_hidden_by_its_class_stays_hidden_after_a_walk():
    def ask(side, m):
        before = m.taken, callable(m.forward) and not isinstance(m.forward, side.nn.Module)
        walked = pairs(side, m.named_modules()), pairs(side, m.named_children())
        after = m.taken, callable(m.forward) and not isinstance(m.forward, side.nn.Module)
        return before, walked, after

    assert agree(ask, hidden) == (
        (7, True),
        (
            [("", "Net"), ("taken", "ReLU"), ("forward", "Tanh")],
            [("taken", "ReLU"), ("forward", "Tanh")],
        ),
        (7, True),
    )


# A module cannot contain itself: torch walks it until the stack ends, here it is not built.


def test_a_cycle_is_refused_when_it_is_built():
    def build(side, m):
        m.child = construct(side, lambda s, c: None)
        m.child.parent = m

    theirs = construct(TORCH, build)
    assert [name for name, _ in theirs.named_modules()] == ["", "child"]
    with pytest.raises(RecursionError):
        theirs.state_dict()
    with pytest.raises(ps.BuildError, match=r"'child\.parent' is a module that contains it"):
        construct(OURS, build)
