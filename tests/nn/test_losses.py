"""The loss layers beyond the module database: their weights are state, and the old arguments."""

import jax.numpy as jnp
import pytest
import torch

import bridge
from purestate import nn
from tests.nn.both import check_same


@pytest.mark.parametrize(
    "name", ["CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss", "MSELoss", "L1Loss"]
)
def test_built_as_torch(name):
    check_same(lambda nn: getattr(nn, name)())
    check_same(lambda nn: getattr(nn, name)(reduction="sum"))


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss", "BCELoss", "BCEWithLogitsLoss"])
def test_weights_are_buffers(name):
    layer = getattr(nn, name)(weight=jnp.ones(3))
    assert [key for key, _ in layer.named_buffers()] == ["weight"]
    assert list(bridge.state_dict(layer)) == list(
        getattr(torch.nn, name)(weight=torch.ones(3)).state_dict()
    )
    assert bridge.half(layer).weight.dtype == jnp.float16


def test_positive_weight_is_a_buffer():
    layer = nn.BCEWithLogitsLoss(pos_weight=jnp.ones(3))
    assert list(bridge.state_dict(layer)) == ["pos_weight"]


@pytest.mark.parametrize("size_average", [None, True, False])
@pytest.mark.parametrize("reduce", [None, True, False])
def test_old_arguments(size_average, reduce):
    if size_average is None and reduce is None:
        assert nn.MSELoss(None, None).reduction == "mean"
        return
    with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated") as ours:
        layer = nn.MSELoss(size_average, reduce)
    with pytest.warns(UserWarning, match="size_average") as theirs:
        assert layer.reduction == torch.nn.MSELoss(size_average, reduce).reduction
    assert str(ours[0].message) == str(theirs[0].message)
    assert ours[0].filename == __file__


def test_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="some is not a valid value for reduction"):
        nn.MSELoss(reduction="some")(jnp.ones(2), jnp.ones(2))
