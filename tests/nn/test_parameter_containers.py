"""ParameterList and ParameterDict: torch's rules while built, then values, then in a call."""

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error


def ones(nn, *shape):
    return torch.ones(shape) if nn is torch.nn else jnp.ones(shape)


def listed(nn):
    return nn.ParameterList([ones(nn, 2), nn.Parameter(ones(nn, 3, 4)), 5, ones(nn)])


def keyed(nn):
    return nn.ParameterDict({"z": ones(nn, 2), "a": nn.Parameter(ones(nn, 3)), "n": None})


def changed(build, change):
    def run(nn):
        container = build(nn)
        change(nn, container)
        return container

    return run


BUILDS = {
    "list": listed,
    "list-one": lambda nn: nn.ParameterList([ones(nn, 2)]),
    "list-empty": lambda nn: nn.ParameterList(),
    "list-buffer": lambda nn: nn.ParameterList([nn.Buffer(ones(nn, 2))]),
    "list-of-list": lambda nn: nn.ParameterList(listed(nn)),
    "list-append": changed(listed, lambda nn, c: c.append(ones(nn, 7)).append("x")),
    "list-extend": changed(listed, lambda nn, c: c.extend([ones(nn, 7)])),
    "list-iadd": changed(listed, lambda nn, c: c.__iadd__([ones(nn, 7)])),
    "list-set": changed(listed, lambda nn, c: c.__setitem__(1, ones(nn, 7))),
    "list-set-negative": changed(listed, lambda nn, c: c.__setitem__(-4, nn.Parameter(ones(nn, 7)))),
    "list-slice": lambda nn: listed(nn)[1:3],
    "list-extra": changed(listed, lambda nn, c: c.register_parameter("w", nn.Parameter(ones(nn, 9)))),
    "dict": keyed,
    "dict-one": lambda nn: nn.ParameterDict({"z": ones(nn, 2, 2)}),
    "dict-empty": lambda nn: nn.ParameterDict(),
    "dict-ordered": lambda nn: nn.ParameterDict(OrderedDict(z=ones(nn, 2), a=ones(nn, 3))),
    "dict-pairs": lambda nn: nn.ParameterDict([("z", ones(nn, 2)), ["a", ones(nn, 3)]]),
    "dict-of-dict": lambda nn: nn.ParameterDict(nn.ParameterDict([("z", ones(nn)), ("a", ones(nn))])),
    "dict-set": changed(keyed, lambda nn, c: c.__setitem__("b", ones(nn, 7))),
    "dict-del": changed(keyed, lambda nn, c: c.__delitem__("z")),
    "dict-pop": changed(keyed, lambda nn, c: c.pop("a")),
    "dict-popitem": changed(keyed, lambda nn, c: c.popitem()),
    "dict-clear": changed(keyed, lambda nn, c: c.clear()),
    "dict-setdefault": changed(keyed, lambda nn, c: c.setdefault("q", ones(nn, 7))),
    "dict-setdefault-present": changed(keyed, lambda nn, c: c.setdefault("z", ones(nn, 7))),
    "dict-copy": lambda nn: keyed(nn).copy(),
    "dict-or": lambda nn: keyed(nn) | nn.ParameterDict({"b": ones(nn, 7)}),
    "dict-ior": changed(keyed, lambda nn, c: c.__ior__({"b": ones(nn, 7)})),
    "dict-fromkeys": lambda nn: nn.ParameterDict().fromkeys(["y", "x"], 3),
    "dict-update": changed(keyed, lambda nn, c: c.update({"c": ones(nn, 7), "b": ones(nn, 8)})),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_built_as_torch(build):
    check_same(build)


def test_other_dtypes_print_as_torch():
    values: Any = {
        torch.nn: (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int32)),
        nn: (jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.int32)),
    }

    def build(nn):
        half, whole = values[nn]
        entries = {"a": nn.Parameter(half), "b": nn.Parameter(whole, requires_grad=False)}
        return nn.ModuleList([nn.ParameterList(entries.values()), nn.ParameterDict(entries)])

    check_same(build)


ERRORS = {
    "list-int": lambda nn: nn.ParameterList(3),
    "list-index": lambda nn: listed(nn)[4],
    "list-set": lambda nn: listed(nn).__setitem__(4, ones(nn)),
    "list-call": lambda nn: listed(nn)(1),
    "dict-int": lambda nn: nn.ParameterDict(3),
    "dict-element": lambda nn: nn.ParameterDict([3]),
    "dict-length": lambda nn: nn.ParameterDict([("a", ones(nn), 3)]),
    "dict-key": lambda nn: nn.ParameterDict([(3, ones(nn))]),
    "dict-method": lambda nn: nn.ParameterDict({"keys": ones(nn)}),
    "dict-dotted": lambda nn: nn.ParameterDict({"a.b": ones(nn)}),
    "dict-missing": lambda nn: nn.ParameterDict()["a"],
    "dict-del": lambda nn: nn.ParameterDict().__delitem__("a"),
    "dict-popitem": lambda nn: nn.ParameterDict().popitem(),
    "dict-call": lambda nn: keyed(nn)(1),
}


