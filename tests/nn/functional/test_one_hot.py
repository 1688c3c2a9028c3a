"""One-hot vectors: the number of classes, and what is checked where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import check_error, check_function, to_jax


def classes(*values):
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize(
    "args",
    [
        (classes(0, 2, 1),),
        (classes(0, 2, 1), 4),
        (classes(2)[0],),
        (classes(), 3),
        (classes(1)[None], 2),
    ],
    ids=op_db.describe,
)
def test_values(args):
    check_function(F.one_hot, T.one_hot, args)


def test_dtype():
    assert F.one_hot(jnp.array([1])).dtype == jnp.int32
    with jax.enable_x64(True):
        assert F.one_hot(jnp.array([1])).dtype == jnp.int64


@pytest.mark.parametrize(
    "args",
    [
        (classes(0, 2), 2),
        (classes(0, -2), 2),
        (classes(0, -2),),
        (classes(0, 2), 0),
        (classes(0, 2), -2),
        (classes(),),
        (classes(), 0),
        (classes(), -2),
        (classes(0).float(),),
        (classes(0).bool(),),
        (classes(0).short(), 2),
    ],
    ids=op_db.describe,
)
def test_errors(args):
    check_error(lambda: F.one_hot(*to_jax(list(args))), lambda: T.one_hot(*args))


def test_values_that_are_not_known():
    hidden = jax.jit(F.one_hot, static_argnums=1)
    np.testing.assert_array_equal(hidden(jnp.array([1, -1, 3]), 3), [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match=r"write: one_hot\(x, num_classes=\.\.\.\)"):
        jax.vmap(F.one_hot)(jnp.array([1, 2]))
    with pytest.raises(RuntimeError, match="must be smaller than num_classes"):
        hidden(jnp.array([0]), 0)
