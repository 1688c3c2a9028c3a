"""Shuffles: any dtype, transformations, and the errors. The values are the database's business."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import check_error, check_function, to_jax


NAMES = ["pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name, dtype):
    values = torch.arange(2 * 4 * 4 * 2).reshape(2, 4, 4, 2).to(dtype)
    has_gradient = name != "native_channel_shuffle"  # none in torch
    check_function(getattr(F, name), getattr(T, name), (values, 2), gradient=has_gradient)
    assert getattr(F, name)(to_jax(values), 2).dtype == to_jax(dtype)


def test_one_undoes_the_other():
    values = jnp.arange(2 * 8 * 4 * 2.0).reshape(2, 8, 4, 2)
    np.testing.assert_array_equal(F.pixel_unshuffle(F.pixel_shuffle(values, 2), 2), values)


@pytest.mark.parametrize("name", NAMES)
def test_transformations(name):
    function = getattr(F, name)
    batch = jnp.arange(3 * 4 * 4 * 2.0).reshape(3, 1, 4, 4, 2)
    mapped = jax.vmap(lambda one: function(one, 2))(batch)
    np.testing.assert_array_equal(mapped, np.stack([function(one, 2) for one in batch]))
    hessian = jax.hessian(lambda v: (function(v, 2) ** 2).sum())(batch[0]).reshape(32, 32)
    np.testing.assert_array_equal(hessian, 2 * np.eye(32))


def r(*shape):
    return torch.zeros(*shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "args",
    [
        (r(2, 4), 2),
        (r(2), 2),
        (r(2, 4, 4, 4), 0),
        (r(2, 4, 4, 4), -1),
        (r(2, 4, 4, 4), 2.0),
        (r(2, 4, 4, 4), (2,)),
        (r(2, 4, 4, 4), True),
        (r(2, 3, 5, 5), 2),
        (r(2, 3, 4, 5), 2),
    ],
    ids=op_db.describe,
)
def test_errors(name, args):
    check_error(lambda: getattr(F, name)(*to_jax(args)), lambda: getattr(T, name)(*args))


@pytest.mark.parametrize("name", NAMES[:3])
def test_database_errors(name):
    for args, kwargs in op_db.errors(name):
        check_error(
            lambda args=args, kwargs=kwargs: getattr(F, name)(*to_jax(list(args)), **kwargs),
            lambda args=args, kwargs=kwargs: getattr(T, name)(*args, **kwargs),
        )
