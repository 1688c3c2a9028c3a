"""Training mode and what trains: who is visited, how often, and which overrides are asked."""

import pytest

import bridge
import purestate as ps
from tests.differential.sides import OURS, SIDES, TORCH, construct, outcome


def net(side, m):
    """A module shared by two parents and under two names of one, and a tied parameter."""

    class Part(side.nn.Module):
        def __init__(self, shared=None):
            super().__init__()
            self.weight = side.nn.Parameter(side.array([1.0]))
            self.shared = shared
            self.other = shared

    m.shared = side.nn.ReLU()
    m.left = Part(m.shared)
    m.right = Part(m.shared)
    m.register_module("gone", None)
    m.alone = Part()
    m.right.weight = m.left.weight
    m.listed = [Part()]


def set_mode(side, model, mode, path=""):
    if side is OURS:
        return bridge.train(model, mode, path)
    model.get_submodule(path).train(mode)
    return model


def set_flag(side, model, flag, path=""):
    if side is OURS:
        return bridge.requires_grad(model, flag, path)
    model.get_submodule(path).requires_grad_(flag)
    return model


def modes(model):
    return [(path, module.training) for path, module in model.named_modules(remove_duplicate=False)]


def trains(side, model):
    if side is OURS:
        return list(ps.split(model)[1])
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def agree(ask):
    theirs, ours = ask(TORCH), ask(OURS)
    assert ours == theirs
    return theirs


PATHS = ["", "left", "right", "shared", "left.shared", "right.other", "alone"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", [True, False])
def test_a_mode_reaches_everything_below_and_a_shared_module_under_every_name(path, mode):
    def ask(side):
        start = set_mode(side, construct(side, net), not mode)
        return modes(set_mode(side, start, mode, path))

    agree(ask)


def test_two_parents_that_disagree_about_a_shared_module():
    def ask(side):
        model = set_mode(side, construct(side, net), False, "left")
        model = set_mode(side, model, True, "right")
        return modes(model)

    seen = dict(agree(ask))
    assert seen["left"] is False
    assert seen["left.shared"] is seen["shared"] is seen["right.other"] is True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("flag", [True, False])
def test_what_trains_reaches_a_tie_by_either_name(path, flag):
    def ask(side):
        start = set_flag(side, construct(side, net), not flag)
        return trains(side, set_flag(side, start, flag, path))

    agree(ask)


@pytest.mark.parametrize("mode", [1, 0, None, "eval", []], ids=repr)
def test_a_mode_that_is_no_bool(mode):
    finished = agree(lambda side: outcome(lambda: set_mode(side, construct(side, net), mode)))
    assert finished == ("ValueError", "training mode is expected to be boolean")
    agree(lambda side: outcome(lambda: construct(side, lambda side, m: m.train(mode))))


def test_modes_in_a_constructor():
    def ask(side):
        def build(side, m):
            net(side, m)
            assert m.eval() is m
            m.late = side.nn.ReLU()
            m.left.training = True  # Itself, not what is below it.
            assert m.alone.train() is m.alone

        return modes(construct(side, build))

    seen = dict(agree(ask))
    assert seen["late"] is True
    assert seen["left"] is True
    assert seen["left.shared"] is False


def frozen(side, m):
    """A module that stays in evaluation, shared, and one that counts how often it is asked."""

    class Frozen(side.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = side.nn.ReLU()

        def train(self, mode=True):
            super().train(mode)
            self.training = False
            return self

    class Counts(side.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.visits = 0

        def train(self, mode=True):
            self.visits += 1
            return super().train(mode)

    m.frozen = Frozen()
    m.again = m.frozen
    m.counts = Counts(m.frozen)
    m.alias = m.counts
    m.parent = Counts(m.counts)


@pytest.mark.parametrize("mode", [True, False])
def test_an_override_of_train_is_asked_once_a_parent(mode):
    def ask(side):
        model = construct(side, frozen)
        for value in (mode, not mode, mode):
            model = set_mode(side, model, value)
        return modes(model), model.counts.visits, model.parent.visits

    seen, visits, _ = agree(ask)
    assert dict(seen)["frozen"] is False
    assert dict(seen)["frozen.inner"] is mode
    assert visits == 6  # Twice a call: its two names at the root are one visit, its parent another.


def test_a_module_in_a_list_is_not_reached():
    for side in SIDES:
        model = set_mode(side, construct(side, net), False)
        assert model.listed[0].training is True


def test_an_integer_parameter_asked_to_train():
    def build(side, m):
        m.weight = side.nn.Parameter(side.array([1], "int32"), requires_grad=False)

    def ask(side):
        return outcome(lambda: set_flag(side, construct(side, build), True))

    assert agree(ask) is not None
