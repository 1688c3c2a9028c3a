"""state_dict and load_state_dict: names, order, versions and reports, the same on torch and here."""

import collections
import copy
import pickle
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

import bridge
import purestate as ps
from tests.differential.sides import OURS, SIDES, TORCH, construct, normalise, outcome, plain


def net(side, m):
    """Every kind of member, out of order; ties, a shared module, None slots and an unsaved buffer."""

    class Part(side.nn.Module):
        def __init__(self, value):
            super().__init__()
            self.register_buffer("mask", side.array([value]))
            self.register_buffer("scratch", side.array([value]), persistent=False)
            self.weight = side.nn.Parameter(side.array([[value, value]]))
            self.register_parameter("bias", None)

    m.block = Part(1.0)
    m.register_buffer("scale", side.array(2.0))
    m.act = side.nn.ReLU()
    m.register_module("gone", None)
    m.weight = side.nn.Parameter(side.array([3.0, 4.0, 5.0]))
    m.head = Part(6.0)
    m.tied = m.head.weight
    m.shared = m.block
    m.register_buffer("empty", None)
    m.plain = side.array([7.0])


def filled(side, changes=(), drop=(), build=net):
    """A state_dict of ones with the shapes of the model, then changed."""
    sd = side.state_dict(construct(side, build))
    values = {name: side.array(np.ones(np.shape(side.numpy(v))).tolist()) for name, v in sd.items()}
    for name in drop:
        del values[name]
    values.update(dict(changes))
    return values


def contents(side, model):
    """Every parameter and buffer by every name, saved or not."""
    named = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    )
    return {name: plain(side, value) for name, value in named}


def loaded(side, sd, strict=True, assign=False, build=net) -> Any:
    """What a load of ``sd(side)`` says and leaves: the error or the report, and the contents."""
    model = construct(side, build)
    try:
        model, report = side.load(model, sd(side), strict=strict, assign=assign)
    except Exception as error:
        return type(error).__name__, normalise(str(error))
    return (
        list(report.missing_keys),
        list(report.unexpected_keys),
        repr(report).removeprefix("_"),
        contents(side, model),
    )


def agree(sd, build=net, **options) -> Any:
    """Both sides say and leave the same; what they say."""
    theirs = loaded(TORCH, sd, build=build, **options)
    assert loaded(OURS, sd, build=build, **options) == theirs
    return theirs


# Writing.


def test_names_values_and_order():
    expected, actual = (side.state_dict(construct(side, net)) for side in SIDES)
    assert list(actual) == [
        "weight",
        "tied",
        "scale",
        "block.weight",
        "block.mask",
        "head.weight",
        "head.mask",
        "shared.weight",
        "shared.mask",
    ]
    assert list(expected) == list(actual)
    assert plain(OURS, actual) == plain(TORCH, expected)


@pytest.mark.parametrize("prefix", ["", "p.", "p", "model.net.", "..", "."])
def test_prefix_is_put_before_names_and_cut_by_one_for_versions(prefix):
    expected, actual = (side.state_dict(construct(side, net), prefix=prefix) for side in SIDES)
    assert list(actual) == list(expected)
    assert OURS.metadata(actual) == TORCH.metadata(expected)
    assert list(OURS.metadata(actual)) == list(TORCH.metadata(expected))


def test_versions_of_every_module():
    for side in SIDES:
        assert side.metadata(side.state_dict(construct(side, net))) == {
            "": {"version": 1},
            "block": {"version": 1},
            "act": {"version": 1},
            "head": {"version": 1},
            "shared": {"version": 1},
        }


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda sd: pickle.loads(pickle.dumps(sd))])
def test_versions_survive_a_copy(twin):
    for side in SIDES:
        sd = side.state_dict(construct(side, net))
        assert side.metadata(twin(sd)) == side.metadata(sd)
        assert list(twin(sd)) == list(sd)


