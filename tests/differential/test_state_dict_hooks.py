"""Hooks, extra state and own entries of saving and loading, one script on both sides."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

import bridge
import purestate as ps
from tests.differential.hook_sides import TORCH, ours
from tests.differential.sides import OURS, TORCH as PLAIN_TORCH, normalise


BOTH = {"torch": (TORCH, PLAIN_TORCH), "purestate": (ours(lambda f: f), OURS)}


def nested(nn):
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))


def on_both(script):
    """The outcome of a script on each side: what it returns, or the error."""
    outcomes = []
    for side, plain in BOTH.values():
        try:
            outcomes.append(script(side, plain))
        except Exception as error:
            outcomes.append((type(error).__name__, normalise(str(error))))
    return outcomes


def names(sd):
    return list(sd)


def saved_in_order(side, plain):
    """50, 51: parents' pre-hooks before children's, children's post-hooks before parents'."""
    log = []
    model = side.build(nested)
    for at in ("", "1", "1.0"):
        model, _ = side.register(
            model,
            "state_dict_pre_hook",
            lambda module, prefix, keep_vars: log.append(("pre", type(module).__name__, prefix)),
            at=at,
        )
        model, _ = side.register(
            model,
            "state_dict_post_hook",
            lambda module, sd, prefix, metadata: log.append(
                ("post", type(module).__name__, prefix, list(sd), dict(metadata))
            ),
            at=at,
        )
    sd = plain.state_dict(model, prefix="net.")
    return log, names(sd), plain.metadata(sd)


def edited_by_a_post_hook(side, plain):
    """51, 53: what it changes is in the result, the metadata too."""

    def edit(module, sd, prefix, metadata):
        sd[prefix + "extra"] = sd.pop(prefix + "bias")
        metadata["made"] = "by hand"

    model = side.build(nested)
    model, _ = side.register(model, "state_dict_post_hook", edit, at="1.0")
    sd = plain.state_dict(model)
    return names(sd), plain.metadata(sd)


def post_hook_returns(side, plain):
    """51: a post-hook must return None."""
    model = side.build(nested)
    model, _ = side.register(model, "state_dict_post_hook", lambda module, sd, *rest: sd, at="1")
    return plain.state_dict(model)


def renamed_while_loading(side, plain):
    """70: a pre-hook renames in its own copy; the caller's mapping stays."""

    def rename(module, sd, prefix, metadata, strict, missing, unexpected, errors):
        assert strict
        sd[prefix + "weight"] = sd.pop(prefix + "old")

    model = side.build(nested)
    values = plain.state_dict(model)
    values["1.0.old"] = values.pop("1.0.weight")
    model, _ = side.register(model, "load_state_dict_pre_hook", rename, at="1.0")
    before = names(values)
    model, report = plain.load(model, values)
    assert names(values) == before
    return str(report).replace("_Incompatible", "Incompatible"), plain.numpy(
        dict(model.named_parameters())["1.0.weight"]
    ).tolist()


def reported_by_a_pre_hook(side, plain):
    """70: a pre-hook adds to the lists and the errors."""

    def complain(module, sd, prefix, metadata, strict, missing, unexpected, errors):
        missing.append(prefix + "wanted")
        errors.append("something else")

    model = side.build(nested)
    model, _ = side.register(model, "load_state_dict_pre_hook", complain, at="1")
    return plain.load(model, plain.state_dict(model))


def outside_of_its_prefix(side, plain):
    """56: a child's hook that adds what is not below it adds nothing."""

    def add(module, sd, *rest):
        sd["0.more"] = sd["1.0.weight"]

    model = side.build(nested)
    model, _ = side.register(model, "load_state_dict_pre_hook", add, at="1")
    _, report = plain.load(model, plain.state_dict(model))
    return list(report.missing_keys), list(report.unexpected_keys)


def cleared_by_a_post_hook(side, plain):
    """71: a post-hook that empties the lists makes a strict load pass."""

    def forgive(module, keys):
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    model = side.build(nested)
    values = plain.state_dict(model)
    del values["0.weight"]
    values["more"] = values["0.bias"]
    model, _ = side.register(model, "load_state_dict_post_hook", forgive)
    _, report = plain.load(model, values)
    return list(report.missing_keys), list(report.unexpected_keys)