@pytest.mark.parametrize("build", ERRORS.values(), ids=ERRORS)
def test_refused_as_torch(build):
    check_same_error(build)


def test_an_array_is_not_unpacked():
    with pytest.raises(TypeError, match="should be called with an iterable"):
        nn.ParameterList(jnp.ones(3))


def test_what_is_no_array_may_hide_a_method():
    """Row 138: it is an attribute, on both sides."""
    assert nn.ParameterDict({"keys": 3}).keys == torch.nn.ParameterDict({"keys": 3}).keys == 3


def test_a_copy_shares_its_parameters():
    """Row 138."""

    def build(library):
        class Host(library.Module):
            def __init__(self):
                super().__init__()
                self.part = keyed(library)
                self.twin = self.part.copy()

        return [name for name, _ in Host().named_parameters()]

    assert build(nn) == build(torch.nn) == ["part.a", "part.z"]


def test_lengths():
    """Row 137: a parameter that is registered by name is not counted."""
    build = BUILDS["list-extra"]
    for library in (nn, torch.nn):
        seen = []

        class Host(library.Module):
            def __init__(self, library=library, seen=seen):
                super().__init__()
                self.part = build(library)
                seen.append(len(self.part))

        assert [len(Host().part), *seen] == [4, 4]


def test_failed_insert_leaves_no_key():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = keyed(nn)
            with pytest.raises(KeyError):
                self.part["a.b"] = jnp.ones(1)

    assert list(Host().part) == ["a", "n", "z"]


def test_reading_values():
    numbers, names = listed(nn), keyed(nn)
    assert len(numbers) == 4
    assert numbers[2] == list(numbers)[2] == 5
    assert numbers[-1].shape == ()
    assert list(names) == list(names.keys()) == ["a", "n", "z"]
    assert list(reversed(names)) == ["z", "n", "a"]
    assert "n" in names
    assert names.get("q", 3) == 3
    assert names.get("a") is names["a"] is dict(names.items())["a"] is next(iter(names.values()))


def test_values_make_new_values():
    frozen = nn.ParameterList([nn.Parameter(jnp.ones(2), requires_grad=False), jnp.ones(3)])
    assert list(ps.split(frozen[:1])[2]) == ["0"]
    assert list(ps.split(nn.ParameterList(frozen))[2]) == ["0"]
    names = keyed(nn)
    merged = names | nn.ParameterDict({"b": nn.Parameter(jnp.ones(1), requires_grad=False)})
    assert list(merged) == ["a", "n", "z", "b"]
    assert list(ps.split(merged)[2]) == ["b"]
    assert list(names.copy()) == list(names)
    assert list({"q": 1} | names) == ["q", "a", "n", "z"]
    assert isinstance({"q": 1} | names, dict)


def test_values_refuse_changes():
    numbers, names = listed(nn), keyed(nn)
    for change in (
        lambda: numbers.append(1),
        lambda: numbers.extend([1]),
        lambda: numbers.__setitem__(0, 1),
        lambda: numbers.__iadd__([1]),
        lambda: names.__setitem__("q", 1),
        lambda: names.__delitem__("a"),
        lambda: names.update({}),
        lambda: names.__ior__({}),
        lambda: names.setdefault("q"),
        lambda: names.pop("a"),
        lambda: names.popitem(),
        lambda: names.clear(),
    ):
        with pytest.raises(ps.FrozenModelError, match="write: model = "):
            change()


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers = nn.ParameterList([jnp.full(2, float(i)) for i in range(3)])
        self.names = nn.ParameterDict({"scale": jnp.full(2, 3.0), "shift": jnp.ones(2)})

    def forward(self, x):
        for weight in self.numbers[1:]:
            x = x + weight
        table = self.names.copy() | {"extra": 1}
        assert list(self.names | self.names) == ["scale", "shift"]
        return x * self.names["scale"] + table["shift"] + len(self.numbers) * table["extra"]


def test_in_a_call():
    model, x = Weights(), jnp.arange(2.0)
    for run in (lambda m, x: m(x), jax.jit(lambda m, x: m(x))):
        assert run(model, x).tolist() == [13.0, 16.0]
    grads = jax.grad(lambda m: m(x).sum())(model)
    values = {name: value.tolist() for name, value in bridge.state_dict(grads).items()}
    assert values == {
        "numbers.0": [0.0, 0.0],
        "numbers.1": [3.0, 3.0],
        "numbers.2": [3.0, 3.0],
        "names.scale": [3.0, 4.0],
        "names.shift": [1.0, 1.0],
    }
