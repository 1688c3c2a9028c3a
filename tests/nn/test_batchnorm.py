"""BatchNorm beyond one call of the module database: state over time, modes, files, transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from bridge import StateDict
from purestate import nn
from tests.oracles.module_db import compare_call, compare_state
from tests.parity import assert_close, check_error, to_jax, to_numpy


def pair(*args, **kwargs):
    theirs = torch.nn.BatchNorm1d(*args, **kwargs)
    return ps.init(nn.BatchNorm1d(*args, **kwargs), 0), theirs


@pytest.mark.parametrize("momentum", [0.1, None, 0.0, 1.0])
def test_several_batches(momentum):
    ours, theirs = pair(3, momentum=momentum)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        ours = compare_call(ours, theirs, [x * step + step])
    ours, theirs = bridge.eval(ours), theirs.eval()
    assert compare_call(ours, theirs, [x])._definition is ours._definition


def test_shared_layer_counts_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.norm(x) * 2)

    class TorchTwice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.norm(x) * 2)

    compare_call(ps.init(Twice(), 0), TorchTwice(), [torch.randn(5, 3, requires_grad=True)])


def test_under_jit_and_scan():
    ours, theirs = pair(3)
    batches = torch.randn(4, 5, 3)

    @jax.jit
    def run(model, batches):
        def body(model, x):
            y, model = ps.call(model, x)
            return model, y

        return jax.lax.scan(body, model, batches)

    model, outputs = run(ours, to_jax(batches))
    expected = torch.stack([theirs(x) for x in batches])
    assert_close(outputs, expected)
    compare_state(model, theirs)


def test_vmap_over_models():
    ours, _ = pair(3)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), ours)
    x = jnp.arange(24.0).reshape(2, 4, 3) ** 2
    y, after = jax.vmap(ps.call)(stacked, x)
    for index in range(2):
        single, single_after = ps.call(ours, x[index])
        assert_close(y[index], single)
        assert_close(after.running_var[index], single_after.running_var)


def test_plain_call_refuses_to_lose_state():
    with pytest.raises(ps.StatefulCallError, match="running_mean"):
        pair(3)[0](jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("BatchNorm1d", (3,)),
        ("BatchNorm1d", (2, 3, 4, 5)),
        ("BatchNorm2d", (2, 3)),
        ("BatchNorm3d", (2, 3, 4, 5)),
        ("BatchNorm1d", (1, 3)),
        ("BatchNorm2d", (1, 3, 1, 1)),
        ("BatchNorm1d", (2, 4)),
    ],
)
def test_refused_as_torch(name, shape):
    ours = ps.init(getattr(nn, name)(3), 0)
    theirs = getattr(torch.nn, name)(3)
    check_error(lambda: ps.call(ours, jnp.ones(shape)), lambda: theirs(torch.ones(shape)))


def old_file(theirs, version):
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    del values["num_batches_tracked"]
    sd = StateDict(values)
    if version is not None:
        sd.metadata = {"": {"version": version}}
    return sd


@pytest.mark.parametrize("version", [None, 1])
def test_old_files_have_no_counter(version):
    _, theirs = pair(3)
    fresh, report = bridge.load_state_dict(nn.BatchNorm1d(3), old_file(theirs, version))
    assert report.missing_keys == []
    assert int(fresh.num_batches_tracked) == 0
    assert bridge.state_dict(fresh)["num_batches_tracked"].dtype == np.int64
    used = ps.replace(ps.init(nn.BatchNorm1d(3), 0), {"num_batches_tracked": jnp.asarray(7)})
    kept, _ = bridge.load_state_dict(used, old_file(theirs, version))
    assert int(kept.num_batches_tracked) == 7
    assert bridge.state_dict(kept)["num_batches_tracked"].dtype == np.int64


def test_a_new_file_must_have_the_counter():
    _, theirs = pair(3)
    with pytest.raises(RuntimeError, match=r'Missing key.*"num_batches_tracked"'):
        bridge.load_state_dict(nn.BatchNorm1d(3), old_file(theirs, 2))
    untracked, report = bridge.load_state_dict(
        nn.BatchNorm1d(3, track_running_stats=False),
        {"weight": np.ones(3, np.float32), "bias": np.ones(3, np.float32)},
    )
    assert report.missing_keys == []
    assert untracked.num_batches_tracked is None


@pytest.mark.parametrize("training", [True, False])
def test_tracking_that_was_turned_off(training):
    """Row 99: the buffers are there; training leaves them alone, evaluation uses them."""

    class Untracked(nn.BatchNorm1d):
        def __init__(self, *args):
            super().__init__(*args)
            self.track_running_stats = False

    theirs = torch.nn.BatchNorm1d(3)
    theirs(torch.randn(5, 3))
    values = {name: to_numpy(value) for name, value in theirs.state_dict().items()}
    ours, _ = bridge.load_state_dict(Untracked(3), StateDict(values))
    theirs.track_running_stats = False
    after = compare_call(bridge.train(ours, training), theirs.train(training), [torch.randn(4, 3)])
    assert int(after.num_batches_tracked) == 1


def test_half_parameters_and_another_input():
    """Row 100."""
    theirs = torch.nn.BatchNorm1d(3).half()
    ours = bridge.half(ps.init(nn.BatchNorm1d(3), 0))
    x = torch.randn(4, 3)
    check_error(lambda: ps.call(ours, to_jax(x)), lambda: theirs(x))
    assert_close(ps.call(ours, to_jax(x.half()))[0], theirs(x.half()))


def test_frozen_by_an_override_of_train():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    model = bridge.train(ps.init(nn.Sequential(Frozen(3), nn.ReLU()), 0))
    assert model(jnp.ones((2, 3))).shape == (2, 3)


@pytest.mark.parametrize("eps", [0.0, -1.0])
@pytest.mark.parametrize("training", [True, False])
def test_an_eps_that_is_not_positive(eps, training):
    ours = bridge.train(ps.init(nn.BatchNorm1d(3, eps=eps), 0), training)
    theirs = torch.nn.BatchNorm1d(3, eps=eps).train(training)
    x = torch.randn(4, 3)
    if eps == 0.0 and not training:
        assert_close(ours(to_jax(x)), theirs(x))
    else:
        check_error(lambda: ps.call(ours, to_jax(x)), lambda: theirs(x))
