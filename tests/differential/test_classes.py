"""What Python lets a class do: the same class on torch and here gives the same model.

Classes that are false, that delegate or watch attributes, that are abstract and generic, that assign
before ``super().__init__()``, and names that only a registry can hold.
"""

import abc
import copy
from typing import Any, Generic, TypeVar

import pytest

import bridge
from tests.differential.sides import OURS, SIDES, construct, outcome, plain, registries


T = TypeVar("T")


def look(side, model):
    """Everything both sides can say about a model, in short."""
    sd = side.state_dict(model)
    return {
        "names": [name for name, _ in model.named_parameters(remove_duplicate=False)],
        "modules": [name for name, _ in model.named_modules(remove_duplicate=False)],
        "modes": [module.training for module in model.modules()],
        "state_dict": plain(side, sd),
        "versions": side.metadata(sd),
        "repr": repr(model),
        "own": [registries(side, module) for module in model.modules()],
    }


def agree(build, then=lambda side, model: None):
    """Both sides build the same model, and ``then`` answers the same of it; the answer."""
    theirs, ours = (
        (look(side, model), then(side, model)) for side in SIDES for model in [construct(side, build)]
    )
    assert ours == theirs
    return theirs[1]


def loaded_again(side, model):
    """The model after a load of its own state_dict, and after a deep copy."""
    model, report = side.load(model, dict(side.state_dict(model)))
    return tuple(report), look(side, model), look(side, copy.deepcopy(model))


def test_a_module_that_is_false():
    def build(side, m):
        class Empty(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = side.nn.Parameter(side.array([1.0]))
                self.inner = side.nn.ReLU()

            def __len__(self):
                return 0

        m.first = Empty()
        m.again = m.first
        m.copied = copy.deepcopy(m.first)
        m.register_module("added", Empty())
        m.tied = m.first.weight
        m.set_submodule("first.inner", Empty())

    def then(side, model):
        if side is OURS:
            model = bridge.requires_grad(bridge.eval(model, "first"), False, "copied")
            model = bridge.register_module(model, "last", model.first)
            model = bridge.set_submodule(model, "added", model.copied)
            model = bridge.delete(model, "copied")
        else:
            model.first.eval()
            model.copied.requires_grad_(False)
            model.register_module("last", model.first)
            model.set_submodule("added", model.copied)
            del model.copied
        return bool(model.first), look(side, model), loaded_again(side, model)

    assert agree(build, then)[0] is False


def test_a_wrapper_that_delegates_attributes():
    def build(side, m):
        class Inner(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = side.nn.Parameter(side.array([1.0]))
                self.size = 7

        class Wrapper(side.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module
                self.own = 3

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.module, name)

        m.wrapper = Wrapper(Inner())
        m.seen = [m.wrapper.size, m.wrapper.own, outcome(lambda: m.wrapper.nothing)]

    def then(side, model):
        wrapper = copy.deepcopy(model).wrapper
        return (
            list(model.seen),
            (wrapper.size, wrapper.own, plain(side, wrapper.weight)),
            outcome(lambda: wrapper.nothing),
            loaded_again(side, model),
        )

    assert agree(build, then)[1] == (7, 3, [1.0])


def test_a_class_that_watches_its_attributes():
    def build(side, m):
        log: list[str] = []

        class Watched(side.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = side.nn.Parameter(side.array([1.0]))
                self.b = 3
                del self.b

            def __setattr__(self, name, value):
                log.append(f"set {name}")
                super().__setattr__(name, value)

            def __delattr__(self, name):
                log.append(f"del {name}")
                super().__delattr__(name)

        m.watched = Watched()
        m.log = [line for line in log if line[-1] in "ab"]

    assert agree(build, lambda side, model: list(model.log)) == ["set a", "set b", "del b"]


def test_an_abstract_generic_class_with_a_mixin():
    def build(side, m):
        class Mixin:
            tag = "mixed in"

            def hello(self):
                return self.number  # type: ignore[attr-defined]

        class Base(side.nn.Module, abc.ABC, Generic[T]):
            @abc.abstractmethod
            def forward(self, x: T) -> T: ...

        class Concrete(Base[int], Mixin):
            def __init__(self):
                super().__init__()
                self.number = 5

            def forward(self, x: int) -> int:
                return x

        abstract: Any = Base
        m.concrete = Concrete()
        m.refused = outcome(lambda: abstract())

    def then(side, model):
        return model.concrete.hello(), model.concrete.tag, model.refused

    assert agree(build, then)[2][0] == "TypeError"


def test_attributes_before_super_and_a_module_of_the_class():
    def build(side, m):
        class Part(side.nn.Module):
            default = side.nn.ReLU()

            def __init__(self, *, size):
                self.size = size
                super().__init__()
                self.double = 2 * self.size
                self.act = self.default

        m.part = Part(size=4)
        m.other = Part(size=5)

    def then(side, model):
        return (
            model.part.size,
            model.part.double,
            type(model.part.default).__name__,
            model.part.act is model.part.act,
            loaded_again(side, model),
        )

    assert agree(build, then)[:3] == (4, 8, "ReLU")


NAMES = ["a b", "ä", "1x", "class", "x-y", "a/b", "*", "[0]", "a?", "__x__", "\n"]


def odd(side, m):
    """Names that are no identifiers, some of them patterns of a selector."""
    for name in NAMES:
        m.register_parameter(name, side.nn.Parameter(side.array([1.0])))
        child = construct(side, lambda side, m: setattr(m, "w", side.nn.Parameter(side.array([2.0]))))
        m.add_module(f"m{name}", child)


def test_names_that_are_no_identifiers():
    assert agree(odd, loaded_again)[0] == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_path_selects_that_module_even_when_it_reads_as_a_pattern(name):
    def then(side, model):
        if side is OURS:
            model = bridge.eval(model, f"m{name}")
        else:
            model.get_submodule(f"m{name}").eval()
        return look(side, model)

    agree(odd, then)
