"""Activations at their kinks and infinities, in every dtype and every mode of differentiation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests import tolerances
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, to_jax


NAN, INF = torch.nan, torch.inf
KINKS = [-6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 30.0, -100.0]

SMOOTH = ["celu", "elu", "gelu", "logsigmoid", "mish", "selu", "sigmoid", "silu", "softplus"] + [
    "softsign",
    "tanh",
    "tanhshrink",
]
STRAIGHT = ["hardsigmoid", "hardtanh", "leaky_relu", "relu", "relu6", "rrelu"]
ALL = [*SMOOTH, *STRAIGHT, "hardswish", "hardshrink", "softshrink"]

OPTIONS = [
    *((name, (), {}) for name in ALL),
    ("celu", (2.0,), {}),
    ("celu", (-2.0,), {}),
    ("elu", (0.5,), {}),
    ("elu", (-1.0,), {}),
    ("gelu", (), {"approximate": "tanh"}),
    ("hardshrink", (0.0,), {}),
    ("hardshrink", (-0.5,), {}),
    ("hardtanh", (-0.5, 3.0), {}),
    ("leaky_relu", (0.0,), {}),
    ("leaky_relu", (-1.0,), {}),
    ("rrelu", (0.25, 0.25, True), {}),
    ("softplus", (-1.0,), {}),
    ("softplus", (0.0,), {}),
    ("softplus", (0.5, 2.0), {}),
    ("softshrink", (0.0,), {}),
    ("softshrink", (3.0,), {}),
    ("threshold", (0.5, 7.0), {}),
    ("threshold", (-3.0, -9.0), {}),
]


def each(function):
    """A torch function of one number at a time: torch's vectors disagree with its scalars at NaN."""
    return lambda x, *args, **kwargs: torch.stack([function(v, *args, **kwargs) for v in x])


@pytest.mark.parametrize(("name", "args", "options"), OPTIONS)
def test_values_and_derivatives_at_the_kinks(name, args, options):
    points = torch.tensor([*KINKS, NAN, INF, -INF])
    check_function(getattr(F, name), each(getattr(T, name)), (points, *args), options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "args", "options"), OPTIONS)
def test_halves_are_computed_wide_and_rounded_once(name, args, options, dtype):
    if name == "rrelu":
        args = args[:2]  # In training torch has no kernel for float16 on the CPU.
    points = torch.tensor([*KINKS, 0.1, -0.1, 2.3]).to(dtype)
    check_function(getattr(F, name), getattr(T, name), (points, *args), options)
    assert getattr(F, name)(to_jax(points), *args, **options).dtype == to_jax(points).dtype


def test_float64():
    points = torch.tensor([*KINKS, 0.1, -0.1, 2.3], dtype=torch.float64)
    with jax.enable_x64(True):
        for name in ALL:
            # Torch's derivative of hardsigmoid is 1/6 in single precision.
            exact = name != "hardsigmoid"
            check_function(getattr(F, name), getattr(T, name), (points,), gradient=exact)


@pytest.mark.parametrize("name", [*ALL, "glu"])
def test_forward_mode_vmap_and_second_derivatives(name):
    function = getattr(F, name)
    x = torch.tensor([[-2.5, -0.4], [0.3, 2.2], [0.0, 0.0]] if name != "hardswish" else [[-2.5, 0.3]])
    array = to_jax(x)
    tangent = jax.jvp(function, (array,), (jnp.ones_like(array),))[1]
    np.testing.assert_allclose(tangent, jax.jacfwd(lambda t: function(array + t))(0.0), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(function)(array), function(array), rtol=1e-6)
    x.requires_grad_()
    (first,) = torch.autograd.grad(getattr(T, name)(x).sum(), x, create_graph=True)
    # Torch has no second derivative of hardsigmoid.
    straight = name == "hardsigmoid" or not first.requires_grad
    second = torch.zeros_like(x) if straight else torch.autograd.grad(first.sum(), x)[0]
    gradient = jax.grad(lambda x: function(x).sum())
    actual = jax.jvp(gradient, (array,), (jnp.ones_like(array),))[1]
    assert_close(actual, second, table=tolerances.GRADIENT)


def test_the_slope_of_an_infinite_input_has_a_derivative():
    x = torch.tensor([[INF, -2.0], [3.0, 0.0]])
    check_function(F.prelu, T.prelu, (x, torch.tensor([0.25, 0.5])))
    check_function(F.prelu, T.prelu, (x.half(), torch.tensor(0.25).half()))


def test_glu():
    x = torch.randn(4, 6, 2)
    for dim in (0, 1, -1):
        check_function(F.glu, T.glu, (x, dim))
    check_function(F.glu, T.glu, (x.bfloat16(), 0))


def test_an_option_that_changes_compiles_once():
    for function in (F.leaky_relu, F.elu, F.hardshrink, F.softplus):
        function: Any = function
        function(jnp.ones(3), 0.1)
        compiled = function._cache_size()
        function(jnp.ones(3), 0.2)
        assert function._cache_size() == compiled


