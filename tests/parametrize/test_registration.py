"""Registering, assigning, removing and transferring, next to torch.nn.utils.parametrize."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.differential.sides import OURS, TORCH
from tests.parametrize.both import agree, classes, described, linear, outcome, pair, same_state, tools
from tests.parity import assert_close


ONE = ["Symmetric", "RankOne", "Double", "Scale", "Unable"]


def conv(library):
    return library.Conv2d(2, 3, 2, bias=True)


def net(library):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.first = library.Linear(3, 3)
            self.second = library.Linear(3, 3, bias=False)

        def forward(self, x):
            return self.second(self.first(x))

    return Net()


CASES = [(kind, "weight") for kind in ONE] + [(kind, "bias") for kind in ("Double", "Scale", "Unable")]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_one_parametrization(kind, name):
    models = pair(linear)

    def register(side):
        unsafe = kind == "RankOne"
        return tools(side).register_parametrization(
            models[side.name], name, getattr(classes(side), kind)(), unsafe=unsafe
        )

    theirs, ours = register(TORCH), register(OURS)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    assert_close(getattr(ours, name), getattr(theirs, name))
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    assert_close(ours(jnp.array(x)), theirs(torch.tensor(x)))


@pytest.mark.parametrize("order", [("Scale", "Symmetric"), ("Double", "Scale"), ("RankOne", "Scale")])
def test_a_second_one_goes_on_top(order):
    models = pair(linear)

    def register(side):
        model = models[side.name]
        for kind in order:
            parametrization = getattr(classes(side), kind)()
            model = tools(side).register_parametrization(
                model, "weight", parametrization, unsafe=kind == "RankOne"
            )
        return model

    theirs, ours = register(TORCH), register(OURS)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    assert_close(ours.weight, theirs.weight)
    assert ours.parametrizations.weight.unsafe == theirs.parametrizations.weight.unsafe


def test_several_names_of_one_module():
    def ask(side, utils, model):
        for name in ("weight", "bias"):
            model = utils.register_parametrization(model, name, classes(side).Double())
        before = described(side, model)
        model = utils.remove_parametrizations(model, "weight")
        between = described(side, model)
        model = utils.remove_parametrizations(model, "bias")
        return before, between, described(side, model), utils.is_parametrized(model)

    agree(ask)


@pytest.mark.parametrize("kind", ["Cut", "Integer", "Nothing", "Text", "Texts", "Halved"])
@pytest.mark.parametrize("name", ["weight", "bias", "unknown"])
@pytest.mark.parametrize("stacked", [False, True], ids=["first", "stacked"])
def test_what_is_refused(kind, name, stacked):
    def ask(side, utils, model):
        if stacked and name != "unknown":
            model = utils.register_parametrization(model, name, classes(side).Double())
        keys = list(side.state_dict(model))
        parametrization = getattr(classes(side), kind)()
        error = outcome(lambda: utils.register_parametrization(model, name, parametrization))
        return error, keys == list(side.state_dict(model))

    error, unchanged = agree(ask)
    assert unchanged
    assert error is not None


def test_a_refused_one_leaves_the_model_as_it_was():
    ours = pair(linear)["purestate"]
    for kind in ("Cut", "Integer", "Nothing", "Text", "Texts", "Halved"):
        with pytest.raises(ValueError, match=r"right_inverse|parametrization"):
            bridge.parametrize.register_parametrization(ours, "weight", getattr(classes(OURS), kind)())

    seen: Any = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
            with pytest.raises(ValueError, match="shape"):
                bridge.parametrize.register_parametrization(self.fc, "weight", classes(OURS).Cut())
            seen.append(type(self.fc.weight))

    assert list(bridge.state_dict(Net())) == ["fc.weight", "fc.bias"]
    assert seen == [nn.Parameter]


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match="is not a Module subclass"):
        bridge.parametrize.register_parametrization(nn.Linear(2, 2), "weight", lambda x: x)


@pytest.mark.parametrize("unsafe", [False, True])
def test_unsafe(unsafe):
    def ask(side, utils, model):
        def register():
            return utils.register_parametrization(model, "weight", classes(side).Cut(), unsafe=unsafe)

        return outcome(register) if not unsafe else list(register().weight.shape)

    assert agree(ask) is not None


@pytest.mark.parametrize("kind", ONE)
def test_assigning_goes_through_the_inverse(kind):
    models = pair(linear)
    value = np.arange(9, dtype=np.float32).reshape(3, 3) + 1

    def assign(side) -> Any:
        model = tools(side).register_parametrization(
            models[side.name], "weight", getattr(classes(side), kind)(), unsafe=True
        )
        array = torch.tensor(value) if side is TORCH else jnp.array(value)
        try:
            return tools(side).set_parametrized(model, "weight", array)
        except (RuntimeError, NotImplementedError) as error:
            return type(error), str(error)

    theirs, ours = assign(TORCH), assign(OURS)
    if isinstance(theirs, tuple):
        assert ours == theirs
        return
    same_state(ours, theirs)
    assert_close(ours.weight, theirs.weight)


def test_what_cannot_be_assigned():
    def ask(side, utils, model):
        model = utils.register_parametrization(model, "weight", classes(side).Double())
        return outcome(lambda: utils.set_parametrized(model, "weight", side.array([[1.0]])))

    assert agree(ask) == ("RuntimeError", "parametrization Double does not implement right_inverse.")
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        bridge.parametrize.set_parametrized(nn.Linear(2, 2), "weight", jnp.ones((2, 2)))


def test_assigning_in_a_constructor():
    def build(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = tools(side).register_parametrization(
                    side.nn.Linear(2, 2), "weight", classes(side).Scale()
                )
                self.fc.weight = side.array([[1.0, 2.0], [3.0, 4.0]])
                self.error = outcome(
                    lambda: setattr(self.fc, "weight", side.nn.Parameter(side.array([1.0])))
                )

        return Net()

    theirs, ours = build(TORCH), build(OURS)
    assert_close(ours.fc.parametrizations.weight.original, theirs.fc.parametrizations.weight.original)
    assert ours.error == theirs.error == ("KeyError", "\"attribute 'weight' already exists\"")


def test_reading_in_a_constructor():
    def build(side):
        class Net(side.nn.Module):
            def __init__(self):
                super().__init__()
                utils, linear = tools(side), side.nn.Linear
                self.fc = utils.weight_norm(linear(3, 4))
                self.fixed = linear(2, 2)
                array = side.array([[1.0, 2.0], [3.0, 4.0]])
                self.fixed.weight = side.nn.Parameter(array, requires_grad=False)
                self.fixed = utils.register_parametrization(
                    self.fixed, "weight", classes(side).Double()
                )
                self.shape = tuple(self.fc.weight.shape)
                self.numbers = [[float(x) for x in row] for row in self.fixed.weight]
                self.listed = "weight" in dir(self.fixed), hasattr(self.fc, "weight")
                self.errors = [
                    outcome(lambda: self.fc.register_module("weight", linear(1, 1))),
                    outcome(lambda: self.fc.register_buffer("weight", side.array([1.0]))),
                    outcome(lambda: self.fc.get_parameter("weight")),
                ]

        return Net()

    theirs, ours = build(TORCH), build(OURS)
    assert ours.shape == theirs.shape == (4, 3)
    assert ours.numbers == theirs.numbers == [[2.0, 4.0], [6.0, 8.0]]
    assert ours.listed == theirs.listed
    assert list(map(list, ours.errors)) == list(map(list, theirs.errors))


def test_a_pruned_name_in_a_constructor():
    seen = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = bridge.prune.identity(nn.Linear(3, 4), "weight")
            seen.append(self.fc.weight.shape)

    assert bridge.prune.is_pruned(Net())
    assert seen == [(4, 3)]


@pytest.mark.parametrize("kind", ONE)
@pytest.mark.parametrize("leave", [True, False])
def test_removing(kind, leave):
    models = pair(linear)

    def remove(side):
        model = tools(side).register_parametrization(
            models[side.name], "weight", getattr(classes(side), kind)(), unsafe=True
        )
        try:
            return tools(side).remove_parametrizations(model, "weight", leave)
        except ValueError as error:
            return str(error)

    theirs, ours = remove(TORCH), remove(OURS)
    if isinstance(theirs, str):
        assert ours == theirs
        return
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    assert type(ours) is nn.Linear


@pytest.mark.parametrize("name", ["weight", "unknown"])
def test_removing_what_is_not_there(name):
    def ask(side, utils, model):
        return outcome(lambda: utils.remove_parametrizations(model, name))

    assert agree(ask)[0] == "ValueError"


def test_a_removed_one_is_the_definition_of_before():
    plain = bridge.delete(nn.Linear(2, 2), "weight")
    plain = bridge.register_parameter(plain, "weight", jnp.ones((2, 2)))
    model = bridge.parametrize.register_parametrization(
        nn.Linear(2, 2), "weight", classes(OURS).Double()
    )
    assert bridge.parametrize.remove_parametrizations(model, "weight")._definition is plain._definition


def test_frozen_originals_stay_parameters():
    model = bridge.parametrize.weight_norm(bridge.requires_grad(ps.init(nn.Linear(2, 2), 0), False))
    removed = bridge.parametrize.remove_parametrizations(model, "weight")
    assert [name for name, _ in removed.named_parameters()] == ["bias", "weight"]
    assert list(ps.split(removed)[1]) == []


def buffered(library, persistent=True):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            array = jnp.ones if library is nn else torch.ones
            self.register_buffer("state", array((3, 3)), persistent=persistent)

    return Net()


def test_a_buffer():
    def ask(side, utils, model):
        model = utils.register_parametrization(model, "state", classes(side).RankOne())
        before = described(side, model)
        model = utils.remove_parametrizations(model, "state")
        return before, described(side, model)

    agree(ask, buffered)


def counting(library):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            array = jnp.ones if library is nn else torch.ones
            self.register_buffer("state", array((3, 3)))

        def forward(self, x):
            self.state = self.state * 0.5 + x
            return self.state

    return Net()


@pytest.mark.parametrize("order", [("Scale",), ("RankOne",), ("Symmetric", "Scale")])
def test_a_buffer_that_forward_writes_goes_through_the_inverse(order):
    models = pair(counting)

    def register(side):
        model = models[side.name]
        for kind in order:
            model = tools(side).register_parametrization(
                model, "state", getattr(classes(side), kind)(), unsafe=True
            )
        return model

    theirs, ours = register(TORCH), register(OURS)
    call = jax.jit(ps.call)
    for x in np.linspace(1, 2, 27, dtype=np.float32).reshape(3, 3, 3):
        y, ours = call(ours, x)
        assert_close(y, theirs(torch.tensor(x)))
        same_state(ours, theirs)


def test_batch_norm_moves_parametrized_statistics():
    plain = ps.init(nn.BatchNorm1d(3), 0)
    model = plain
    for name in ("running_mean", "running_var"):
        model = bridge.parametrize.register_parametrization(model, name, classes(OURS).Scale())
    for x in np.linspace(-1, 2, 24, dtype=np.float32).reshape(2, 4, 3):
        y, model = ps.call(model, x)
        z, plain = ps.call(plain, x)
        assert_close(y, z)
    assert_close(model.running_mean, plain.running_mean)
    assert_close(model.running_var, plain.running_var)


def test_what_forward_cannot_write():
    class Writes(nn.Linear):
        def forward(self, input):
            self.weight = input
            return input

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = bridge.parametrize.register_parametrization(
                counting(nn), "state", classes(OURS).Scale()
            )

        def forward(self, x):
            return jax.checkpoint(self.part)(x)

    x = jnp.ones((3, 3))
    normed = bridge.parametrize.weight_norm(ps.init(Writes(3, 3), 0))
    with pytest.raises(
        ps.FrozenModelError, match=r"write: model = bridge[.]parametrize[.]set_parametrized"
    ):
        normed(x)
    pruned = bridge.prune.identity(ps.init(Writes(3, 3), 0), "weight")
    with pytest.raises(ps.FrozenModelError, match="computed from 'weight_orig'"):
        pruned(x)
    one_way = bridge.parametrize.register_parametrization(counting(nn), "state", classes(OURS).Double())
    with pytest.raises(RuntimeError, match=r"Double does not implement right_inverse"):
        one_way(x)
    with pytest.raises(ps.LeakedWriteError, match=r"'part[.]state' was written inside"):
        ps.call(ps.init(Inside(), 0), x)


@pytest.mark.parametrize("kind", ["Double", "RankOne"])
def test_a_buffer_that_is_not_saved_stays_so(kind):
    def register(side, library):
        model = buffered(library, persistent=False)
        return tools(side).register_parametrization(model, "state", getattr(classes(side), kind)())

    theirs, ours = register(TORCH, torch.nn), register(OURS, nn)
    assert list(theirs.state_dict()) != []
    assert list(bridge.state_dict(ours)) == []
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
    removed = bridge.parametrize.remove_parametrizations(ours, "state")
    assert list(bridge.state_dict(removed)) == []
    assert removed.state.shape == (3, 3)


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_the_module(mode):
    def ask(side, utils, model):
        model = bridge.train(model, mode) if side is OURS else model.train(mode)
        model = utils.register_parametrization(model, "weight", classes(side).Scaled())
        return [module.training for module in model.modules()]

    own, *containers, parametrization = agree(ask)
    assert own is parametrization is mode
    assert containers == [True, True]


def test_in_a_call_the_mode_counts_and_a_value_is_read_in_evaluation():
    model = bridge.parametrize.register_parametrization(
        pair(linear)["purestate"], "weight", classes(OURS).Scaled()
    )
    original = model.parametrizations.weight.original
    x = jnp.eye(3)
    assert_close(model(x) - model.bias, 3 * original.T)
    assert_close(bridge.eval(model)(x) - model.bias, 5 * original.T)
    assert_close(model.weight, 5 * original)
    assert_close(bridge.eval(model).weight, 5 * original)


def test_is_parametrized_and_the_class():
    def ask(side, utils, model):
        before = utils.is_parametrized(model), utils.is_parametrized(model, "weight")
        model = utils.register_parametrization(model, "weight", classes(side).Double())
        return (
            before,
            utils.is_parametrized(model),
            utils.is_parametrized(model, "weight"),
            utils.is_parametrized(model, "bias"),
            utils.type_before_parametrizations(model) is side.nn.Linear,
            isinstance(model, side.nn.Linear),
        )

    agree(ask)


def test_get_parameter_and_registration_of_a_parametrized_name():
    def ask(side, utils, model):
        model = utils.register_parametrization(model, "weight", classes(side).Double())
        array = side.nn.Parameter(side.array([1.0]))

        def register():
            if side is OURS:
                return bridge.register_parameter(model, "weight", array)
            return model.register_parameter("weight", array)

        return outcome(lambda: model.get_parameter("weight")), outcome(register)

    assert None not in agree(ask)


def test_a_parametrized_name_is_not_deleted():
    model = bridge.parametrize.weight_norm(nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="remove_parametrizations"):
        bridge.delete(model, "weight")


@pytest.mark.parametrize("name", [None, "weight"])
@pytest.mark.parametrize("kind", ["Scale", "RankOne"])
def test_transfer(name, kind):
    models, others = pair(linear), pair(linear, seed=1)

    def transfer(side):
        utils = tools(side)
        source = utils.register_parametrization(
            models[side.name], "weight", getattr(classes(side), kind)(), unsafe=True
        )
        if name is None:
            source = utils.register_parametrization(source, "bias", classes(side).Double())
        return utils.transfer_parametrizations_and_params(source, others[side.name], name)

    theirs, ours = transfer(TORCH), transfer(OURS)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)
    assert_close(ours.weight, theirs.weight)


def test_transfer_to_a_module_without_the_name():
    models = pair(linear)

    def transfer(side, library):
        utils = tools(side)
        source = utils.register_parametrization(models[side.name], "weight", classes(side).Double())
        return utils.transfer_parametrizations_and_params(source, library.Identity())

    theirs, ours = transfer(TORCH, torch.nn), transfer(OURS, nn)
    assert described(OURS, ours) == described(TORCH, theirs)
    same_state(ours, theirs)


def test_transfer_of_nothing():
    def ask(side, utils, model):
        same = utils.transfer_parametrizations_and_params(model, model) is model
        source = utils.register_parametrization(model, "weight", classes(side).Double())
        target = side.nn.Linear(3, 3)
        missing = outcome(lambda: utils.transfer_parametrizations_and_params(source, target, "bias"))
        return same, missing

    agree(ask)


def test_selectors():
    model = pair(net)["purestate"]
    both = bridge.parametrize.weight_norm(model, at=nn.Linear)
    assert bridge.parametrize.is_parametrized(both.first)
    assert bridge.parametrize.is_parametrized(both.second)
    assert_close(both(jnp.ones((1, 3))), model(jnp.ones((1, 3))))
    one = bridge.parametrize.remove_parametrizations(both, "weight", at="first")
    assert not bridge.parametrize.is_parametrized(one.first)
    again = bridge.parametrize.set_parametrized(one, "weight", jnp.eye(3), at="second")
    assert_close(again.second.weight, jnp.eye(3))
    shared = bridge.parametrize.register_parametrization(
        model, "weight", classes(OURS).Scale(), at=nn.Linear
    )
    assert shared.first.parametrizations.weight[0] is shared.second.parametrizations.weight[0]
    with pytest.raises(ps.SelectorError):
        bridge.parametrize.weight_norm(model, at="third")
    with pytest.raises(TypeError, match="Definition"):
        bridge.parametrize.weight_norm(model._definition, at="first")


def test_selectors_in_a_constructor():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
            same = bridge.parametrize.weight_norm(self, at=nn.Linear)
            assert same is self

    assert [name for name in bridge.state_dict(Net()) if "original0" in name] == [
        "body.0.parametrizations.weight.original0",
        "body.2.parametrizations.weight.original0",
    ]


def tied(library):
    class Net(library.Module):
        def __init__(self):
            super().__init__()
            self.first = library.Linear(3, 3)
            self.second = library.Linear(3, 3)
            self.second.weight = self.first.weight

    return Net()


@pytest.mark.parametrize("kind", ["Double", "Symmetric", "RankOne"])
@pytest.mark.parametrize("which", ["first", "second"])
def test_one_of_two_tied_weights(kind, which):
    models = pair(tied)

    def register(side):
        parametrization = getattr(classes(side), kind)()
        model = models[side.name]
        if side is OURS:
            return bridge.parametrize.register_parametrization(
                model, "weight", parametrization, unsafe=True, at=which
            )
        tools(side).register_parametrization(
            getattr(model, which), "weight", parametrization, unsafe=True
        )
        return model

    theirs, ours = register(TORCH), register(OURS)
    same_state(ours, theirs)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    other = "second" if which == "first" else "first"
    if kind != "RankOne":
        chain = getattr(ours, which).parametrizations.weight
        assert chain.original is getattr(ours, other).weight


def test_a_shared_module_is_parametrized_under_both_names():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x))

    model = bridge.parametrize.weight_norm(ps.init(Net(), 0), at="first")
    assert bridge.parametrize.is_parametrized(model.second)
    assert len(model._leaves) == 3


def test_a_parametrization_may_be_a_model_with_its_own_layers():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(3, 3, bias=False)

        def forward(self, X):
            return self.mix(X)

    drawn = ps.init(nn.Linear(3, 3), 0)
    model = bridge.parametrize.register_parametrization(drawn, "weight", Mixed())
    assert model.weight.shape == (3, 3)  # Not drawn yet.
    model = ps.init(model, 1)
    mix = model.parametrizations.weight[0].mix.weight
    assert_close(model.weight, drawn.weight @ mix.T)


def test_cached_changes_nothing():
    with bridge.parametrize.cached():
        model = bridge.parametrize.weight_norm(ps.init(nn.Linear(2, 2), 0))
        assert model(jnp.ones((1, 2))).shape == (1, 2)


def test_computed_once_a_call():
    calls = []

    class Counts(nn.Module):
        def forward(self, X):
            calls.append(X)
            return X

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(self.fc(x)) + self.fc.weight.sum()

    model = bridge.parametrize.register_parametrization(ps.init(Net(), 0), "weight", Counts(), at="fc")
    calls.clear()
    model(jnp.ones((1, 2)))
    assert len(calls) == 1


def test_an_error_of_the_strict_report_names_the_parametrized_class():
    def ask(side, utils, model):
        model = utils.weight_norm(model)
        return outcome(lambda: side.load(model, {}))

    kind, text = agree(ask)
    assert kind == "RuntimeError"
    assert "ParametrizedLinear" in text


def test_a_lazy_weight_is_refused():
    def ask(side):
        layer = side.nn.LazyLinear(3)
        return outcome(lambda: tools(side).weight_norm(layer))

    assert ask(OURS)[0] == "RuntimeError"
    assert (
        ask(OURS)[1].split(".")[0] == "Can't access the shape of an uninitialized parameter or buffer"
    )
