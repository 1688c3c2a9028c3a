"""Activations against torch's operator database, at their kinks, in every mode of differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_function, to_jax


NAMED = ["relu", "relu6", "leaky_relu", "prelu", "gelu", "silu", "hardswish", "hardsigmoid"] + [
    "hardtanh",
    "elu",
    "softplus",
    "mish",
]
PLAIN = ["sigmoid", "tanh", "softmax", "log_softmax"]


@pytest.mark.parametrize("name", NAMED + PLAIN)
def test_samples(name):
    theirs = getattr(torch, name) if name in PLAIN else None
    op_db.check(name, getattr(F, name), *([theirs] if theirs else []))


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "leaky_relu", "hardswish", "hardsigmoid", "hardtanh"]
)
def test_values_and_derivatives_at_the_kinks(name):
    points = torch.tensor([-3.0, -1.0, -0.0, 0.0, 1.0, 3.0, 6.0, torch.nan, torch.inf, -torch.inf])
    if name in ("hardswish", "hardsigmoid"):
        # Torch's derivative of these at NaN is a number; here NaN stays NaN or becomes another one.
        check_function(getattr(F, name), getattr(T, name), (points[7:8],), gradient=False)
        points = points[:7]
    check_function(getattr(F, name), getattr(T, name), (points,))


@pytest.mark.parametrize("name", [n for n in NAMED if n != "prelu"])
def test_forward_mode_vmap_and_second_derivatives(name):
    function = getattr(F, name)
    x = jnp.array([-2.5, -0.4, 0.3, 2.2])
    tangent = jax.jvp(function, (x,), (jnp.ones_like(x),))[1]
    np.testing.assert_allclose(tangent, jax.vmap(jax.grad(function))(x), rtol=1e-5)
    t = torch.tensor(np.asarray(x), requires_grad=True)
    (first,) = torch.autograd.grad(getattr(T, name)(t).sum(), t, create_graph=True)
    linear = name == "hardsigmoid" or not first.requires_grad  # Torch has no second derivative.
    second = torch.zeros(4) if linear else torch.autograd.grad(first.sum(), t)[0]
    assert_close(jax.vmap(jax.grad(jax.grad(function)))(x), second)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_the_implicit_axis_warns_and_is_torchs(name, shape):
    x = torch.randn(shape)
    with pytest.warns(UserWarning, match="Implicit dimension") as theirs:
        expected = getattr(T, name)(x)
    with pytest.warns(UserWarning, match="Implicit dimension") as ours:
        actual = getattr(F, name)(to_jax(x))
    assert_close(actual, expected)
    assert str(ours[0].message) == str(theirs[0].message)


def test_errors():
    with pytest.raises(IndexError, match=r"\[-2, 1\], but got 2"):
        F.softmax(jnp.ones((2, 2)), dim=2)
    with pytest.raises(RuntimeError, match="either none or tanh"):
        F.gelu(jnp.ones(2), approximate="exact")
    with pytest.raises(RuntimeError) as ours:
        F.prelu(jnp.ones((2, 3)), jnp.ones(2))
    with pytest.raises(RuntimeError) as theirs:
        T.prelu(torch.ones(2, 3), torch.ones(2))
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("name", [*NAMED, "sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_stays_half(name, dtype):
    extra = (jnp.ones(1, dtype),) if name == "prelu" else ()
    assert getattr(F, name)(jnp.ones((2, 3), dtype), *extra).dtype == dtype