INTEGERS = ["relu", "relu6", "hardtanh", "sigmoid", "tanh", "softsign", "tanhshrink"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    x = torch.arange(-3, 9, dtype=torch.int32)
    check_function(getattr(F, name), getattr(T, name), (x,))


def test_bounds_of_integers_are_truncated():
    x = torch.arange(-3, 9, dtype=torch.int32)
    check_function(F.hardtanh, T.hardtanh, (x, -1.5, 2.5))
    check_function(F.threshold, T.threshold, (x, 0.5, 1.9))
    check_function(F.threshold, T.threshold, (x, -2.5, -1.9))
    check_function(F.hardtanh, T.hardtanh, (x.byte(), -0.5, 2.5))
    check_function(F.threshold, T.threshold, (x.byte(), 2, -2))


EXTRA = {"threshold": (0.0, 1.0), "softmax": (-1,), "log_softmax": (0,), "softmin": (-1,)}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("name", [*ALL, "glu", "prelu", *EXTRA])
def test_dtypes_are_accepted_or_refused_as_torch_does(name, dtype):
    x = torch.ones(2, 4).to(dtype)
    extra = EXTRA.get(name, ())
    if name == "prelu":
        extra = (torch.ones(1).to(dtype),)
    try:
        expected = getattr(T, name)(x, *extra)
    except (RuntimeError, NotImplementedError):
        both(name, x, *extra)
    else:
        actual = getattr(F, name)(to_jax(x), *to_jax(extra))
        assert str(actual.dtype) == str(expected.dtype).removeprefix("torch.")
        assert_close(actual, expected)


def both(name, *args, **kwargs):
    check_error(
        lambda: getattr(F, name)(*to_jax(list(args)), **to_jax(kwargs)),
        lambda: getattr(T, name)(*args, **kwargs),
    )


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("prelu", (X, torch.ones(2))),
        ("prelu", (X, torch.ones(0))),
        ("prelu", (X, torch.ones(2, 2))),
        ("prelu", (X, torch.ones(1, 1))),
        ("prelu", (torch.ones(()), torch.ones(2))),
        ("prelu", (X, torch.ones(3).half())),
        ("prelu", (X.int(), torch.ones(3))),
        ("gelu", (X,)),
        ("glu", (X,)),
        ("glu", (torch.ones(()),)),
        ("glu", (X, 2)),
        ("celu", (X, 0.0)),
        ("hardtanh", (X, 2.0, 1.0)),
        ("hardtanh", (X.byte(), -2.0, 1.0)),
        ("hardtanh", (X.to(torch.int8), 0.0, 300.0)),
        ("threshold", (X.to(torch.int8), 300, 0)),
        ("threshold", (X.byte(), 0, -256)),
        ("threshold", (X.int(), 0, INF)),
        ("softshrink", (X, -1)),
        ("softshrink", (X, NAN)),
        ("softshrink", (X.half(), 1e6)),
        ("softshrink", (X.bfloat16(), -0.5)),
        ("rrelu", (X, 0.5, 0.25)),
        ("rrelu", (X, -INF, 0.25)),
        ("rrelu", (X, 0.5, NAN, True)),
        ("rrelu", (X.int(), 0.5, 0.75, True)),
    ],
    ids=op_db.describe,
)
def test_errors(name, args):
    both(name, *args, **({"approximate": "exact"} if name == "gelu" else {}))


@pytest.mark.parametrize("name", ["prelu", "rrelu", "softshrink"])
def test_database_errors(name):
    for args, kwargs in op_db.errors(name):
        both(name, *args, **kwargs)


def test_rrelu_draws_a_slope_for_each_element():
    x = jnp.concatenate([-jnp.ones(20000), jnp.array([0.0, 3.0, jnp.nan, jnp.inf, -jnp.inf])])
    key = jax.random.key(0)

    def total(x, key):
        y = F.rrelu(x, 0.1, 0.5, True, rng=key)
        return y.sum(), y

    (slopes, y), again = jax.grad(total, has_aux=True)(x, key), F.rrelu(x, 0.1, 0.5, True, rng=key)
    np.testing.assert_array_equal(y, again)
    assert not np.array_equal(y, F.rrelu(x, 0.1, 0.5, True, rng=jax.random.key(1)), equal_nan=True)
    np.testing.assert_allclose(y[:20000], -slopes[:20000])
    drawn = np.asarray(slopes[:20000])
    assert drawn.min() >= 0.1
    assert drawn.max() < 0.5
    assert abs(drawn.mean() - 0.3) < 4 * 0.4 / np.sqrt(12 * 20000)
    assert abs(drawn.std() - 0.4 / np.sqrt(12)) < 0.002
    # Zero counts as below; NaN does not.
    np.testing.assert_array_equal(y[20000:], [0.0, 3.0, np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(slopes[20001:20004], np.ones(3))
    assert 0.1 <= slopes[20000] < 0.5
    half = F.rrelu(x.astype(jnp.bfloat16), training=True, rng=key)
    assert half.dtype == jnp.bfloat16


def test_rrelu_without_a_key_says_what_to_write():
    with pytest.raises(ValueError, match=r"rng=self.next_key\(\)"):
        F.rrelu(jnp.ones(3), training=True)
