"""Conversions next to torch's: what a function of every array reaches, ties, models without values.

The number in a name is the row of torch's contract.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from tests.differential.sides import OURS, TORCH, construct, outcome


def net(side, m):
    """Arrays of every kind, a tie of parameters and one of buffers."""
    m.weight = side.nn.Parameter(side.array([1.0]))
    m.tied = m.weight
    m.frozen = side.nn.Parameter(side.array([2]), requires_grad=False)
    m.register_buffer("count", side.array([3], "int32"))
    m.register_buffer("flag", side.array([True], "bool"), persistent=False)
    m.shift = side.nn.Buffer(side.array([4.0]))
    m.other = m.shift
    m.plain = side.array([5.0])
    m.child = side.nn.Linear(1, 1)


def dtypes(model):
    named = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
        ("plain", model.plain),
    )
    return {name: str(value.dtype).removeprefix("torch.") for name, value in named}


def models():
    return construct(TORCH, net), ps.init(construct(OURS, net), 0)


def test_a_function_of_every_array_82():
    """Torch's ``_apply`` is ``jax.tree.map``, which comes once to a tie; torch comes once a name."""

    def build(side, m):
        net(side, m)
        del m.child

    theirs, ours = construct(TORCH, build), construct(OURS, build)
    theirs._apply(lambda t: t + 1)
    ours = jax.tree.map(lambda a: a + jnp.ones_like(a), ours)
    for name in ("frozen", "count", "shift", "other", "plain"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
    assert ours.weight is ours.tied
    assert theirs.weight is theirs.tied
    assert (ours.weight.tolist(), theirs.weight.tolist()) == ([2.0], [3.0])


@pytest.mark.parametrize("dtype", ["float16", "complex64"])
def test_to_84(dtype):
    theirs, ours = models()
    with warnings.catch_warnings():  # Torch says that complex modules are new.
        warnings.simplefilter("ignore")
        theirs = theirs.to(getattr(torch, dtype))
    assert dtypes(bridge.to(ours, dtype)) == dtypes(theirs)


def test_a_cast_of_everything_85():
    """Torch's ``type`` casts integers and booleans too, and not where that stops a gradient."""
    theirs, ours = models()
    cast = jax.tree.map(lambda a: a.astype(jnp.float16), ours)
    assert dtypes(cast) == dtypes(theirs.type(torch.float16))
    assert "bridge.to" in str(outcome(lambda: ours.type(jnp.float16)))
    refused = outcome(lambda: construct(TORCH, net).type(torch.int32))
    assert refused is not None
    assert refused[0] == "RuntimeError"


def test_a_conversion_returns_86():
    """Torch's model changes and is returned; here another one is."""
    theirs, ours = models()
    before = dtypes(ours)
    assert theirs.half() is theirs
    assert dtypes(bridge.half(ours)) == dtypes(theirs)
    assert dtypes(ours) == before


def test_ties_in_conversions_87():
    """Torch keeps those of parameters in a cast and loses all on the way to no values."""
    theirs, ours = models()
    theirs.half()
    assert (theirs.weight is theirs.tied, theirs.shift is theirs.other) == (True, False)
    bare = construct(TORCH, net).to("meta")
    assert (bare.weight is bare.tied, bare.shift is bare.other) == (False, False)
    filled, _ = bridge.load_state_dict(ps.abstract(ours), bridge.state_dict(ours), strict=False)
    for changed in (bridge.half(ours), ps.abstract(ours), filled):
        assert changed.weight is changed.tied
        assert changed.shift is changed.other


def test_a_model_without_values_88():
    """``to_empty`` on the meta device is ``abstract``; torch's on another device has any values."""
    theirs, ours = models()
    empty = ps.abstract(ours)
    assert dtypes(empty) == dtypes(theirs.to_empty(device="meta"))
    refused = outcome(lambda: theirs.to("cpu"))
    assert refused is not None
    assert refused[0] == "NotImplementedError"
    placed = bridge.to(empty, device=jax.devices()[1])
    assert placed.child.weight.sharding.device_set == {jax.devices()[1]}
    filled, _ = bridge.load_state_dict(placed, bridge.state_dict(ours), strict=False)
    np.testing.assert_array_equal(filled.child.weight, ours.child.weight)
    assert filled.child.weight.devices() == {jax.devices()[1]}
