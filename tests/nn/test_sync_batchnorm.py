"""SyncBatchNorm over a mapped axis against torch's BatchNorm on the whole batch."""

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.sharding import PartitionSpec as P

import bridge
import purestate as ps
from purestate import nn
from tests import tolerances
from tests.nn.both import check_same
from tests.oracles.module_db import compare_call, compare_state
from tests.parity import assert_close, check_error, cotangent, to_jax


def batch(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 3 + 1


def expected(theirs, x):
    """Output and the gradients by input and parameters of the whole batch, in one process."""
    x = x.clone().requires_grad_()
    output = theirs(x)
    loss = (output * torch.from_numpy(cotangent(output.shape)).float()).sum()
    return output, torch.autograd.grad(loss, [x, *theirs.parameters()])


def loss_of(run):
    """The same weighted sum of what ``run(params, x)`` gives, and the model after it."""

    def loss(params, x):
        output, after = run(params, x)
        weights = jnp.asarray(cotangent(x.shape), jnp.float32)
        return jnp.sum(output.reshape(x.shape) * weights), (output, after)

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)


def compare(result, wanted, theirs):
    (_, (output, after)), (by_params, by_input) = result
    theirs_output, (theirs_input, *theirs_params) = wanted
    assert_close(output.reshape(theirs_output.shape), theirs_output)
    assert_close(by_input, theirs_input, table=tolerances.GRADIENT)
    for ours, grad in zip(by_params.values(), theirs_params, strict=True):
        assert_close(ours, grad, table=tolerances.GRADIENT)
    compare_state(after, theirs)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_under_vmap(momentum):
    theirs = torch.nn.SyncBatchNorm(3, momentum=momentum)
    x = batch(6, 3, 4)
    wanted = expected(theirs, x)
    model = ps.init(nn.SyncBatchNorm(3, momentum=momentum, process_group="data"), 0)
    definition, params, buffers = ps.split(model)

    def run(params, x):
        members = x.reshape(3, 2, 3, 4)
        call = jax.vmap(ps.call, in_axes=(None, 0), axis_name="data")
        output, after = call(ps.merge(definition, params, buffers), members)
        return output, jax.tree.map(lambda leaf: leaf[0], after)

    compare(loss_of(run)(params, to_jax(x)), wanted, theirs)


def test_under_shard_map_over_two_devices():
    assert jax.device_count() == 2
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    theirs = torch.nn.BatchNorm2d(3)
    x = batch(4, 3, 2, 2)
    wanted = expected(theirs, x)
    definition, params, buffers = ps.split(ps.init(nn.SyncBatchNorm(3, process_group="data"), 0))

    def run(params, x):
        return jax.shard_map(ps.call, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P("data"), P()))(
            ps.merge(definition, params, buffers), x
        )

    compare(jax.jit(loss_of(run))(params, to_jax(x)), wanted, theirs)


def test_over_two_axes_at_once():
    theirs = torch.nn.BatchNorm1d(3)
    x = batch(8, 3)
    model = ps.init(nn.SyncBatchNorm(3, process_group=["a", "b"]), 0)
    inner = jax.vmap(ps.call, in_axes=(None, 0), axis_name="a")
    outer = jax.vmap(inner, in_axes=(None, 0), axis_name="b")
    output, after = outer(model, to_jax(x).reshape(2, 2, 2, 3))
    assert_close(output.reshape(8, 3), theirs(x))
    compare_state(jax.tree.map(lambda leaf: leaf[0, 0], after), theirs)


def test_one_value_per_member_is_enough_in_a_group():
    theirs = torch.nn.BatchNorm1d(3)
    x = batch(2, 3)
    model = ps.init(nn.SyncBatchNorm(3, process_group="data"), 0)
    call = jax.vmap(ps.call, in_axes=(None, 0), axis_name="data")
    assert_close(call(model, to_jax(x)[:, None])[0][:, 0], theirs(x))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        call(model, to_jax(x)[:1, None])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"track_running_stats": False}, {"affine": False}], ids=str)
def test_without_a_group_it_is_a_batch_norm(training, options):
    theirs = torch.nn.SyncBatchNorm(3, **options).train(training)
    ours = bridge.train(ps.init(nn.SyncBatchNorm(3, **options), 0), training)
    compare_call(ours, theirs, [batch(4, 3, 2).requires_grad_()])


def test_nothing_is_exchanged_in_evaluation():
    ours = bridge.eval(ps.init(nn.SyncBatchNorm(3, process_group="data"), 0))
    assert ours(jnp.ones((2, 3))).shape == (2, 3)
    with pytest.raises(NameError, match="data"):
        ps.call(bridge.train(ours), jnp.ones((2, 3)))


@pytest.mark.parametrize("shape", [(3,), (3, 0), (1, 3), (2, 4)])
def test_refused_as_torch(shape):
    ours, theirs = ps.init(nn.SyncBatchNorm(3), 0), torch.nn.SyncBatchNorm(3)
    check_error(lambda: ps.call(ours, jnp.ones(shape)), lambda: theirs(torch.ones(shape)))


def network(nn):
    return nn.Sequential(
        nn.Conv2d(2, 3, 1),
        nn.BatchNorm2d(3, eps=1e-3, momentum=None, bias=False),
        nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.InstanceNorm2d(3)),
        nn.BatchNorm2d(3, track_running_stats=False),
    )


def test_conversion():
    check_same(lambda nn: nn.SyncBatchNorm(3, momentum=None, bias=False))
    check_same(lambda nn: nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3)))
    theirs = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network(torch.nn))
    before = bridge.eval(bridge.requires_grad(ps.init(network(nn), 0), False, "1"))
    after = nn.SyncBatchNorm.convert_sync_batchnorm(before, "data")
    assert repr(after) == repr(theirs)
    assert repr(before) != repr(theirs)
    assert [m.process_group for m in after.modules() if isinstance(m, nn.SyncBatchNorm)] == ["data"] * 3
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert old is new
    assert list(ps.split(after)[1]) == list(ps.split(before)[1])
    assert not after[1].training
    again = nn.SyncBatchNorm.convert_sync_batchnorm(after)
    assert again[1].process_group is None


def test_conversion_keeps_what_is_shared():
    norm = nn.BatchNorm1d(3)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(ps.init(nn.Sequential(norm, norm), 0))
    assert model[0] is model[1]
    assert isinstance(model[0], nn.SyncBatchNorm)


def test_conversion_of_a_lazy_layer_is_refused():
    with pytest.raises(ValueError, match=r"'0' is a LazyBatchNorm1d .*\n.*purestate.init"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))
