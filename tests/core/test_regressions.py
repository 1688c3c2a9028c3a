"""Faults that review found once: each a kind of silent wrong result."""

import dataclasses
import enum
import functools
import pickle
from collections import OrderedDict
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Dense, Tied


X = jnp.arange(6.0).reshape(2, 3)


class Holder(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value


@dataclasses.dataclass(frozen=True)
class Config:
    size: float


class Colour(enum.IntEnum):
    RED = 1


DISTINCT = [
    2.0,
    np.float64(2),
    np.float32(2),
    jnp.float32(2),
    jnp.asarray(2.0),
    Fraction(2),
    {1: "x"},
    {True: "x"},
    {0.0: "x"},
    {-0.0: "x"},
    {0.0},
    {-0.0},
    {(1,)},
    {(True,)},
    complex(0, 0.0),
    complex(0, -0.0),
    np.float32(0.0),
    np.float32(-0.0),
    Config(1),
    Config(1.0),
    Colour.RED,
    1,
    slice(1, 2),
    slice(1, 3),
]


def test_constants_that_compute_differently_are_different_definitions():
    definitions = [Holder(value)._definition for value in DISTINCT]
    assert len(set(map(id, definitions))) == len(DISTINCT)
    again = [Holder(value)._definition for value in DISTINCT]
    assert all(a is b for a, b in zip(definitions, again, strict=True))


@pytest.mark.parametrize("value", [float("nan"), np.float32("nan"), complex("nan"), {float("nan"): 1}])
def test_nan_constants_equal_themselves(value):
    assert Holder(value)._definition is Holder(value)._definition


def test_a_dict_of_any_kind_is_frozen_and_its_modules_stay_live():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = Dense(3, 3)
            self.table = OrderedDict(x=self.fc)

        def forward(self, x):
            return self.table["x"](x)

    model = ps.replace(Net(), {"fc.weight": jnp.eye(3)})
    np.testing.assert_allclose(ps.call(model, X)[0], X)
    with pytest.raises(TypeError, match="constant of a finished model"):
        model.table["x"] = 1


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: jax.jit(m.g),
        lambda m: jax.vmap(m.g),
        lambda m: jax.checkpoint(m.g),
        lambda m: functools.wraps(m.g)(lambda x: x),
        lambda m: lambda x, m=m: x * m.w,
        lambda m: (lambda held: lambda x: x * held[0].w)([m]),
    ],
)
def test_a_function_that_would_keep_todays_arrays_is_refused(wrap):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(jnp.ones(2))
            self.f = wrap(self)

        def g(self, x):
            return x * self.w

    with pytest.raises(ps.BuildError, match="closes over the module being built"):
        Net()


def test_map_modules_keeps_flag_changes_and_invents_no_ties():
    frozen = ps.map_modules(Tied(), lambda m: bridge.requires_grad(m, False))
    assert not ps.split(frozen)[1]

    class Twice(nn.Module):
        def __init__(self, w):
            super().__init__()
            self.w = nn.Parameter(w)
            self.register_buffer("start", w)

    model = ps.map_modules(Twice(jnp.ones(2)), bridge.eval)
    assert len(model._leaves) == 2
    assert list(ps.split(model)[1]) == ["w"]
    same = jnp.zeros(3)
    both = ps.replace(Tied(), {"encoder.bias": same, "decoder.bias": same})
    assert len(ps.map_modules(both, bridge.eval)._leaves) == len(both._leaves)


def test_a_part_means_the_module_it_was_whatever_its_place_holds_now():
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = Dense(3, 3)

    class Swapped(nn.Module):
        def __init__(self, body):
            super().__init__()
            head = body.fc
            self.body = body
            self.body.fc = nn.Module()
            self.head = head

    model = Swapped(Body())
    assert type(model.head) is Dense
    assert type(model.body.fc) is nn.Module


def test_ties_of_parts_do_not_hang_on_who_is_still_alive():
    def parts():
        model = Tied()
        return model.encoder, model.decoder

    class Pair(nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first, self.second = first, second

    assert len(Pair(*parts())._leaves) == 5


def test_a_shared_module_is_one_object_under_all_its_paths():
    model = Tied()
    assert model.again is model.encoder

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Module(), nn.Module()
            self.a.x = Dense(2, 2)
            self.b.x = self.a.x

    outer = Outer()
    assert outer.a.x is outer.b.x


def test_numpy_arrays_are_never_aliased():
    bias = np.ones(3, np.float32)
    model = ps.replace(Tied(), {"encoder.bias": bias})
    definition, params, buffers = ps.split(model)
    arrays = {name: np.array(value) for name, value in params.items()}
    merged = ps.merge(definition, arrays, buffers)
    bias[:] = 7
    arrays["encoder.bias"][:] = 7
    assert float(model.encoder.bias[0]) == float(merged.encoder.bias[0]) == 1
    assert isinstance(merged.encoder.bias, jax.Array)


def test_a_numpy_integer_that_does_not_fit_raises():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", np.int64(2**40 + 7))

    with pytest.raises(OverflowError, match="'count'"):
        Net()


def test_a_write_after_the_call_is_refused():
    leaked = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("c", jnp.zeros(()))

        def forward(self, x):
            leaked.append(self)
            return x

    ps.call(Net(), X)
    with pytest.raises(ps.LeakedWriteError):
        leaked[0].c = jnp.ones(())


def test_an_overridden_call_is_entered_by_every_door():
    class Plus(nn.Module):
        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return x

    model = Plus()
    definition, params, buffers = ps.split(model)
    assert model(1) == ps.call(model, 1)[0] == ps.apply(definition, params, buffers, 1)[0] == 2


def test_modules_that_compare_equal_are_refused():
    class Equal(nn.Module):
        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

    with pytest.raises(ps.BuildError, match="told from another by identity"):
        Equal()


def test_a_definition_may_be_made_trainable():
    definition, _, _ = ps.split(bridge.requires_grad(Tied(), False))
    assert len(bridge.requires_grad(definition, True).trainable) == 3


def test_loading_under_jit_and_of_what_is_no_number():
    model = Dense(2, 2)
    sd = bridge.state_dict(model)
    loaded = jax.jit(lambda m, sd: bridge.load_state_dict(m, sd)[0])(model, sd)
    np.testing.assert_array_equal(loaded.weight, model.weight)
    for bad in (np.array([None, 1]), np.array(["a", "b"]), np.array([1, 2], "datetime64[s]")):
        with pytest.raises(RuntimeError, match="expected numbers"):
            bridge.load_state_dict(model, dict(sd) | {"bias": bad})


def test_jitted_functions_as_attributes_survive_a_pickle():
    model = Holder([nn.functional.relu, {"f": nn.functional.gelu}])
    again = pickle.loads(pickle.dumps(model._definition.nodes[0].attributes[0]))
    assert again.value[0] is nn.functional.relu
    assert again == model._definition.nodes[0].attributes[0]


def test_what_is_being_built_is_not_a_value_yet():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = Dense(2, 2)
            bridge.eval(self.fc)

    with pytest.raises(ps.BuildError, match="not a value yet"):
        Net()