def loaded_in_order(side, plain):
    """57: post-hooks run when everything below is loaded."""
    log = []
    model = side.build(nested)
    for at in ("1.0", "", "1"):
        model, _ = side.register(
            model,
            "load_state_dict_post_hook",
            lambda module, keys: log.append((type(module).__name__, list(keys.missing_keys))),
            at=at,
        )
        model, _ = side.register(
            model,
            "load_state_dict_pre_hook",
            lambda module, sd, prefix, metadata, *rest: log.append((prefix, list(sd), dict(metadata))),
            at=at,
        )
    values = plain.state_dict(model)
    del values["1.1.running_var"]
    plain.load(model, values, strict=False)
    return log


def the_users_strict_is_not_seen(side, plain):
    """58: hooks are told that the load is strict, whatever it is."""
    log = []
    model = side.build(nested)
    for at in ("", "1.0"):
        model, _ = side.register(
            model,
            "load_state_dict_pre_hook",
            lambda module, sd, prefix, metadata, strict, *rest: log.append(strict),
            at=at,
        )
    plain.load(model, {}, strict=False)
    return log


def post_hook_of_a_load_returns(side, plain):
    """71: it must return None."""
    model = side.build(nested)
    model, _ = side.register(model, "load_state_dict_post_hook", lambda module, keys: keys)
    return plain.load(model, plain.state_dict(model))


def with_extra(nn, has_get=True, has_set=True):
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 1)
            self.steps = 3

        if has_get:

            def get_extra_state(self):
                return {"steps": self.steps}

        if has_set:

            def set_extra_state(self, state):
                self.steps = state["steps"]

    return nn.Sequential(Extra(), nn.Linear(1, 1))


def extra_state(side, plain):
    """49, 43: where it stands, and that it comes back."""
    model = side.build(with_extra)
    values = plain.state_dict(model)
    values["0._extra_state"] = {"steps": 9}
    model, _ = plain.load(model, values)
    return names(values), model[0].steps, plain.state_dict(model)["0._extra_state"]


def only_get(side, plain):
    """49: unexpected when loaded."""
    model = side.build(lambda nn: with_extra(nn, has_set=False))
    return plain.load(model, plain.state_dict(model))


def only_set(side, plain):
    """49: missing when loaded."""
    model = side.build(lambda nn: with_extra(nn, has_get=False))
    return plain.load(model, plain.state_dict(model))


def extra_state_of_a_class_without(side, plain):
    """49: an entry that nobody takes."""
    model = side.build(nested)
    values = plain.state_dict(model)
    values["0._extra_state"] = 1
    return plain.load(model, values)


SCRIPTS = (
    saved_in_order,
    edited_by_a_post_hook,
    post_hook_returns,
    renamed_while_loading,
    reported_by_a_pre_hook,
    outside_of_its_prefix,
    cleared_by_a_post_hook,
    the_users_strict_is_not_seen,
    loaded_in_order,
    post_hook_of_a_load_returns,
    extra_state,
    only_get,
    only_set,
    extra_state_of_a_class_without,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_the_same_outcome(script):
    theirs, ours_outcome = on_both(script)
    assert ours_outcome == theirs


def private(nn):
    """54, 127: the older registrations that classes use in their constructors."""

    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 1)
            self._register_load_state_dict_pre_hook(self._upgrade)
            self._register_load_state_dict_pre_hook(self._again, with_module=True)
            self._register_state_dict_hook(_marked)

        def _upgrade(self, sd, prefix, metadata, strict, missing, unexpected, errors):
            sd[prefix + "inner.weight"] = sd.pop(prefix + "w")

        def _again(self, module, sd, prefix, *rest):
            sd.pop(prefix + "junk")

    return Old()


def _marked(module, sd, prefix, metadata):
    return {"all": type(sd).__name__ in ("OrderedDict", "StateDict"), **sd}


def test_the_older_registrations_52_127():
    def script(side, plain):
        model = side.build(private)
        values = plain.state_dict(model)
        assert values.pop("all")
        listed = names(values)
        values["w"] = values.pop("inner.weight")
        values["junk"] = values["w"]
        model, _ = plain.load(model, values)
        return listed, plain.numpy(model.inner.weight).tolist()

    theirs, ours_outcome = on_both(script)
    assert ours_outcome == theirs


