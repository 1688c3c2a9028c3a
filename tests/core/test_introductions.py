"""The programs every introduction to nn.Module uses; the right values come from torch in the test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.parity import to_numpy


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 1)

    def forward(self, x):
        return self.down(nn.functional.relu(self.up(x)))


class TorchMlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 1)

    def forward(self, x):
        return self.down(torch.nn.functional.relu(self.up(x)))


def test_an_mlp_has_torchs_parameters_names_and_numbers():
    ours, theirs = Mlp(), TorchMlp()
    assert sum(p.size for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) == 321
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name, _ in theirs.named_parameters()]
    assert names[:2] == ["up.weight", "up.bias"]
    assert repr(ours) == repr(theirs).replace("TorchMlp", "Mlp")
    ours, report = bridge.load_state_dict(
        ours, {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    )
    assert str(report) == "<All keys matched successfully>"
    x = torch.randn(4, 8)
    np.testing.assert_allclose(ours(jnp.asarray(x.numpy())), theirs(x).detach(), rtol=1e-5, atol=1e-6)


def declare(nn_module, parameter, array, linear):
    """One class for both sides: a parameter, two buffers, a plain array, a submodule."""

    class Holder(nn_module):
        def __init__(self):
            super().__init__()
            self.weight = parameter(array([1.0, 2.0]))
            self.register_buffer("saved", array([3.0]))
            self.register_buffer("unsaved", array([4.0]), persistent=False)
            self.plain = array([5.0])
            self.child = linear(2, 2)

    return Holder()


NAMES = ("weight", "saved", "unsaved", "plain", "child.weight", "child.bias")


def test_trains_saved_moves_as_in_torch_double_included():
    with jax.enable_x64(True):
        theirs = declare(torch.nn.Module, torch.nn.Parameter, torch.tensor, torch.nn.Linear)
        single = declare(
            nn.Module,
            nn.Parameter,
            lambda v: jnp.array(v, jnp.float32),
            lambda i, o: nn.Linear(i, o, dtype=jnp.float32),
        )
        rows = {row.name: row for row in bridge.audit(single)}
        ours = bridge.double(ps.init(single, 0))
        theirs.double()
        trained = {name for name, _ in theirs.named_parameters()}
        saved = set(theirs.state_dict())
        moved = {name for name in NAMES if _get(theirs, name).dtype == torch.float64}
        for name in NAMES:
            row = rows[name]
            assert row.trains == (name in trained), name
            assert row.saved == (name in saved), name
            assert row.moves == (name in moved), name
            assert (_get(ours, name).dtype == jnp.float64) == (name in moved), name
        definition, params, _ = ps.split(ours)
        assert set(params) == trained
        assert list(bridge.state_dict(ours)) == list(theirs.state_dict())
        assert definition.cls.__name__ == "Holder"


def _get(module, name):
    path, _, last = name.rpartition(".")
    return getattr(module.get_submodule(path), last)


def test_weight_and_center_in_float64():
    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
            self.register_buffer("center", torch.tensor([1.0, 1.0]))

        def forward(self, x):
            return self.weight * (x - self.center)

    class Ours(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(jnp.array([2.0, 3.0], jnp.float32))
            self.register_buffer("center", jnp.array([1.0, 1.0], jnp.float32))

        def forward(self, x):
            return self.weight * (x - self.center)

    x = [2.5, 3.0]
    expected = Theirs().double()(torch.tensor(x, dtype=torch.float64))
    with jax.enable_x64(True):
        y = bridge.double(Ours())(jnp.array(x, jnp.float64))
        assert y.dtype == jnp.float64
        assert y.tolist() == expected.tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="jax_enable_x64"):
        bridge.double(Ours())


def with_mask(side, persistent):
    """The same class in two versions: the mask is saved, or not any more."""
    base, parameter, array = side

    class Net(base):
        def __init__(self):
            super().__init__()
            self.weight = parameter(array([1.0]))
            self.register_buffer("mask", array([1.0]), persistent=persistent)

    return Net()


def test_a_persistence_flag_flipped_between_versions():
    torch_side = (torch.nn.Module, torch.nn.Parameter, torch.tensor)
    our_side = (nn.Module, nn.Parameter, jnp.array)
    old = with_mask(torch_side, True).state_dict()
    theirs = with_mask(torch_side, False)
    ours = with_mask(our_side, False)
    arrays = {name: to_numpy(value) for name, value in old.items()}

    expected = theirs.load_state_dict(old, strict=False)
    loaded, report = bridge.load_state_dict(ours, arrays, strict=False)
    assert repr(report) == "IncompatibleKeys(missing_keys=[], unexpected_keys=['mask'])"
    assert (report.missing_keys, report.unexpected_keys) == tuple(expected)
    assert float(loaded.mask[0]) == 1.0

    with pytest.raises(RuntimeError) as theirs_error:
        theirs.load_state_dict(old)
    with pytest.raises(RuntimeError) as our_error:
        bridge.load_state_dict(ours, arrays)
    assert str(our_error.value) == str(theirs_error.value)

    back = with_mask(our_side, True)
    _, report = bridge.load_state_dict(back, bridge.state_dict(ours), strict=False)
    assert report.missing_keys == ["mask"]


def test_a_parameter_before_init_gives_torchs_error():
    def broken(base, parameter, array):
        class Broken(base):
            def __init__(self):
                self.weight = parameter(array([1.0]))
                super().__init__()

        return Broken

    with pytest.raises(AttributeError) as theirs:
        broken(torch.nn.Module, torch.nn.Parameter, torch.tensor)()
    with pytest.raises(AttributeError) as ours:
        broken(nn.Module, nn.Parameter, jnp.array)()
    assert str(ours.value) == str(theirs.value)
    assert str(ours.value) == "cannot assign parameters before Module.__init__() call"


def test_a_bare_module_is_an_empty_model():
    ours, theirs = nn.Module(), torch.nn.Module()
    assert repr(ours) == repr(theirs)
    assert list(ours.parameters()) == list(ours.buffers()) == list(ours.children()) == []
    assert dict(bridge.state_dict(ours)) == dict(theirs.state_dict()) == {}
    assert jax.tree.leaves(ours) == []
    with pytest.raises(NotImplementedError) as theirs_error:
        theirs(1)
    with pytest.raises(NotImplementedError) as our_error:
        ours(1)
    assert str(our_error.value) == str(theirs_error.value)
