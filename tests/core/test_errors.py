"""Bad input: one clear error that says what to do, and nothing changed or lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.core.models import Dense, Noise, Tied


class Abstract(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ps.empty(2, 3, init=nn.init.normal(std=0.02)))
        self.free = nn.Parameter(ps.empty(2))

    def forward(self, x):
        return x @ self.weight.T


def test_a_call_on_an_uninitialised_model_names_the_arrays_and_the_remedy():
    with pytest.raises(ps.UninitializedError) as caught:
        Abstract()(jnp.ones((1, 3)))
    text = str(caught.value)
    assert "'weight', 'free'" in text
    assert "purestate.init(model, rng)" in text
    assert "bridge.load_state_dict" in text
    with pytest.raises(ps.UninitializedError, match="'free' of shape"):
        ps.init(Abstract(), 0)


def test_a_call_without_rng_names_the_layer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = Noise()

        def forward(self, x):
            return self.drop(x)

    with pytest.raises(ps.MissingRngError, match=r"Noise at 'drop' needs a random key"):
        ps.call(Net(), jnp.ones(2))


@pytest.mark.parametrize(
    ("write", "line"),
    [
        (lambda m: setattr(m, "bias", 1), 'purestate.replace(model, {"bias": value})'),
        (lambda m: setattr(m, "calls", 1), 'purestate.replace(model, {"calls": value})'),
        (lambda m: setattr(m, "extra", 1), "bridge.register_buffer"),
        (lambda m: delattr(m, "bias"), "bridge.delete"),
        (lambda m: m.eval(), "bridge.eval(model)"),
        (lambda m: m.train(), "bridge.train(model)"),
        (lambda m: m.load_state_dict({}), "bridge.load_state_dict(model, sd)"),
        (lambda m: m.state_dict(), "bridge.state_dict(model)"),
        (lambda m: m.register_buffer("x", None), "bridge.register_buffer"),
        (lambda m: m.to("cpu"), "bridge.to(model"),
        (lambda m: m.cuda(), "bridge.to(model"),
        (lambda m: m.double(), "bridge.double(model)"),
        (lambda m: m.requires_grad_(False), "bridge.requires_grad(model, flag)"),
        (lambda m: m.apply(print), "purestate.map_modules"),
        (lambda m: m.zero_grad(), "gradients are return values"),
    ],
)
def test_a_write_to_a_finished_model_shows_the_line_to_write(write, line):
    model = Dense(2, 2)
    parts = model._parts
    with pytest.raises(ps.FrozenModelError) as caught:
        write(model)
    assert line in str(caught.value)
    assert model._parts is parts


def test_model_x_refuses_to_lose_state():
    with pytest.raises(ps.StatefulCallError, match="'calls'") as caught:
        Dense(2, 2)(jnp.ones((1, 2)))
    assert "y, model = purestate.call(model, x)" in str(caught.value)


class Writes(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(jnp.ones(1))
        self.register_buffer("state", jnp.ones(1))
        self.register_buffer("absent", None)
        self.child = Dense(2, 2)
        self.name, self.value = value

    def forward(self, x):
        setattr(self, self.name, x if self.value is None else self.value)
        return x


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("weight", None, ps.FrozenModelError, "parameters change through gradients"),
        ("fresh", None, ps.FrozenModelError, 'self.register_buffer("fresh"'),
        ("name", None, ps.FrozenModelError, "only a registered buffer"),
        ("absent", None, ps.FrozenModelError, "only a registered buffer"),
        ("state", 1.5, TypeError, "cannot assign 'float' as buffer 'state'"),
        ("child", 1.5, TypeError, "the submodule 'child' in forward"),
    ],
)
def test_writes_in_forward(name, value, error, text):
    with pytest.raises(error) as caught:
        ps.call(Writes((name, value)), jnp.ones(1))
    assert text in str(caught.value)


def test_a_wrong_shape_and_a_wrong_name_leave_the_model_as_it_was():
    model = Tied()
    sd = bridge.state_dict(model)
    wrong = dict(sd) | {"encoder.weight": np.zeros((2, 2), np.float32), "other": np.zeros(1)}
    del wrong["decoder.bias"]
    parts, given = model._parts, dict(wrong)
    with pytest.raises(RuntimeError) as caught:
        bridge.load_state_dict(model, wrong)
    text = str(caught.value)
    assert 'Missing key(s) in state_dict: "decoder.bias"' in text
    assert 'Unexpected key(s) in state_dict: "other"' in text
    assert "size mismatch for encoder.weight" in text
    assert model._parts is parts
    assert wrong == given
    with pytest.raises(ValueError, match=r"'encoder\.bias' has shape"):
        ps.replace(model, {"encoder.bias": jnp.ones(7)})
    with pytest.raises(KeyError, match="no parameter or buffer 'nothing'"):
        ps.replace(model, {"nothing": jnp.ones(7)})


def test_integers_that_do_not_fit_raise_and_name_the_key():
    model = Dense(2, 2)
    sd = dict(bridge.state_dict(model)) | {"calls": np.int64(2**40)}
    with pytest.raises(RuntimeError, match=r'"calls".*jax_enable_x64'):
        bridge.load_state_dict(model, sd)
    loaded, _ = bridge.load_state_dict(model, sd | {"calls": np.array(7, np.int64)})
    assert bridge.state_dict(loaded)["calls"].dtype == np.int64
    assert loaded.calls.dtype == jnp.int32


def test_a_cycle_is_refused_with_its_path():
    class Child(nn.Module):
        pass

    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = Child()
            self.child.parent = self

    with pytest.raises(ps.BuildError, match=r"'child\.parent' is a module that contains it"):
        Parent()


def test_a_reference_in_a_list_is_not_a_cycle_and_means_the_live_module():
    class Child(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = []

        def forward(self, x):
            return x * self.up[0].scale

    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(jnp.ones(1))
            self.child = Child()
            self.child.up.append(self)

        def forward(self, x):
            return self.child(x)

    model = ps.replace(Parent(), {"scale": jnp.full(1, 3.0)})
    assert float(model(jnp.ones(1))[0]) == 3.0
    with pytest.raises(AttributeError, match="not below"):
        model.child(jnp.ones(1))


def test_what_cannot_be_a_constant_is_refused_when_it_is_built():
    def build(value):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.value = value(self)

        return Net()

    with pytest.raises(ps.BuildError, match="traced array"):
        jax.jit(lambda x: build(lambda self: x) and x)(jnp.ones(1))
    with pytest.raises(ps.BuildError, match="closes over the module being built"):
        build(lambda self: lambda: self.value)
    with pytest.warns(UserWarning, match="unregistered array of 2.0 MiB"):
        build(lambda self: np.zeros(2**18, np.float64))
    model = build(lambda self: [1, 2])
    assert model.value == [1, 2]
    with pytest.raises(TypeError, match="constant of a finished model"):
        model.value.append(3)


def test_super_init_forgotten():
    class Forgetful(nn.Module):
        def __init__(self):
            self.size = 3

    with pytest.raises(AttributeError, match=r"did not call super\(\).__init__\(\)"):
        Forgetful()


def test_a_selector_that_matches_nothing():
    for selector in ("layer9", "*.bn", Noise, lambda path, module: False, ["encoder", "nothing"]):
        with pytest.raises(ps.SelectorError):
            bridge.eval(Tied(), where=selector)


def test_an_error_in_a_property_is_seen():
    class Net(nn.Module):
        @property
        def broken(self):
            return self.missing_thing

    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing_thing'"):
        _ = Net().broken


def test_a_delete_says_what_to_write():
    with pytest.raises(ps.FrozenModelError, match=r"cannot delete Linear\.bias.*\n.*bridge\.delete"):
        del nn.Linear(2, 2).bias


def test_a_key_that_only_training_needs():
    class Drops(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5, self.training, rng=self.next_key())

    with pytest.raises(ps.MissingRngError, match=r"without randomness: model = bridge\.eval"):
        Drops()(jnp.ones(2))
    with pytest.raises(ps.MissingRngError, match=r"next_key\(\) if self\.training else None"):
        bridge.eval(Drops())(jnp.ones(2))


def test_torch_tensors_are_refused_with_the_line_to_write():
    model = ps.init(nn.Linear(2, 2), 0)
    tensor = torch.zeros(2)
    with pytest.raises(TypeError, match=r"value\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        ps.replace(model, {"bias": tensor})
    with pytest.raises(RuntimeError, match=r"t\.detach\(\)\.cpu\(\)\.numpy\(\) for name"):
        bridge.load_state_dict(model, {"weight": torch.zeros(2, 2), "bias": tensor})


def test_a_handle_without_a_model():
    _, handle = bridge.register_forward_hook(nn.Linear(2, 2), print)
    with pytest.raises(TypeError, match=r"model = handle\.remove\(model\)"):
        handle.remove()


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("_save_to_state_dict", "own_state_dict"),
        ("state_dict", "own_state_dict"),
        ("_load_from_state_dict", "upgrade_state_dict"),
        ("load_state_dict", "upgrade_state_dict"),
    ],
)
def test_an_override_that_would_never_be_called_is_refused(method, line):
    with pytest.raises(ps.BuildError, match=rf"Own\.{method} .*\n.*def {line}\(self"):
        type(nn.Module)("Own", (nn.Module,), {method: lambda self, *args: None})
