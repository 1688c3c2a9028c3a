"""Sequential, ModuleList and ModuleDict: torch's rules while built, then values, then in a call."""

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error, host
from tests.parity import assert_close, check_error, raised, to_jax, to_numpy


def lin(nn, n=2):
    return nn.Linear(n, n)


def named(nn):
    return nn.Sequential(OrderedDict(a=lin(nn), b=nn.ReLU(), c=lin(nn, 3)))


def plain(nn):
    return nn.Sequential(lin(nn, 2), lin(nn, 3), lin(nn, 4))


def listed(nn):
    return nn.ModuleList([lin(nn, 2), lin(nn, 3), lin(nn, 4)])


def changed(build, *changes):
    """The container after in-place changes; the last one is returned if it is not None."""

    def run(nn):
        container = build(nn)
        for change in changes:
            change(nn, container)
        return container

    return run


BUILDS = {
    "sequential": plain,
    "sequential-named": named,
    "sequential-empty": lambda nn: nn.Sequential(),
    "sequential-none": lambda nn: nn.Sequential(lin(nn), None),
    "sequential-nested": lambda nn: nn.Sequential(plain(nn), named(nn)),
    "sequential-shared": lambda nn: nn.Sequential(*[lin(nn)] * 3),
    "sequential-append": changed(plain, lambda nn, c: c.append(nn.ReLU()).append(lin(nn))),
    "sequential-append-named": changed(named, lambda nn, c: c.append(nn.ReLU())),
    "sequential-insert": changed(plain, lambda nn, c: c.insert(1, nn.ReLU())),
    "sequential-insert-end": changed(plain, lambda nn, c: c.insert(3, nn.ReLU())),
    "sequential-insert-negative": changed(plain, lambda nn, c: c.insert(-1, nn.ReLU())),
    "sequential-extend": changed(plain, lambda nn, c: c.extend([nn.ReLU(), lin(nn)])),
    "sequential-extend-sequential": changed(plain, lambda nn, c: c.extend(named(nn))),
    "sequential-pop": changed(plain, lambda nn, c: c.pop(1)),
    "sequential-pop-negative": changed(named, lambda nn, c: c.pop(-1)),
    "sequential-pop-slice": changed(named, lambda nn, c: c.pop(slice(0, 2))),
    "sequential-set": changed(named, lambda nn, c: c.__setitem__(1, lin(nn, 7))),
    "sequential-set-negative": changed(plain, lambda nn, c: c.__setitem__(-1, nn.Tanh())),
    "sequential-del": changed(named, lambda nn, c: c.__delitem__(0)),
    "sequential-del-slice": changed(plain, lambda nn, c: c.__delitem__(slice(None, None, 2))),
    "sequential-slice": lambda nn: plain(nn)[1:],
    "sequential-slice-named": lambda nn: named(nn)[::-1],
    "sequential-index": lambda nn: named(nn)[-1],
    "sequential-add": lambda nn: named(nn) + plain(nn),
    "sequential-iadd": changed(plain, lambda nn, c: c.__iadd__(named(nn))),
    "sequential-mul": lambda nn: named(nn) * 2,
    "sequential-rmul": lambda nn: 2 * plain(nn),
    "sequential-imul": changed(plain, lambda nn, c: c.__imul__(3)),
    "list": listed,
    "list-empty": lambda nn: nn.ModuleList(),
    "list-none": lambda nn: nn.ModuleList([lin(nn), None]),
    "list-generator": lambda nn: nn.ModuleList(lin(nn, n) for n in (2, 3)),
    "list-runs": lambda nn: nn.ModuleList([lin(nn), lin(nn), nn.ReLU(), lin(nn), lin(nn), lin(nn)]),
    "list-runs-nested": lambda nn: nn.ModuleList([plain(nn), plain(nn), listed(nn)]),
    "list-append": changed(listed, lambda nn, c: c.append(nn.ReLU())),
    "list-insert": changed(listed, lambda nn, c: c.insert(0, nn.ReLU())),
    "list-extend": changed(listed, lambda nn, c: c.extend(listed(nn))),
    "list-iadd": changed(listed, lambda nn, c: c.__iadd__([nn.ReLU()])),
    "list-add": lambda nn: listed(nn) + [nn.ReLU()],
    "list-pop": changed(listed, lambda nn, c: c.pop(0)),
    "list-set": changed(listed, lambda nn, c: c.__setitem__(-1, nn.ReLU())),
    "list-del": changed(listed, lambda nn, c: c.__delitem__(1)),
    "list-del-slice": changed(listed, lambda nn, c: c.__delitem__(slice(0, 2))),
    "list-slice": lambda nn: listed(nn)[1:],
    "list-named-child": changed(listed, lambda nn, c: c.add_module("extra", nn.ReLU())),
    "dict": lambda nn: nn.ModuleDict({"z": lin(nn), "a": nn.ReLU()}),
    "dict-empty": lambda nn: nn.ModuleDict(),
    "dict-pairs": lambda nn: nn.ModuleDict([["z", lin(nn)], ("a", nn.ReLU())]),
    "dict-of-dict": lambda nn: nn.ModuleDict(nn.ModuleDict({"z": lin(nn)})),
    "dict-none": lambda nn: nn.ModuleDict({"z": None, "a": lin(nn)}),
    "dict-set": changed(
        lambda nn: nn.ModuleDict({"z": lin(nn), "a": lin(nn)}),
        lambda nn, c: c.__setitem__("z", lin(nn, 5)),
        lambda nn, c: c.__setitem__("b", nn.ReLU()),
    ),
    "dict-del": changed(
        lambda nn: nn.ModuleDict({"z": lin(nn), "a": lin(nn), "q": nn.ReLU()}),
        lambda nn, c: c.__delitem__("z"),
        lambda nn, c: c.pop("q"),
    ),
    "dict-clear": changed(lambda nn: nn.ModuleDict({"z": lin(nn)}), lambda nn, c: c.clear()),
    "dict-update": changed(
        lambda nn: nn.ModuleDict({"z": lin(nn)}), lambda nn, c: c.update({"a": lin(nn, 3)})
    ),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_built_as_torch(build):
    check_same(build)


ERRORS = {
    "sequential-int": lambda nn: nn.Sequential(1),
    "sequential-list": lambda nn: nn.Sequential([nn.ReLU()]),
    "sequential-dict": lambda nn: nn.Sequential({"a": nn.ReLU()}),
    "sequential-dotted": lambda nn: nn.Sequential(OrderedDict({"a.b": nn.ReLU()})),
    "sequential-empty-name": lambda nn: nn.Sequential(OrderedDict({"": nn.ReLU()})),
    "sequential-int-name": lambda nn: nn.Sequential(OrderedDict({1: nn.ReLU()})),
    "sequential-taken-name": lambda nn: nn.Sequential(OrderedDict({"forward": nn.ReLU()})),
    "sequential-index": lambda nn: plain(nn)[3],
    "sequential-index-negative": lambda nn: plain(nn)[-4],
    "sequential-index-type": lambda nn: plain(nn)["0"],
    "sequential-set": lambda nn: plain(nn).__setitem__(5, nn.ReLU()),
    "sequential-set-type": lambda nn: plain(nn).__setitem__(0, 3),
    "sequential-del": lambda nn: plain(nn).__delitem__(5),
    "sequential-pop": lambda nn: nn.Sequential().pop(0),
    "sequential-insert-range": lambda nn: plain(nn).insert(9, nn.ReLU()),
    "sequential-insert-type": lambda nn: plain(nn).insert(0, 3),
    "sequential-insert-named": lambda nn: named(nn).insert(0, nn.ReLU()),
    "sequential-append-type": lambda nn: plain(nn).append(3),
    "sequential-extend-type": lambda nn: plain(nn).extend(3),
    "sequential-add-type": lambda nn: plain(nn) + [nn.ReLU()],
    "sequential-iadd-type": lambda nn: plain(nn).__iadd__([nn.ReLU()]),
    "sequential-mul-type": lambda nn: plain(nn) * 1.5,
    "sequential-mul-zero": lambda nn: plain(nn) * 0,
    "sequential-imul-type": lambda nn: plain(nn).__imul__("a"),
    "sequential-imul-negative": lambda nn: plain(nn).__imul__(-1),
    "sequential-imul-named": lambda nn: named(nn).__imul__(2),
    "list-type": lambda nn: nn.ModuleList([1]),
    "list-not-iterable": lambda nn: nn.ModuleList(1),
    "list-index": lambda nn: listed(nn)[3],
    "list-insert-negative": lambda nn: listed(nn).insert(-1, nn.ReLU()),
    "list-add-type": lambda nn: listed(nn) + 3,
    "list-set": lambda nn: listed(nn).__setitem__(3, nn.ReLU()),
    "dict-not-iterable": lambda nn: nn.ModuleDict(1),
    "dict-element": lambda nn: nn.ModuleDict([1]),
    "dict-length": lambda nn: nn.ModuleDict([("a", nn.ReLU(), 1)]),
    "dict-method": lambda nn: nn.ModuleDict({"keys": nn.ReLU()}),
    "dict-training": lambda nn: nn.ModuleDict({"training": nn.ReLU()}),
    "dict-dotted": lambda nn: nn.ModuleDict({"a.b": nn.ReLU()}),
    "dict-int": lambda nn: nn.ModuleDict({1: nn.ReLU()}),
    "dict-type": lambda nn: nn.ModuleDict({"a": 3}),
    "dict-missing": lambda nn: nn.ModuleDict()["a"],
    "dict-del": lambda nn: nn.ModuleDict().__delitem__("a"),
}


@pytest.mark.parametrize("build", ERRORS.values(), ids=ERRORS)
def test_refused_as_torch(build):
    check_same_error(build)


def test_append_never_overwrites():
    """Torch's ``append`` puts the module in the place of the one that is named like the length."""

    def overwriting(nn):
        return nn.Sequential(OrderedDict({"1": lin(nn)})).append(lin(nn, 3))

    assert list(overwriting(torch.nn)._modules) == ["1"]
    with pytest.raises(KeyError, match="have '1' already"):
        host(nn, overwriting)
    with pytest.raises(KeyError, match="have '1' already"):
        host(nn, lambda nn: nn.Sequential(OrderedDict({"1": lin(nn)})).insert(0, lin(nn)))


def test_list_has_no_forward():
    error = raised(lambda: listed(nn)(1))
    assert str(error) == 'Module [ModuleList] is missing the required "forward" function'


def test_insert_of_something_else_is_refused():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = listed(nn)
            self.part.insert(0, 3)

    with pytest.raises(TypeError, match="int is not a Module subclass"):
        Host()


def test_failed_insert_changes_nothing():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = listed(nn)
            with pytest.raises(KeyError, match="-1"):
                self.part.insert(-1, nn.ReLU())

    assert repr(Host().part) == repr(listed(nn))


def test_a_named_child_counts():
    """Row 135."""
    build = BUILDS["list-named-child"]
    lengths = [len(host(library, build).part) for library in (nn, torch.nn)]
    assert lengths == [4, 4]


# As values.


def test_reading_a_value():
    model = named(nn)
    assert len(model) == 3
    assert model
    assert not nn.Sequential()
    assert not nn.ModuleList()
    assert list(model)[1] is model[1] is model[-2] is model.b
    assert model[0] in model
    assert [name for name in dir(plain(nn)) if name.isdigit()] == []
    table = nn.ModuleDict({"z": lin(nn), "a": nn.ReLU()})
    assert list(table) == list(table.keys()) == ["z", "a"]
    assert "z" in table
    assert "b" not in table
    assert table["a"] is table.a is dict(table.items())["a"] is list(table.values())[1]


def test_slices_of_a_value_are_models():
    model = ps.init(named(nn), 0)
    part = model[::2]
    assert repr(part) == repr(named(torch.nn)[::2])
    assert list(bridge.state_dict(part)) == ["a.weight", "a.bias", "c.weight", "c.bias"]
    assert part.c.weight is model.c.weight
    numbers = ps.init(listed(nn), 0)
    assert list(bridge.state_dict(numbers[1:])) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(bridge.state_dict(numbers + [nn.PReLU()]))[-1] == "3.weight"


def test_a_slice_keeps_ties_and_sharing():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Sequential(lin(nn), lin(nn), lin(nn))
            self.part[1].weight = self.part[0].weight

    model = ps.init(Host().part, 0)
    assert len(model[:2]._leaves) == 3
    assert len((model + model[2:])._leaves) == 7
    twice = ps.init(plain(nn), 0) * 2
    assert len(twice) == 6
    assert twice[0] is not twice[1]
    assert len(twice._leaves) == 6
    assert len(bridge.state_dict(twice)) == 12


def test_parts_of_a_value_are_adopted():
    model = ps.init(plain(nn), 0)
    rebuilt = nn.Sequential(OrderedDict(first=model[0], second=model[1:]))
    assert list(bridge.state_dict(rebuilt)) == [
        "first.weight",
        "first.bias",
        "second.1.weight",
        "second.1.bias",
        "second.2.weight",
        "second.2.bias",
    ]
    assert rebuilt.second[0].weight is model[1].weight


MUTATIONS = {
    "append": lambda m: m.append(nn.ReLU()),
    "insert": lambda m: m.insert(0, nn.ReLU()),
    "extend": lambda m: m.extend([nn.ReLU()]),
    "pop": lambda m: m.pop(0),
    "set": lambda m: m.__setitem__(0, nn.ReLU()),
    "del": lambda m: m.__delitem__(0),
    "iadd": lambda m: m.__iadd__(m),
}


@pytest.mark.parametrize("change", MUTATIONS.values(), ids=MUTATIONS)
@pytest.mark.parametrize("build", [plain, listed])
def test_a_value_refuses_changes(build, change):
    model = build(nn)
    with pytest.raises(ps.FrozenModelError, match="write: model = "):
        change(model)
    assert len(model) == 3


def test_a_dict_value_refuses_changes():
    model = nn.ModuleDict({"a": nn.ReLU()})
    for change in (
        lambda: model.__setitem__("b", nn.ReLU()),
        lambda: model.__delitem__("a"),
        lambda: model.update({}),
        lambda: model.clear(),
        lambda: model.pop("a"),
    ):
        with pytest.raises(ps.FrozenModelError, match="write: model = "):
            change()


# In a call.


def test_sequential_call():
    theirs: Any = named(torch.nn)[:2]
    ours, _ = bridge.load_state_dict(
        named(nn)[:2], {key: to_numpy(value) for key, value in theirs.state_dict().items()}
    )
    x = torch.randn(4, 2)
    for run in (lambda m, x: m(x), jax.jit(lambda m, x: m(x)), jax.vmap(lambda m, x: m(x), (None, 0))):
        assert_close(run(ours, to_jax(x)), theirs(x))
    grads = jax.grad(lambda m, x: jnp.sum(m(x)))(ours, to_jax(x))
    theirs(x).sum().backward()
    assert_close(grads.a.weight, theirs.a.weight.grad)
    assert nn.Sequential()(3) == 3


def test_an_empty_slot_cannot_be_called():
    def call(nn):
        return lambda: nn.Sequential(None)(1)

    check_error(call(nn), call(torch.nn))


class Blocks(nn.Module):
    """Reads its containers in every way a ``forward`` does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.BatchNorm1d(2) for _ in range(4)])
        self.chain = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.BatchNorm1d(2))
        self.table = nn.ModuleDict({"z": lin(nn), "a": nn.Tanh()})

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        x = self.layers[-1](x)
        x = self.chain[:2](x)
        x = (self.chain[2:] * 2)(x)
        x = (self.chain[2:] + self.layers[:0])(x)
        assert len(self.layers) == len(self.layers[:0] + self.layers) == 4
        assert self.chain[1:][0] is self.chain[1]
        for name in self.table:
            x = self.table[name](x)
        return x


def test_parts_of_a_running_model_keep_their_state():
    model = ps.init(Blocks(), 0)
    y, after = ps.call(model, jnp.arange(8.0).reshape(4, 2), rng=0)
    assert y.shape == (4, 2)
    counts = [int(layer.num_batches_tracked) for layer in after.layers]
    assert counts == [1, 1, 0, 1]
    assert [int(after.chain[i].num_batches_tracked) for i in (0, 2)] == [1, 3]


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = named(nn)[:2]
        self.b = nn.Sequential(nn.BatchNorm1d(2))

    def forward(self, x):
        return (self.a + self.b)(2 * (self.b * 2)(x))


def test_sums_and_multiples_in_a_call():
    _, after = ps.call(ps.init(Sums(), 0), jnp.arange(8.0).reshape(4, 2))
    assert int(after.b[0].num_batches_tracked) == 3


def test_a_running_container_refuses_changes():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = listed(nn)

        def forward(self, x):
            self.layers.append(nn.ReLU())
            return x

    with pytest.raises(ps.FrozenModelError, match="append changes a module in place"):
        ps.init(Grows(), 0)(1)


@pytest.mark.filterwarnings("ignore:`nn.Container` is deprecated")
def test_container():
    check_same(lambda nn: nn.Container(first=nn.Linear(2, 3), none=None, second=nn.ReLU()))
    check_same_error(lambda nn: nn.Container(first=3))


@pytest.mark.parametrize("namespace", [nn, torch.nn], ids=["ours", "theirs"])
def test_container_is_deprecated(namespace):
    with pytest.warns(FutureWarning, match=r"`nn\.Container` is deprecated") as record:
        namespace.Container(first=namespace.ReLU())
    assert [warning.filename for warning in record] == [__file__]
    with pytest.warns(FutureWarning, match=r"`nn\.Container` is deprecated") as record:
        sub = type("Sub", (namespace.Container,), {})
    assert [warning.filename for warning in record] == [__file__]
    assert list(dict(sub(first=namespace.ReLU()).named_children())) == ["first"]