COPIES = {
    "copy.copy": (copy.copy, True, True),
    "deepcopy": (copy.deepcopy, True, True),
    "pickle": (lambda sd: pickle.loads(pickle.dumps(sd)), True, True),
    "its own copy": (lambda sd: sd.copy(), False, True),
    "its own class": (lambda sd: type(sd)(sd), False, True),
    "union": (lambda sd: sd | {}, False, True),
    "comprehension": (lambda sd: {name: sd[name] for name in sd}, False, False),
    "dict": (dict, False, False),
}


@pytest.mark.parametrize("name", COPIES)
def test_which_copies_keep_the_versions_42(name):
    """Torch loses them in the three in the middle; a comprehension is a plain dict on both sides."""
    twin, *keeps = COPIES[name]
    for side, kept in zip(SIDES, keeps, strict=True):
        attribute = "_metadata" if side is TORCH else "metadata"
        sd = side.state_dict(construct(side, net))
        assert list(twin(sd)) == list(sd)
        assert (getattr(twin(sd), attribute, None) == getattr(sd, attribute)) is kept, side.name


def test_destination_and_keep_vars_are_left_out_44_48():
    """What they are for is the caller's ``update``, and the arrays of the model."""
    into = {"other": TORCH.array([1.0])}
    theirs = construct(TORCH, net)
    assert theirs.state_dict(destination=into) is into
    assert not hasattr(into, "_metadata")
    assert theirs.state_dict(keep_vars=True)["weight"] is theirs.weight
    model: Any = construct(OURS, net)
    for option in ("destination", "keep_vars"):
        given: Any = {option: None}
        with pytest.raises(TypeError, match=option):
            bridge.state_dict(model, **given)
    assert list({"other": 1} | bridge.state_dict(model)) == list(into)
    assert bridge.state_dict(model)["weight"] is model.weight


def test_a_saved_dict_does_not_follow_the_model():
    model = construct(OURS, net)
    sd = bridge.state_dict(model)
    ps.replace(model, {"weight": jnp.zeros(3)})
    np.testing.assert_array_equal(sd["weight"], [3.0, 4.0, 5.0])
    their_model = construct(TORCH, net)
    their_sd = their_model.state_dict()
    with torch.no_grad():
        their_model.weight.zero_()
    assert their_sd["weight"].tolist() == [0.0, 0.0, 0.0]  # Torch's is a view of the model.


def test_a_submodules_own_state_dict_has_its_own_names():
    for side in SIDES:
        model = construct(side, net)
        assert list(side.state_dict(model.shared)) == ["weight", "mask"]
        assert side.metadata(side.state_dict(model.shared)) == {"": {"version": 1}}


def test_a_child_and_a_parameter_deleted_and_added_again_go_last():
    def build(side, m):
        net(side, m)
        again = m.block
        del m.block
        m.block = again
        weight = m.weight
        del m.weight
        m.weight = weight

    expected, actual = (list(side.state_dict(construct(side, build))) for side in SIDES)
    assert actual == expected
    assert actual[:2] == ["tied", "weight"]
    assert actual[-1] == "block.mask"


# Reading: what fits.


def test_a_full_load():
    report = agree(filled)
    assert report[:3] == ([], [], "<All keys matched successfully>")
    assert set(map(str, report[3]["weight"])) == {"1.0"}


@pytest.mark.parametrize(
    "value",
    [3, None, [("a", 1)], {"a"}, "text", 2.5],
    ids=["int", "none", "list", "set", "str", "float"],
)
def test_what_is_no_mapping(value):
    assert agree(lambda side: value)[0] == "TypeError"


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, types.MappingProxyType])
def test_any_mapping_is_taken_and_left_as_it_is(kind):
    def sd(side):
        values = kind(filled(side))
        kept.append((values, dict(values)))
        return values

    kept: list[Any] = []
    assert agree(sd)[0] == []
    for values, before in kept:
        assert dict(values) == before


