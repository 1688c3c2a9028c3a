"""Surgery on a finished model next to torch's mutation of its own: names, order, ties, errors."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.differential.sides import normalise
from tests.parity import to_jax


def named(nn):
    from collections import OrderedDict

    return nn.Sequential(OrderedDict(first=nn.Linear(1, 1), second=nn.Tanh(), third=nn.Linear(1, 1)))


def numbered(nn):
    return nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1))


def listed(nn):
    return nn.ModuleList([nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1)])


def keyed(nn):
    return nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Tanh()})


# A container, and one change as torch writes it and as bridge does.
CHANGES = {
    "append": (numbered, lambda m, n: m.append(n.ReLU()), lambda m, n: bridge.append(m, n.ReLU())),
    "append to a list": (
        listed,
        lambda m, n: m.append(n.ReLU()),
        lambda m, n: bridge.append(m, n.ReLU()),
    ),
    "append to named": (
        named,
        lambda m, n: m.append(n.ReLU()),
        lambda m, n: bridge.append(m, n.ReLU()),
    ),
    "extend": (
        numbered,
        lambda m, n: m.extend([n.ReLU(), n.Linear(1, 2)]),
        lambda m, n: bridge.extend(m, [n.ReLU(), n.Linear(1, 2)]),
    ),
    "insert": (
        numbered,
        lambda m, n: m.insert(1, n.Linear(1, 2)),
        lambda m, n: bridge.insert(m, 1, n.Linear(1, 2)),
    ),
    "insert from the end": (
        numbered,
        lambda m, n: m.insert(-1, n.ReLU()),
        lambda m, n: bridge.insert(m, -1, n.ReLU()),
    ),
    "insert in a list": (
        listed,
        lambda m, n: m.insert(0, n.ReLU()),
        lambda m, n: bridge.insert(m, 0, n.ReLU()),
    ),
    "insert too far": (
        numbered,
        lambda m, n: m.insert(5, n.ReLU()),
        lambda m, n: bridge.insert(m, 5, n.ReLU()),
    ),
    "pop": (numbered, lambda m, n: m.__delitem__(0), lambda m, n: bridge.pop(m, 0)),
    "pop from the end": (numbered, lambda m, n: m.__delitem__(-1), lambda m, n: bridge.pop(m, -1)),
    "pop of named": (named, lambda m, n: m.__delitem__(1), lambda m, n: bridge.pop(m, 1)),
    "pop of a list": (listed, lambda m, n: m.__delitem__(1), lambda m, n: bridge.pop(m, 1)),
    "pop a slice": (
        numbered,
        lambda m, n: m.__delitem__(slice(0, 2)),
        lambda m, n: bridge.pop(m, slice(0, 2)),
    ),
    "pop of a dictionary": (keyed, lambda m, n: m.pop("a"), lambda m, n: bridge.pop(m, "a")),
    "pop a key that is not there": (keyed, lambda m, n: m.pop("z"), lambda m, n: bridge.pop(m, "z")),
    "pop too far": (numbered, lambda m, n: m.__delitem__(7), lambda m, n: bridge.pop(m, 7)),
    "set_submodule": (
        numbered,
        lambda m, n: m.set_submodule("1", n.Linear(1, 3)),
        lambda m, n: bridge.set_submodule(m, "1", n.Linear(1, 3)),
    ),
    "delete": (numbered, lambda m, n: delattr(m, "1"), lambda m, n: bridge.delete(m, "1")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_container_is_changed_as_torch_changes_it(name):
    make, theirs, ours = CHANGES[name]
    found = []
    for library, change in ((torch.nn, theirs), (nn, ours)):
        model = make(library)
        try:
            result = change(model, library)
        except Exception as error:
            found.append((type(error).__name__, normalise(str(error))))
            continue
        changed = model if library is torch.nn else result
        found.append(
            (
                repr(changed),
                [n for n, _ in changed.named_modules()],
                [*dict(changed.named_parameters())],
            )
        )
    assert found[1] == found[0]


def pair(library):
    class Pair(library.Module):
        def __init__(self):
            super().__init__()
            self.a = library.Linear(2, 2)
            self.b = library.Linear(2, 2)

        def forward(self, x):
            return self.b(self.a(x))

    return Pair()


def test_a_tie_made_and_cut_as_by_assignment():
    torch.manual_seed(0)
    theirs = pair(torch.nn)
    mine, _ = bridge.load_state_dict(pair(nn), to_jax(theirs.state_dict()))
    theirs.b.weight = theirs.a.weight
    mine = bridge.tie(mine, "b.weight", "a.weight")
    assert mine.b.weight is mine.a.weight
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = np.arange(4.0, dtype=np.float32).reshape(2, 2)
    np.testing.assert_allclose(mine(x), theirs(torch.tensor(x)).detach(), rtol=1e-5)
    gradient = jax.grad(lambda m: jnp.sum(m(x)))(mine)
    theirs(torch.tensor(x)).sum().backward()
    np.testing.assert_allclose(gradient.a.weight, theirs.a.weight.grad, rtol=1e-4)

    cut = bridge.untie(mine, "b.weight")
    theirs.b.weight = torch.nn.Parameter(copy.deepcopy(theirs.b.weight.data))
    assert [n for n, _ in cut.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    np.testing.assert_array_equal(cut.b.weight, cut.a.weight)
    assert len(cut._leaves) == 4
    assert len(mine._leaves) == 3


def test_a_tie_before_the_values_are_drawn():
    model = ps.init(bridge.tie(pair(nn), "b.weight", "a.weight"), 0)
    assert model.b.weight is model.a.weight
    cut = ps.init(bridge.untie(bridge.tie(pair(nn), "b.weight", "a.weight"), "b.weight"), 0)
    assert not np.array_equal(cut.b.weight, cut.a.weight)


@pytest.mark.parametrize(
    ("name", "to", "error", "text"),
    [
        ("b.weight", "a.bias", ValueError, "cannot tie 'b.weight' of shape"),
        ("b.weight", "a.nothing", AttributeError, "no parameter or buffer 'a.nothing'"),
        ("b", "a", AttributeError, "no parameter or buffer 'b'"),
    ],
    ids=["shapes", "no such name", "modules"],
)
def test_what_cannot_be_tied(name, to, error, text):
    with pytest.raises(error, match=text):
        bridge.tie(pair(nn), name, to)


def test_a_parameter_is_not_tied_to_a_buffer():
    model = bridge.register_buffer(pair(nn), "shift", jnp.zeros(2))
    with pytest.raises(ValueError, match="not both parameters, or both buffers"):
        bridge.tie(model, "shift", "a.bias")


def test_hooks_and_the_rest_stay_where_they_are():
    log = []
    model = ps.init(numbered(nn), 0)
    model, handle = bridge.register_forward_hook(model, lambda *a: log.append("hook"), at="2")
    changed = bridge.insert(model, 0, nn.Identity())
    changed(jnp.ones((1, 1)))
    assert log == ["hook"]
    handle.remove(changed)(jnp.ones((1, 1)))
    assert log == ["hook"]