def test_what_an_older_hook_of_a_child_returns_is_ignored_52():
    def make(nn):
        class Child(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(1, 1)
                self._register_state_dict_hook(lambda m, sd, prefix, metadata: {"lost": 1})

        class Parent(nn.Module):
            def __init__(self):
                super().__init__()
                self.child = Child()
                self.last = nn.Linear(1, 1)

        return Parent()

    def script(side, plain):
        model = side.build(make)
        return names(plain.state_dict(model)), names(plain.state_dict(model.child))

    theirs, ours_outcome = on_both(script)
    assert ours_outcome == theirs
    assert theirs[1] == ["lost"]


def test_the_flag_of_a_post_hook_is_of_its_registration_51():
    """In torch it is set on the function, and follows it; a method has no place for it."""

    def marked(module, sd, prefix, metadata):
        return {"marked": 1}

    def make(nn, how):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                if how == "method":
                    self.register_state_dict_post_hook(self._note)
                elif how == "public":
                    self.register_state_dict_post_hook(marked)
                else:
                    self._register_state_dict_hook(marked)

            def _note(self, module, sd, prefix, metadata):
                sd["noted"] = 1

        return Net()

    def said(side, plain, how):
        try:
            return names(plain.state_dict(make(side.nn, how)))
        except Exception as error:
            return type(error).__name__

    kinds = ("private", "public", "private", "method")
    theirs, mine = ([said(*both, how) for how in kinds] for both in BOTH.values())
    assert theirs == [["marked"], "RuntimeError", "RuntimeError", "AttributeError"]
    assert mine == [["marked"], "RuntimeError", ["marked"], ["noted"]]


def test_extra_state_of_the_base_class_49():
    for base in (torch.nn.Module, ps.Module):
        for call in (lambda m: m.get_extra_state(), lambda m: m.set_extra_state(1)):
            with pytest.raises(RuntimeError, match=r"Reached a code path in Module\..*never be called"):
                call(base())


def test_own_entries_are_those_of_torchs_override_54():
    def make(nn):
        class Transposed(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 3)
                self.weight = nn.Parameter(nn.Linear(3, 2).weight)

            def own_state_dict(self, state):
                return {"kernel": state["weight"].T}

            def upgrade_state_dict(self, state, version):
                return {"weight": state["kernel"].T}

            def _save_to_state_dict(self, destination, prefix, keep_vars):
                destination[prefix + "kernel"] = self.weight.detach().T

            def _load_from_state_dict(self, state_dict, prefix, *rest):
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel").T
                super()._load_from_state_dict(state_dict, prefix, *rest)

        return nn.Sequential(Transposed(), nn.Linear(1, 1))

    def script(side, plain):
        model = side.build(make)
        sd = plain.state_dict(model)
        model, report = plain.load(model, {name: value * 2 for name, value in sd.items()})
        return names(sd), list(report), plain.numpy(model[0].weight).tolist()

    theirs, ours_outcome = on_both(script)
    assert ours_outcome == theirs
    assert theirs[0][:2] == ["0.kernel", "0.inner.weight"]


def test_own_entries_of_a_class():
    """54: the pair of pure functions that stands for _save_to_state_dict and _load_from_state_dict."""
    from purestate import nn

    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 3)
            self.weight = nn.Parameter(np.arange(6.0, dtype=np.float32).reshape(2, 3))

        def own_state_dict(self, state):
            return {"kernel": state["weight"].T}

        def upgrade_state_dict(self, state, version):
            return {"weight": state["kernel"].T}

    model = ps.init(Transposed(), 0)
    sd = bridge.state_dict(model)
    assert list(sd) == ["kernel", "inner.weight", "inner.bias"]
    loaded, report = bridge.load_state_dict(Transposed(), sd)
    assert not any(report)
    np.testing.assert_array_equal(loaded.weight, model.weight)


def test_a_prefix_is_consumed_as_torch_does_74():
    model = side_model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    wrapped = torch.nn.Sequential()
    wrapped.add_module("module", side_model)
    theirs: Any = wrapped.state_dict()
    theirs["other"] = torch.zeros(1)
    theirs.move_to_end("other", last=False)
    metadata = {path: dict(entry) for path, entry in theirs._metadata.items()}
    mine = bridge.StateDict({k: v.numpy().copy() for k, v in theirs.items()}, metadata=metadata)
    consume_prefix_in_state_dict_if_present(theirs, "module.")
    result = bridge.consume_prefix_in_state_dict_if_present(mine, "module.")
    assert list(result) == list(theirs)
    assert result.metadata == {path: dict(entry) for path, entry in theirs._metadata.items()}
    assert list(result.metadata) == list(theirs._metadata)
    assert "module.0.weight" in mine
    assert model is side_model