def test_keys_that_are_no_strings_are_refused():
    assert loaded(TORCH, lambda side: {3: side.array([1.0])})[0] == "AttributeError"
    kind, text = loaded(OURS, lambda side: {3: side.array([1.0])})
    assert kind == "TypeError"
    assert "got the key 3" in text


# Reading: what is missing, unexpected, or does not fit.

DAMAGE = {
    "missing_parameter": ((), ("weight",)),
    "missing_buffer": ((), ("scale",)),
    "missing_nested": ((), ("block.mask", "head.weight")),
    "missing_one_name_of_a_tie": ((), ("tied",)),
    "missing_other_name_of_a_tie": ((), ("head.weight",)),
    "missing_one_path_of_a_shared_module": ((), ("shared.weight", "shared.mask")),
    "unexpected": (("nope",), ()),
    "unexpected_nested": (("block.nope", "nope.weight", "block.weight.x"), ()),
    "unexpected_deep": (("act.x.y.z", "act.x"), ()),
    "a_childs_own_name": (("block", "act"), ()),
    "an_unsaved_buffer": (("block.scratch", "head.scratch"), ()),
    "a_none_parameter": (("block.bias", "head.bias"), ()),
    "a_none_buffer": (("empty",), ()),
    "a_plain_array": (("plain",), ()),
    "a_none_child_swallows": (("gone.weight", "gone.x.y"), ()),
    "a_none_childs_own_name": (("gone",), ()),
    "an_empty_name": (("", ".", ".weight", "block.", "block..weight"), ()),
    "a_parameter_as_a_module": (("weight.x", "scale.y"), ()),
    "extra_state": (("_extra_state", "block._extra_state"), ()),
    "missing_and_unexpected": (("nope", "head.nope"), ("weight", "head.mask")),
    "nothing_at_all": ((), tuple(filled(TORCH))),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", DAMAGE)
def test_missing_and_unexpected_names(name, strict):
    add, drop = DAMAGE[name]
    agree(lambda side: filled(side, [(key, side.array([1.0])) for key in add], drop), strict=strict)


SHAPES = {
    "another_length": {"weight": [1.0, 2.0]},
    "another_rank": {"weight": [[1.0, 2.0, 3.0]]},
    "no_broadcast_of_a_row": {"block.weight": [1.0, 1.0]},
    "no_broadcast_of_one": {"weight": [1.0]},
    "a_scalar_for_one": {"block.mask": 1.0},
    "one_for_a_scalar": {"scale": [5.0]},
    "two_for_a_scalar": {"scale": [5.0, 6.0]},
    "one_by_one_for_a_scalar": {"scale": [[5.0]]},
    "none_for_a_scalar": {"scale": []},
    "empty": {"weight": []},
    "several": {"weight": [1.0], "scale": [1.0, 2.0], "head.mask": [], "shared.weight": [1.0]},
    "both_names_of_a_tie": {"tied": [1.0], "head.weight": [2.0]},
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_other_shapes(name, strict, assign):
    changes = SHAPES[name]
    said = agree(
        lambda side: filled(side, [(key, side.array(value)) for key, value in changes.items()]),
        strict=strict,
        assign=assign,
    )
    assert (said[0] == "RuntimeError") != (name == "one_for_a_scalar")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "value", [3, None, "text", [1.0, 2.0, 3.0], 2.5], ids=["int", "none", "str", "list", "float"]
)
def test_values_that_are_no_arrays(value, strict):
    said = agree(lambda side: filled(side, [("weight", value), ("head.mask", value)]), strict=strict)
    assert said[0] == "RuntimeError"


@pytest.mark.parametrize("strict", [True, False])
def test_everything_at_once_in_torchs_order(strict):
    def sd(side):
        values = filled(side, drop=("tied", "block.mask"))
        return {
            "zzz": side.array([1.0]),
            **values,
            "weight": side.array([1.0]),
            "head.mask": "text",
            "scale": side.array([1.0, 2.0]),
            "aaa.b": side.array([1.0]),
        }

    kind, text = agree(sd, strict=strict)
    assert kind == "RuntimeError"
    head, *lines = text.split("\n\t")
    assert head == "Error(s) in loading state_dict for Net:"
    if strict:
        assert lines[0] == 'Missing key(s) in state_dict: "tied", "block.mask". '
        assert lines[1] == 'Unexpected key(s) in state_dict: "zzz", "aaa.b". '
        lines = lines[2:]
    assert lines == [
        "size mismatch for weight: copying a param with shape torch.Size([1]) from checkpoint, "
        "the shape in current model is torch.Size([3]).",
        "size mismatch for scale: copying a param with shape torch.Size([2]) from checkpoint, "
        "the shape in current model is torch.Size([]).",
        'While copying the parameter named "head.mask", expected torch.Tensor or Tensor-like object '
        "from checkpoint but received <class 'str'>",
    ]


def test_the_error_names_the_class_of_the_root():
    def build(side, m):
        m.inner = construct(side, net)

    def sd(side):
        return {f"inner.{name}": value for name, value in filled(side, drop=["weight"]).items()}

    _, text = agree(sd, build=build)
    assert text == (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "inner.weight". '
    )


def test_numpy_arrays_are_taken_here_and_refused_by_torch():
    kind, text = loaded(TORCH, lambda side: {**filled(side), "weight": np.ones(3, np.float32)})
    assert kind == "RuntimeError"
    assert "but received <class 'numpy.ndarray'>" in text
    said = loaded(OURS, lambda side: {**filled(side), "weight": np.ones(3, np.float32)})
    assert said[3]["weight"] == [1.0, 1.0, 1.0]


# All or nothing.

BROKEN = {
    "missing": ((), ("head.mask",)),
    "unexpected": ((("nope", [1.0]),), ()),
    "mismatch": ((("head.mask", [1.0, 2.0]),), ()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_load_that_fails_changes_nothing_here(name):
    add, drop = BROKEN[name]
    left = {}
    for side in SIDES:
        model = construct(side, net)
        before = contents(side, model)
        sd = filled(side, [(key, side.array(value)) for key, value in add], drop)
        with pytest.raises(RuntimeError):
            side.load(model, sd)
        left[side.name] = contents(side, model) == before
    assert left == {"torch": False, "purestate": True}


# Ties and shared modules.


@pytest.mark.parametrize("first", ["tied", "head.weight"])
def test_the_last_name_of_a_tie_wins_whatever_the_order_of_the_file(first):
    def sd(side):
        values = filled(side)
        values["tied"], values["head.weight"] = side.array([[2.0, 2.0]]), side.array([[3.0, 3.0]])
        return {first: values.pop(first), **values}

    said = agree(sd)
    assert said[3]["tied"] == said[3]["head.weight"] == [[3.0, 3.0]]


def test_the_last_path_of_a_shared_module_wins():
    said = agree(lambda side: filled(side, [("shared.weight", side.array([[4.0, 4.0]]))]))
    assert said[3]["block.weight"] == said[3]["shared.weight"] == [[4.0, 4.0]]


def test_one_name_of_a_tie_is_enough_when_not_strict():
    def sd(side):
        return {"tied": side.array([[5.0, 5.0]]), "block.mask": side.array([8.0])}

    said = agree(sd, strict=False)
    assert said[3]["head.weight"] == [[5.0, 5.0]]
    assert said[3]["shared.mask"] == [8.0]
    assert "head.weight" in said[0]


def test_a_tie_of_two_buffers():
    def build(side, m):
        m.a = side.nn.Buffer(side.array([1.0]))
        m.b = m.a

    said = agree(lambda side: {"a": side.array([2.0]), "b": side.array([3.0])}, build=build)
    assert said[3] == {"a": [3.0], "b": [3.0]}


# dtypes.


def test_a_plain_load_casts_to_the_dtype_of_the_model():
    def build(side, m):
        m.weight = side.nn.Parameter(side.array([1.0]))
        m.register_buffer("count", side.array([1], "int32"))

    def sd(side):
        return {"weight": side.array([7], "int32"), "count": side.array([2.75])}

    said = agree(sd, build=build)
    assert said[3] == {"weight": [7.0], "count": [2]}
    model, _ = OURS.load(construct(OURS, build), sd(OURS))
    assert (model.weight.dtype, model.count.dtype) == (jnp.float32, jnp.int32)


def test_integers_that_do_not_fit_64():
    """They wrap in torch, and here as JAX arrays; numpy arrays, which files give, are refused."""

    def build(side, m):
        m.register_buffer("small", side.array([1], "int8"))

    said = agree(lambda side: {"small": side.array([300], "int32")}, build=build)
    assert said[3] == {"small": [44]}
    kind, text = loaded(OURS, lambda side: {"small": np.array([300])}, build=build)
    assert kind == "RuntimeError"
    assert (
        'While copying the parameter named "small", whose dimensions in the model are torch.Size([1]) '
        "and whose dimensions in the checkpoint are torch.Size([1]), an exception occurred : ("
    ) in text


def test_torchs_load_by_swapping_gives_the_same_73():
    def build(side, m):
        m.weight = side.nn.Parameter(side.array([1.0]))
        m.register_buffer("count", side.array([1], "int32"))

    def sd(side):
        return {"weight": side.array([7], "int32"), "count": side.array([2.75])}

    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        theirs = loaded(TORCH, sd, build=build)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert loaded(OURS, sd, build=build) == theirs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_assign_keeps_the_dtype_of_the_file(dtype):
    def sd(side):
        return filled(side, [("weight", side.array([1.0, 2.0, 3.0], dtype))])

    for assign, expected in ((False, "float32"), (True, dtype)):
        for side in SIDES:
            model, _ = side.load(construct(side, net), sd(side), assign=assign)
            assert str(model.weight.dtype).removeprefix("torch.") == expected, side.name
    agree(sd, assign=True)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", DAMAGE)
def test_assign_reports_as_copying_does(name, strict):
    add, drop = DAMAGE[name]

    def sd(side):
        return filled(side, [(key, side.array([1.0])) for key in add], drop)

    theirs, ours = (loaded(side, sd, strict=strict, assign=True) for side in SIDES)
    assert ours[:3] == theirs[:3]


def test_assign_keeps_a_tie_here_and_breaks_it_in_torch():
    sides = {}
    for side in SIDES:
        sd = filled(side)
        sd["tied"], sd["head.weight"] = side.array([[2.0, 2.0]]), side.array([[3.0, 3.0]])
        model, _ = side.load(construct(side, net), sd, assign=True)
        sides[side.name] = (
            plain(side, model.tied),
            plain(side, model.head.weight),
            len(list(model.parameters())),
        )
    assert sides["torch"] == ([[2.0, 2.0]], [[3.0, 3.0]], 4)
    assert sides["purestate"] == ([[3.0, 3.0]], [[3.0, 3.0]], 3)


def test_assign_leaves_the_callers_metadata_here_and_writes_to_it_in_torch():
    after = {}
    for side in SIDES:
        sd = side.state_dict(construct(side, net))
        before = copy.deepcopy(side.metadata(sd))
        side.load(construct(side, net), sd, assign=True)
        after[side.name] = side.metadata(sd) == before
    assert after == {"torch": False, "purestate": True}


def test_assign_keeps_what_trains():
    def build(side, m):
        m.fixed = side.nn.Parameter(side.array([1.0]), requires_grad=False)
        m.free = side.nn.Parameter(side.array([1.0]))

    def sd(side):
        return {"fixed": side.array([2.0]), "free": side.array([3.0])}

    theirs, _ = TORCH.load(construct(TORCH, build), sd(TORCH), assign=True)
    ours, _ = OURS.load(construct(OURS, build), sd(OURS), assign=True)
    assert [name for name, p in theirs.named_parameters() if p.requires_grad] == ["free"]
    assert list(ps.split(ours)[1]) == ["free"]


def test_integers_assigned_to_a_parameter_that_trains():
    def build(side, m):
        m.weight = side.nn.Parameter(side.array([1.0]))

    theirs, ours = (
        loaded(side, lambda side: {"weight": side.array([2], "int32")}, build=build, assign=True)
        for side in SIDES
    )
    assert theirs[0] == "RuntimeError"
    assert "Only Tensors of floating point and complex dtype can require gradients" in theirs[1]
    assert ours == theirs


# Arrays without values.


def test_a_model_without_values_takes_those_of_the_file():
    model = ps.abstract(construct(OURS, net))
    filled_model, report = bridge.load_state_dict(model, filled(OURS), strict=True)
    assert report == ([], [])
    assert contents(OURS, filled_model)["weight"] == [1.0, 1.0, 1.0]


def test_a_model_without_values_is_filled_here_and_left_alone_by_torch_69():
    theirs = construct(TORCH, net).to("meta")
    with pytest.warns(UserWarning, match="is a no-op"):
        theirs.load_state_dict(filled(TORCH))
    assert theirs.weight.is_meta
    ours, _ = bridge.load_state_dict(ps.abstract(construct(OURS, net)), filled(OURS))
    assigned = construct(TORCH, net).to("meta")
    assigned.load_state_dict(filled(TORCH), assign=True)
    assert ours.weight.tolist() == assigned.weight.tolist() == [1.0, 1.0, 1.0]


def test_a_file_without_values_into_a_model_with_some():
    def theirs():
        sd = {**filled(TORCH), "weight": torch.ones(3, device="meta")}
        TORCH.load(construct(TORCH, net), sd)

    def ours():
        sd = {**filled(OURS), "weight": jax.ShapeDtypeStruct((3,), jnp.float32)}
        OURS.load(construct(OURS, net), sd)

    expected, actual = outcome(theirs), outcome(ours)
    assert expected is not None
    assert actual is not None
    assert actual[0] == expected[0] == "RuntimeError"
    assert "Cannot copy out of meta tensor; no data!" in expected[1]
    assert actual[1].split("no data!")[0] == expected[1].split("no data!")[0]


# Versions.


def norms(side, m):
    m.first = side.nn.BatchNorm1d(2)
    m.inner = construct(side, lambda side, m: setattr(m, "norm", side.nn.BatchNorm1d(2)))
    m.untracked = side.nn.BatchNorm1d(2, track_running_stats=False)
    m.act = side.nn.ReLU()


def bare_norms(side, drop=()):
    """The entries of a model of BatchNorms that has seen seven batches."""
    values = {}
    for path in ("first.", "inner.norm.", "untracked."):
        values[f"{path}weight"] = side.array([1.0, 2.0])
        values[f"{path}bias"] = side.array([3.0, 4.0])
        if path != "untracked.":
            values[f"{path}running_mean"] = side.array([5.0, 6.0])
            values[f"{path}running_var"] = side.array([7.0, 8.0])
            values[f"{path}num_batches_tracked"] = side.array(9, "int32")
    return {name: value for name, value in values.items() if not name.endswith(tuple(drop))}


def started(side):
    """A model of BatchNorms with every value set: counters at four."""
    model = construct(side, norms)
    values = bare_norms(side)
    values |= {n: side.array(4, "int32") for n in values if n.endswith("num_batches_tracked")}
    return side.load(model, values)[0]


def test_versions_of_batch_norm():
    expected, actual = (side.metadata(side.state_dict(started(side))) for side in SIDES)
    assert actual == expected
    assert actual["inner.norm"] == {"version": 2}
    assert actual["inner"] == {"version": 1}


VERSIONS = {
    "none": None,
    "empty": {},
    "two": {"first": {"version": 2}, "inner.norm": {"version": 2}},
    "one": {"first": {"version": 1}, "inner.norm": {"version": 1}},
    "three": {"first": {"version": 3}, "inner.norm": {"version": 3}},
    "mixed": {"": {"version": 1}, "first": {"version": 2}, "inner": {"version": 2}},
    "nested_only": {"inner.norm": {"version": 2}},
    "null": {"first": {"version": None}, "inner.norm": {}},
    "stale_prefix": {"module.first": {"version": 2}, "norm": {"version": 2}},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("drop", [(), ("num_batches_tracked",), ("running_mean",)])
@pytest.mark.parametrize("name", VERSIONS)
def test_a_batch_norm_without_a_counter(name, drop, assign, strict):
    versions = VERSIONS[name]

    def attempt(side):
        values = bare_norms(side, drop)
        sd = values if versions is None else side.versioned(values, versions)
        try:
            model, report = side.load(started(side), sd, strict=strict, assign=assign)
        except RuntimeError as error:
            return str(error)
        return list(report.missing_keys), list(report.unexpected_keys), contents(side, model)

    assert attempt(OURS) == attempt(TORCH)


@pytest.mark.parametrize(("versions", "hidden"), [(None, True), ({"norm": {"version": 2}}, False)])
def test_an_old_file_keeps_the_counter_of_now_and_a_new_one_lacks_it(versions, hidden):
    def build(side, m):
        m.norm = side.nn.BatchNorm1d(1)

    for side in SIDES:
        full = {
            "norm.weight": side.array([1.0]),
            "norm.bias": side.array([1.0]),
            "norm.running_mean": side.array([1.0]),
            "norm.running_var": side.array([1.0]),
            "norm.num_batches_tracked": side.array(4, "int32"),
        }
        model, _ = side.load(construct(side, build), full)
        del full["norm.num_batches_tracked"]
        sd = full if versions is None else side.versioned(full, versions)
        model, report = side.load(model, sd, strict=False)
        assert report.missing_keys == ([] if hidden else ["norm.num_batches_tracked"]), side.name
        assert plain(side, model.norm.num_batches_tracked) == 4


def test_the_counter_is_written_as_int64():
    for side in SIDES:
        sd = side.state_dict(started(side))
        assert str(sd["first.num_batches_tracked"].dtype).removeprefix("torch.") == "int64"


def test_an_old_counter_of_shape_one():
    def attempt(side):
        values = bare_norms(side)
        values["first.num_batches_tracked"] = side.array([3], "int32")
        model, report = side.load(started(side), values)
        return list(report.missing_keys), contents(side, model)

    assert attempt(OURS) == attempt(TORCH)


def scales(side, m):
    """A class of version 2 that reads the files of version 1: torch's way of it, and the way here.

    Version 1 wrote ``gain`` for ``weight``, had no ``seen`` and kept an ``epoch`` nobody needs.
    """

    class Scale(side.nn.Module):
        _version = 2

        def __init__(self):
            super().__init__()
            self.weight = side.nn.Parameter(side.array([1.0]))
            self.register_buffer("seen", side.array([7.0]))

        def upgrade_state_dict(self, state, version):
            if version is not None and version >= 2:
                return state
            state = dict(state)
            if "gain" in state:
                state["weight"] = state.pop("gain")
            state.setdefault("seen", self.seen)
            state.pop("epoch", None)
            return state

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            state = {
                name.removeprefix(prefix): value
                for name, value in list(state_dict.items())
                if "." not in name.removeprefix(prefix)
            }
            upgraded = self.upgrade_state_dict(state, local_metadata.get("version"))
            for name in state.keys() - upgraded.keys():
                del state_dict[prefix + name]
            for name, value in upgraded.items():
                state_dict[prefix + name] = value
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    m.first = Scale()
    m.inner = construct(side, lambda side, m: setattr(m, "deep", Scale()))
    m.again = m.first


OLD = {"gain": [2.0], "epoch": [1.0]}
NEW = {"weight": [3.0], "seen": [4.0]}

UPGRADES = {
    "old": OLD,
    "new": NEW,
    "both": OLD | NEW,
    "renamed_only": {"gain": [2.0]},
    "nothing": {},
    "unknown": OLD | {"other": [1.0]},
    "unknown_below": OLD | {"gain.x": [1.0]},
    "another_shape": {"gain": [2.0, 2.0], "seen": [1.0, 1.0]},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("version", [None, 1, 2, 3])
@pytest.mark.parametrize("name", UPGRADES)
def test_a_class_that_upgrades_what_older_versions_wrote(name, version, strict):
    def sd(side):
        values = {
            f"{path}.{key}": side.array(value)
            for path in ("first", "inner.deep", "again")
            for key, value in UPGRADES[name].items()
        }
        if version is None:
            return values
        paths = ("", "first", "inner", "inner.deep", "again")
        return side.versioned(values, {path: {"version": version} for path in paths})

    agree(sd, build=scales, strict=strict)


def test_an_upgrade_needs_no_metadata_for_an_old_file_and_none_is_lost_by_a_new_one():
    for side in SIDES:
        model = construct(side, scales)
        sd = side.state_dict(model)
        assert side.metadata(sd)["inner.deep"] == {"version": 2}
        _, report = side.load(model, sd)
        assert report == ([], [])
        old = {"first.gain": side.array([5.0]), "again.gain": side.array([6.0])}
        model, report = side.load(model, {**old, "inner.deep.gain": side.array([8.0])})
        assert report == ([], [])
        assert plain(side, model.first.weight) == [6.0]
        assert plain(side, model.inner.deep.seen) == [7.0]


# A prefix taken off.

PREFIXED = ["module.a", "b", "module.c.module.d", "modulex.e", "module."]


def test_a_prefix_taken_off_names_and_versions():
    versions = {"": {"version": 1}, "module": {"version": 1}, "module.c": {"version": 2}}
    theirs = TORCH.versioned({name: TORCH.array([1.0]) for name in PREFIXED[:4]}, versions)
    consume_prefix_in_state_dict_if_present(theirs, "module.")
    ours = OURS.versioned({name: OURS.array([1.0]) for name in PREFIXED[:4]}, versions)
    stripped, _ = bridge.strip_prefix(ours, "module.")
    assert set(stripped) == set(theirs)
    # Torch moves what it renames to the end; here the order of the file stays.
    assert list(stripped) == ["a", "b", "c.module.d", "modulex.e"]
    assert list(theirs) == ["b", "modulex.e", "a", "c.module.d"]
    assert list(ours) == PREFIXED[:4]
    assert OURS.metadata(ours) == versions
    assert OURS.metadata(stripped) == TORCH.metadata(theirs)


def test_a_wrapped_models_file_into_the_model_itself():
    wrapped = {}
    for side in SIDES:
        inner = started(side)
        outer = construct(side, lambda side, m: setattr(m, "module", inner))  # noqa: B023
        wrapped[side.name] = side.state_dict(outer)
    consume_prefix_in_state_dict_if_present(wrapped["torch"], "module.")
    stripped, _ = bridge.strip_prefix(wrapped["purestate"], "module.")
    assert OURS.metadata(stripped) == TORCH.metadata(wrapped["torch"])
    _, report = bridge.load_state_dict(started(OURS), stripped)
    assert str(report) == "<All keys matched successfully>"


# A round trip through the other library.


def test_a_file_of_each_side_loads_into_the_other():
    theirs, ours = construct(TORCH, net), construct(OURS, net)
    carried = {name: torch.tensor(np.asarray(v)) for name, v in bridge.state_dict(ours).items()}
    theirs.load_state_dict(carried)
    back, report = bridge.load_state_dict(
        ours, {name: TORCH.numpy(value) for name, value in theirs.state_dict().items()}
    )
    assert str(report) == "<All keys matched successfully>"
    assert contents(OURS, back) == contents(OURS, ours)
