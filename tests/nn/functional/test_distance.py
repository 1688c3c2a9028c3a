"""Norms and distances: every exponent, vectors of zeros, ties, dtypes and refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_error, check_function, to_jax


INF, NAN = torch.inf, torch.nan
EXPONENTS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF, -INF, -1.0]
# A row of zeros, zeros in a row, a tie of the greatest, signed zeros.
ROWS = torch.tensor([[0.0, 0, 0, 0], [0, 1, -2, 0.5], [3, -3, 1, 2], [-0.0, 1, 1, 1]])


@pytest.mark.parametrize("p", EXPONENTS)
def test_normalize(p):
    check_function(F.normalize, T.normalize, (ROWS, p))
    check_function(F.normalize, T.normalize, (ROWS, p, 0, 0.5))


def test_normalize_over_several_axes():
    x = torch.randn(2, 3, 4)
    for dim in [(0, 2), (-1, 0), ()]:
        check_function(F.normalize, T.normalize, (x,), {"dim": dim})


@pytest.mark.parametrize("p", EXPONENTS)
def test_pairwise_distance(p):
    other = ROWS[[0, 2, 2, 1]]
    # Without eps the difference of equal rows is zero.
    for eps in (1e-6, 0.0):
        check_function(F.pairwise_distance, T.pairwise_distance, (ROWS, other, p, eps))
    check_function(F.pairwise_distance, T.pairwise_distance, (ROWS, ROWS[1], p, 1e-6, True))


@pytest.mark.parametrize("p", [p for p in EXPONENTS if p >= 0])
def test_pdist(p):
    rows = torch.cat([ROWS, ROWS[1:2], torch.tensor([[1.0, 1.0, 1.0, 1.0]])])
    check_function(F.pdist, T.pdist, (rows, p))


def test_pdist_of_few_rows_and_no_columns():
    for shape in [(0, 2), (1, 2), (3, 0), (0, 0)]:
        check_function(F.pdist, T.pdist, (torch.ones(shape),), gradient=False)
    check_function(F.pdist, T.pdist, (torch.ones(3, 0), INF), gradient=False)


def test_cosine_similarity():
    other = ROWS[[2, 1, 0, 2]]
    for dim in (0, 1, -1):
        check_function(F.cosine_similarity, T.cosine_similarity, (ROWS, other, dim))
    check_function(F.cosine_similarity, T.cosine_similarity, (ROWS, other), {"eps": 3.0})
    check_function(F.cosine_similarity, T.cosine_similarity, (ROWS, ROWS[1]))
    check_function(F.cosine_similarity, T.cosine_similarity, (ROWS[:, None], ROWS[None], 2))
    check_function(F.cosine_similarity, T.cosine_similarity, (torch.ones(2, 0), torch.ones(2, 0)))
    scalar = torch.tensor(-3.0)
    check_function(F.cosine_similarity, T.cosine_similarity, (scalar, scalar), {"dim": 0})


def test_nan_and_infinity():
    x = torch.tensor([[1.0, INF], [NAN, 1], [1, 2]])
    for name in ("cosine_similarity", "pairwise_distance"):
        check_function(getattr(F, name), getattr(T, name), (x, x[[2, 2, 2]]), gradient=False)
    check_function(F.normalize, T.normalize, (x,))
    for p in (1.0, 2.0, INF):
        check_function(F.pdist, T.pdist, (x, p), gradient=False)


def test_the_sum_of_sizes_has_torchs_derivative_at_nan():
    rows = torch.tensor([[NAN, 1.0, -2.0], [INF, 1.0, -1.0], [1.0, 2.0, 0.0]])
    check_function(F.pairwise_distance, T.pairwise_distance, (rows, torch.zeros(3), 1.0))
    check_function(F.pdist, T.pdist, (rows, 1.0))


PAIRS = {
    "cosine_similarity": F.cosine_similarity,
    "pairwise_distance": F.pairwise_distance,
    "pairwise_distance-inf": functools.partial(F.pairwise_distance, p=INF),
    "normalize": lambda a, b: F.normalize(a - b),
    "pdist": lambda a, b: F.pdist(a - b),
}


@pytest.mark.parametrize("function", PAIRS.values(), ids=PAIRS)
def test_transforms(function):
    a, b = to_jax(ROWS), to_jax(ROWS[[0, 2, 2, 1]])
    value = function(a, b)
    batched = jax.vmap(function)(jnp.stack([a, b]), jnp.stack([b, a]))
    np.testing.assert_allclose(batched[0], value, rtol=1e-6)
    tangent = jax.jvp(function, (a, b), (a, b))[1]
    forward = jax.jacfwd(lambda t: function(a + t * a, b + t * b))(0.0)
    np.testing.assert_allclose(tangent, forward, rtol=1e-5, atol=1e-6)
    # Also where a vector is zero, nothing is NaN in a derivative of second order.
    assert np.isfinite(jax.hessian(lambda a: function(a, b).sum())(a)).all()


def test_second_derivatives_are_torchs():
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    for name in ("cosine_similarity", "pairwise_distance"):
        expected = torch.autograd.functional.hessian(lambda a, n=name: getattr(T, n)(a, b).sum(), a)
        other = to_jax(b)
        actual = jax.hessian(lambda a, n=name, b=other: getattr(F, n)(a, b).sum())(to_jax(a))
        assert_close(actual, expected)


def test_float64():
    with jax.enable_x64(True):
        rows = ROWS.double()
        check_function(F.normalize, T.normalize, (rows, 3.0))
        check_function(F.pdist, T.pdist, (rows, 1.5))
        check_function(F.cosine_similarity, T.cosine_similarity, (rows, rows[1]))
        check_function(F.pairwise_distance, T.pairwise_distance, (rows, rows[1].float()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(dtype):
    rows = ROWS[1:].to(dtype)
    other = rows[[1, 0, 0]]
    check_function(F.normalize, T.normalize, (rows,))
    check_function(F.cosine_similarity, T.cosine_similarity, (rows, other))
    check_function(F.pairwise_distance, T.pairwise_distance, (rows, other))
    for function in (F.normalize, F.pdist):
        assert function(to_jax(rows)).dtype == to_jax(rows).dtype


def test_mixed_dtypes_and_integers():
    whole = torch.tensor([[1, 2, 3, 4]], dtype=torch.int32)
    for name in ("cosine_similarity", "pairwise_distance"):
        check_function(getattr(F, name), getattr(T, name), (ROWS, whole), gradient=False)
        check_function(getattr(F, name), getattr(T, name), (ROWS.half(), ROWS[1]), gradient=False)
    check_function(F.pairwise_distance, T.pairwise_distance, (whole, whole + 1))


def r(*shape):
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("cosine_similarity", (r(2, 3).int(), r(2, 3).int())),
        ("cosine_similarity", (r(2, 3).bool(), r(2, 3).bool())),
        ("cosine_similarity", (r(2, 3).to(torch.complex64), r(2, 3))),
        ("cosine_similarity", (r(2, 3), r(2, 2))),
        ("cosine_similarity", (r(3), r(3))),
        ("cosine_similarity", (r(), r())),
        ("cosine_similarity", (r(2, 3), r(2, 3), 2)),
        ("cosine_similarity", (r(2, 3), r(2, 3), 1, -1)),
        ("cosine_similarity", (r(2, 3), r(2, 3), 1, NAN)),
        ("pairwise_distance", (r(2, 3).bool(), r(2, 3).bool())),
        ("pairwise_distance", (r(2, 3).bool(), r(2, 3))),
        ("pairwise_distance", (r(2, 3), r(2, 2))),
        ("pairwise_distance", (r(2, 0), r(2, 0), INF)),
        ("pairwise_distance", (r(2, 0), r(2, 0), -1)),
        ("pdist", (r(3, 2).int(),)),
        ("pdist", (r(3, 2).to(torch.complex64),)),
        ("pdist", (r(),)),
        ("pdist", (r(3),)),
        ("pdist", (r(3, 2, 2), -1)),
        ("pdist", (r(3, 2), -1.5)),
        ("pdist", (r(3, 2), NAN)),
        ("normalize", (r(2, 3).int(),)),
        ("normalize", (r(2, 3).bool(),)),
        ("normalize", (r(3),)),
        ("normalize", (r(),)),
        ("normalize", (r(2, 3), 2.0, 2)),
        ("normalize", (r(2, 3), 2.0, (0, 0))),
        ("normalize", (r(2, 0), INF)),
        ("normalize", (r(2, 0), -1.0)),
    ],
    ids=op_db.describe,
)
def test_errors(name, args):
    check_error(lambda: getattr(F, name)(*to_jax(list(args))), lambda: getattr(T, name)(*args))


def test_the_pairs_of_rows_are_no_constants_of_the_program():
    sizes = [len(jax.jit(F.pdist).lower(jnp.ones((n, 4))).as_text()) for n in (200, 2000)]
    assert sizes[1] < 2 * sizes[0]
