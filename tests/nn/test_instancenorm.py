"""InstanceNorm beyond one call of the module database: state over time, loading, checks."""

import warnings

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
from tests.parity import assert_close, check_error, raised, to_jax, to_numpy


SHAPES = {
    "InstanceNorm1d": (2, 3, 4),
    "InstanceNorm2d": (2, 3, 4, 2),
    "InstanceNorm3d": (2, 3, 2, 2, 2),
}


def pair(name, *args, **kwargs):
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    return ps.init(getattr(nn, name)(*args, **kwargs), 0), theirs


@pytest.mark.parametrize("name", SHAPES)
def test_several_calls_with_and_without_a_batch(name):
    ours, theirs = pair(name, 3, affine=True, track_running_stats=True)
    x = torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(0))
    for step in range(2):
        ours = compare_call(ours, theirs, [(x * step + step).requires_grad_()])
        ours = compare_call(ours, theirs, [x[0]])
    assert int(ours.num_batches_tracked) == 0
    ours, theirs = bridge.eval(ours), theirs.eval()
    assert compare_call(ours, theirs, [x]) is not None
    assert ours(to_jax(x)).shape == x.shape


@pytest.mark.parametrize("momentum", [None, 0.0, 1.0])
def test_momentum(momentum):
    ours, theirs = pair("InstanceNorm1d", 3, momentum=momentum, track_running_stats=True)
    compare_call(ours, theirs, [torch.randn(2, 3, 4)])


def test_statistics_move_in_evaluation_once_tracking_was_turned_off():
    class Untracked(nn.InstanceNorm1d):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.track_running_stats = False

    theirs = torch.nn.InstanceNorm1d(3, track_running_stats=True)
    theirs.track_running_stats = False
    ours = bridge.eval(ps.init(Untracked(3, track_running_stats=True), 0))
    x = torch.randn(2, 3, 4)
    theirs.eval()(x)
    compare_state(ps.call(ours, to_jax(x))[1], theirs)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("InstanceNorm1d", (3,)),
        ("InstanceNorm1d", (2, 3, 4, 5)),
        ("InstanceNorm1d", (2, 3, 1)),
        ("InstanceNorm2d", (2, 3)),
        ("InstanceNorm3d", (2, 3)),
    ],
)
def test_refused_as_torch(name, shape, affine):
    ours, theirs = pair(name, 3, affine=affine)
    check_error(lambda: ours(jnp.ones(shape)), lambda: theirs(torch.ones(shape)))


@pytest.mark.parametrize("shape", [(2, 4, 5), (4, 5)])
def test_other_channels(shape):
    ours, theirs = pair("InstanceNorm1d", 3, affine=True)
    check_error(lambda: ours(jnp.ones(shape)), lambda: theirs(torch.ones(shape)))
    ours, theirs = pair("InstanceNorm1d", 3)
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        theirs(torch.ones(shape))
    with pytest.warns(UserWarning, match="does not match num_features") as caught:
        assert ours(jnp.ones(shape)).shape == shape
    assert [str(w.message) for w in caught] == [str(w.message) for w in expected]


@pytest.mark.parametrize("names", [("running_mean",), ("running_mean", "running_var")])
@pytest.mark.parametrize("strict", [True, False])
def test_statistics_of_a_file_without_versions(names, strict):
    values = {name: torch.ones(3) for name in names}
    ours = {name: to_numpy(value) for name, value in values.items()}
    check_error(
        lambda: bridge.load_state_dict(nn.InstanceNorm1d(3), ours, strict=strict),
        lambda: torch.nn.InstanceNorm1d(3).load_state_dict(values, strict=strict),
    )
    versioned = StateDict(ours)
    versioned.metadata = {"": {"version": 1}}
    _, report = bridge.load_state_dict(nn.InstanceNorm1d(3), versioned, strict=False)
    assert report.unexpected_keys == list(names)


def test_old_files_have_no_counter():
    model, report = bridge.load_state_dict(
        nn.InstanceNorm1d(3, track_running_stats=True),
        {"running_mean": np.ones(3, np.float32), "running_var": np.ones(3, np.float32)},
    )
    assert report.missing_keys == []
    assert bridge.state_dict(model)["num_batches_tracked"].dtype == np.int64


def test_half_and_vmap():
    ours, theirs = pair("InstanceNorm1d", 3)
    x = torch.randn(2, 3, 4)
    half = ours(to_jax(x.bfloat16()))
    assert half.dtype == jnp.bfloat16
    assert_close(half, theirs(x.bfloat16()))
    assert_close(jax.vmap(ours)(to_jax(x)), theirs(x))
    assert raised(lambda: jax.hessian(lambda x: ours(x).sum())(to_jax(x[0]))) is None
