"""Columns of blocks: every option, dtypes and refusals."""

import jax
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, to_jax


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((4, 4), (2,)),
        ((5, 6), ((2, 3), 1, 1, 2)),
        ((7, 7), ([3, 3], 2, 1, (2, 1))),
        ((6, 6), ((3, 2), (1, 2), (1, 0), 3)),
    ],
    ids=op_db.describe,
)
def test_there_and_back(sizes, options):
    image = torch.randn(2, 3, *sizes)
    columns = torch.randn(T.unfold(image, *options).shape)
    check_function(F.unfold, T.unfold, (image, *options))
    check_function(F.fold, T.fold, (columns, sizes, *options))
    check_function(F.unfold, T.unfold, (image[0], *options))
    check_function(F.fold, T.fold, (columns[0], sizes, *options))


def test_fold_is_the_transpose_of_unfold():
    image = to_jax(torch.randn(1, 2, 5, 5))
    columns = to_jax(torch.randn(1, 18, 9))
    (back,) = jax.vjp(lambda x: F.unfold(x, 3), image)[1](columns)
    assert_close(F.fold(columns, 5, 3), back)
    (there,) = jax.vjp(lambda x: F.fold(x, 5, 3), columns)[1](image)
    assert_close(F.unfold(image, 3), there)


def test_an_empty_batch():
    check_function(F.unfold, T.unfold, (r(0, 3, 4, 4), 2))
    check_function(F.fold, T.fold, (r(0, 12, 9), 4, 2))


def test_booleans_and_complex_numbers():
    columns = torch.rand(1, 12, 9) > 0.7
    check_function(F.fold, T.fold, (columns, 4, 2))
    check_function(F.unfold, T.unfold, (columns[None], 2))
    check_function(F.fold, T.fold, (torch.randn(1, 12, 9, dtype=torch.complex64), 4, 2))


UNFOLD = [
    (r(3, 4), 2),
    (r(1, 1, 3, 4, 4), 2),
    (r(1, 3, 4, 4), (2, 5)),
    (r(1, 3, 4, 4), 0),
    (r(1, 3, 4, 4), 2, 0, -1, 0),
    (r(1, 3, 4, 4), 2, 1, -1, 0),
    (r(1, 3, 4, 4), 2, 1, 0, -1),
    (r(1, 3, 4, 4), (2,)),
    (r(1, 3, 4, 4), 2, (1, 1, 1)),
    (r(1, 3, 4, 4), 2, 1, ()),
    (r(1, 3, 4, 4), 2, 1, 0, (1,)),
    (torch.tensor(1.0), 2),
    (r(1, 0, 4, 4), 2),
    (r(0, 4, 4), 2),
    (r(1, 3, 4, 4, dtype=torch.int32), 2),
]
FOLD = [
    (r(12), 4, 2),
    (r(1, 1, 12, 9), 4, 2),
    (r(11, 9), 4, 2),
    (r(1, 12, 8), 4, 2),
    (r(1, 12, 9), 0, 2),
    (r(1, 12, 4), 0, 1, 1, 1),
    (r(1, 12, 9), (4,), 2),
    (r(1, 12, 9), 4, 0),
    (r(1, 12, 9), 4, 2, 0, -1, 0),
    (r(1, 12, 9), 4, 2, 0, -1),
    (r(1, 12, 9), 4, 2, 1, -1),
    (r(1, 12, 9), 4, 2, 5),
    (r(1, 0, 9), 4, 2),
    (r(0, 9), 4, 2),
    (r(1, 12, 9, dtype=torch.int32), 4, 2),
]


@pytest.mark.parametrize(
    ("name", "args"),
    [("unfold", args) for args in UNFOLD] + [("fold", args) for args in FOLD],
    ids=op_db.describe,
)
def test_refusals(name, args):
    check_error(lambda: getattr(F, name)(*to_jax(list(args))), lambda: getattr(T, name)(*args))
