"""The bilinear map against torch: shapes, dtypes, transforms and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import check_error, check_function, to_jax


def r(*shape):
    return torch.randn(shape)


WEIGHT, BIAS = r(5, 3, 4), r(5)


@pytest.mark.parametrize("batch", [(), (2,), (0,), (2, 3)])
def test_batches(batch):
    check_function(F.bilinear, T.bilinear, (r(*batch, 3), r(*batch, 4), WEIGHT, BIAS))
    check_function(F.bilinear, T.bilinear, (r(*batch, 3), r(*batch, 4), WEIGHT))


def test_dtypes():
    half = [x.bfloat16() for x in (r(2, 3), r(2, 4), WEIGHT, BIAS)]
    check_function(F.bilinear, T.bilinear, half)
    assert F.bilinear(*to_jax(half)).dtype == jnp.bfloat16
    whole = [(x * 3).int() for x in (r(2, 3), r(2, 4), WEIGHT, BIAS)]
    check_function(F.bilinear, T.bilinear, whole)
    with jax.enable_x64(True):
        check_function(F.bilinear, T.bilinear, [x.double() for x in (r(2, 3), r(2, 4), WEIGHT, BIAS)])


def test_transforms():
    x1, x2, weight = to_jax([r(2, 3), r(2, 4), WEIGHT])
    batched = jax.vmap(F.bilinear, in_axes=(0, 0, None))(x1, x2, weight)
    np.testing.assert_allclose(batched, F.bilinear(x1, x2, weight), rtol=1e-5, atol=1e-6)
    _, tangent = jax.jvp(lambda x1: F.bilinear(x1, x2, weight), (x1,), (x1,))
    np.testing.assert_allclose(tangent, batched, rtol=1e-5, atol=1e-6)
    mixed = jax.jacfwd(jax.grad(lambda x1, x2: F.bilinear(x1, x2, weight)[0]), 1)
    np.testing.assert_allclose(mixed(x1[0], x2[0]), weight[0], rtol=1e-6)


@pytest.mark.parametrize(
    "args",
    [
        (r(2, 3), r(3, 4), WEIGHT),
        (r(2, 1, 3), r(2, 2, 4), WEIGHT),
        (r(2, 3), r(2, 2, 4), WEIGHT),
        (r(2, 3), r(2, 5), WEIGHT),
        (r(2, 2), r(2, 4), WEIGHT),
        (r(2, 3), r(2, 4), WEIGHT, r(4)),
        (r(2, 3), r(2, 4), WEIGHT, r(1)),
        (r(2, 3), r(2, 4), WEIGHT, r()),
        (r(2, 3), r(2, 4), r(5, 3)),
        (r(2, 3), r(2, 4), r(5, 3, 4, 1)),
        (r(), r(), WEIGHT),
        (r(2, 3), r(2, 4).half(), WEIGHT),
        (r(2, 3).half(), r(2, 4), WEIGHT, BIAS),
        (r(2, 3), r(2, 4), WEIGHT.half()),
        (r(2, 3), r(2, 4), WEIGHT, BIAS.bfloat16()),
        (r(2, 3).bool(), r(2, 4).bool(), WEIGHT.bool()),
    ],
    ids=lambda args: "-".join(f"{x.dtype}{list(x.shape)}" for x in args),
)
def test_errors(args):
    check_error(lambda: F.bilinear(*to_jax(args)), lambda: T.bilinear(*args))
