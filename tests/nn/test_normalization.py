"""RMSNorm and the two norms across channels: dtypes, derivatives, refusals; CrossMapLRN2d in full."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

import purestate as ps
from purestate import nn
from purestate.nn import functional as F
from purestate.nn.functional._local_response import cross_map_lrn
from tests.nn.both import check_same
from tests.oracles.module_db import compare_call
from tests.parity import assert_close, check_error, check_function, to_jax


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def test_constructors():
    check_same(lambda nn: nn.RMSNorm(3))
    check_same(lambda nn: nn.RMSNorm((2, 3), eps=1e-3, elementwise_affine=False))
    check_same(lambda nn: nn.LocalResponseNorm(2))
    check_same(lambda nn: nn.LocalResponseNorm(2, 1, 2, 3))
    check_same(lambda nn: nn.CrossMapLRN2d(2))


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_rms_norm_dtypes(dtype):
    x = r(2, 3, dtype=dtype)
    for weight in (None, r(3), r(3, dtype=dtype)):
        if not (dtype.is_complex and weight is not None):
            check_function(F.rms_norm, T.rms_norm, (x, (3,), weight), gradient=False)
    small = torch.full((2,), 1e-4, dtype=dtype)
    check_function(F.rms_norm, T.rms_norm, (small, (2,)), gradient=False)


def test_double():
    with jax.enable_x64(True):
        x = r(2, 4, 3, dtype=torch.float64)
        check_function(F.rms_norm, T.rms_norm, (x, (4, 3), x[0]))
        check_function(F.rms_norm, T.rms_norm, (x, (3,), r(3)), gradient=False)
        check_function(F.local_response_norm, T.local_response_norm, (x, 2, 1.0, 0.5, 0.1))


@pytest.mark.parametrize(
    "args",
    [
        (r(2, 3), (2,)),
        (r(2, 3), ()),
        (r(2, 3), 3),
        (r(2, 3), (3,), r(2)),
        (r(2, 3).int(), (3,)),
        (r(2, 3).bool(), (3,)),
        (r(()), (1,)),
        (r(2, 3), (1, 2, 3)),
        (r(2, 3), (2, 4)),
    ],
    ids=range(9),
)
def test_rms_norm_refused_as_torch(args):
    check_error(lambda: F.rms_norm(*to_jax(list(args))), lambda: T.rms_norm(*args))


@pytest.mark.parametrize(
    "args",
    [(r(2, 3), 2), (r(2, 3, 4), 0), (r(2, 3, 4), -1), (r(2, 3, 4, 5), 0)],
    ids=range(4),
)
def test_local_response_norm_refused_as_torch(args):
    check_error(lambda: F.local_response_norm(*to_jax(args)), lambda: T.local_response_norm(*args))


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 4, 0), (1, 2, 3, 1, 2, 1)])
def test_local_response_norm_shapes(shape):
    check_function(F.local_response_norm, T.local_response_norm, (r(*shape), 3, 1.0))


def test_local_response_norm_in_half():
    x = r(2, 3, 4, dtype=torch.bfloat16)
    check_function(F.local_response_norm, T.local_response_norm, (x, 3, 1.0), gradient=False)


@pytest.mark.parametrize("name", ["rms", "lrn"])
def test_transforms(name):
    function = {
        "rms": lambda x: F.rms_norm(x, (3,)),
        "lrn": lambda x: F.local_response_norm(x, 2, 1.0),
    }[name]
    theirs = {
        "rms": lambda x: T.rms_norm(x, (3,)),
        "lrn": lambda x: T.local_response_norm(x, 2, 1.0),
    }[name]
    x = r(2, 3, 3)
    assert_close(jax.vmap(function)(to_jax(x[None])), theirs(x)[None])
    hessian = torch.autograd.functional.hessian(lambda x: (theirs(x) ** 3).sum(), x)
    assert_close(jax.hessian(lambda x: (function(x) ** 3).sum())(to_jax(x)), hessian)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("channels", [2, 9])
def test_cross_map_lrn(size, channels):
    """Output and gradient are torch's, where both differ from LocalResponseNorm's."""
    options = size, 1.0, 0.75, 0.5
    ours, theirs = ps.init(nn.CrossMapLRN2d(*options), 0), torch.nn.CrossMapLRN2d(*options)
    compare_call(ours, theirs, [r(2, channels, 2, 3).requires_grad_()])


def test_cross_map_lrn_double_and_half():
    theirs = torch.nn.CrossMapLRN2d(3, 0.1)
    x = r(1, 9, 2, 2)
    assert_close(cross_map_lrn(to_jax(x.bfloat16()), 3, 0.1, 0.75, 1.0), theirs(x.bfloat16()))
    with jax.enable_x64(True):
        check_function(nn.CrossMapLRN2d(3, 0.1), theirs, (x.double(),))
    hessian = jax.hessian(lambda x: nn.CrossMapLRN2d(3, 0.1)(x).sum())(to_jax(x))
    assert np.isfinite(hessian).all()
    assert_close(jax.vmap(nn.CrossMapLRN2d(3, 0.1))(to_jax(x)[None])[0], theirs(x))


@pytest.mark.parametrize("x", [r(2, 3, 4), r(2, 0, 3, 3), r(1, 3, 2, 2).int()], ids=range(3))
def test_cross_map_lrn_refused_as_torch(x):
    check_error(lambda: nn.CrossMapLRN2d(3)(to_jax(x)), lambda: torch.nn.CrossMapLRN2d(3)(x))


def test_models_keep_their_dtype():
    model = ps.init(nn.RMSNorm(3, dtype=jnp.bfloat16), 0)
    assert model(jnp.ones((2, 3), jnp.bfloat16)).dtype == jnp.bfloat16
    assert model(jnp.ones((2, 3))).dtype == jnp.float32
