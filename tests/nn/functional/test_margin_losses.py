"""The losses of margins, of comparisons and of likelihoods against torch, beyond its database."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax.test_util import check_grads

from purestate.nn import functional as F
from tests.nn.functional.test_loss import REDUCTIONS, classes, messages, p, r
from tests.oracles import op_db
from tests.oracles.adapters import ADAPTERS
from tests.parity import assert_close, check_function, to_jax


KL_MEAN = "ignore:reduction. 'mean' divides the total loss"

ONES = torch.tensor([1.0, -1.0, -1.0, 1.0])
LABELS = torch.stack([ONES, -ONES, ONES])
LISTS = torch.tensor([[3, 0, -1, 1], [2, -1, -1, -1], [-1, 2, 2, 2], [1, 1, 0, 2]])

# Smooth points: small whole batches of each loss, in a dtype.
CALLS = {
    "cosine_embedding_loss": lambda d: (r(4, 3, dtype=d), r(4, 3, dtype=d, seed=1), ONES),
    "gaussian_nll_loss": lambda d: (r(3, 4, dtype=d), r(3, 4, dtype=d, seed=1), p(3, 4, dtype=d) + 1),
    "hinge_embedding_loss": lambda d: (3 * p(3, 4, dtype=d), LABELS),
    "kl_div": lambda d: (-p(3, 4, dtype=d), 0.1 + p(3, 4, dtype=d, seed=1)),
    "margin_ranking_loss": lambda d: (r(3, 4, dtype=d), r(3, 4, dtype=d, seed=1), LABELS.to(d)),
    "multi_margin_loss": lambda d: (r(4, 3, dtype=d), classes(4)),
    "multilabel_margin_loss": lambda d: (r(4, 4, dtype=d), LISTS),
    "multilabel_soft_margin_loss": lambda d: (r(3, 4, dtype=d), p(3, 4, dtype=d)),
    "poisson_nll_loss": lambda d: (r(3, 4, dtype=d), 3 * p(3, 4, dtype=d)),
    "soft_margin_loss": lambda d: (r(3, 4, dtype=d), LABELS.to(d)),
    "triplet_margin_loss": lambda d: tuple(r(3, 4, dtype=d, seed=seed) for seed in range(3)),
}


def both(name):
    """A loss on both sides, without the gradients that torch lacks."""
    ours, theirs = ADAPTERS.get(name, (getattr(F, name), None))
    return ours, theirs or getattr(T, name)


def unreduced(name):
    return functools.partial(getattr(F, name), reduction="none")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_half_types_stay_half(name, dtype):
    """Those that torch has on the GPU only, too."""
    args = CALLS[name](dtype)
    output = getattr(F, name)(*to_jax(args), reduction="sum")
    assert output.dtype == to_jax(dtype)
    wide = [arg.float() if arg.is_floating_point() else arg for arg in args]
    expected = getattr(T, name)(*wide, reduction="sum")
    epsilon = torch.finfo(dtype).eps
    np.testing.assert_allclose(np.float32(output), expected.numpy(), rtol=4 * epsilon, atol=epsilon)


@pytest.mark.parametrize("name", CALLS)
def test_in_float64(name):
    with jax.enable_x64(True):
        args = CALLS[name](torch.float64)
        options = {"reduction": "none"}
        check_function(*both(name), [a.double() if a.is_floating_point() else a for a in args], options)


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name):
    """In both modes, the second one too, with respect to what is floating-point."""
    args = to_jax(CALLS[name](torch.float32))
    floats = [i for i, arg in enumerate(args) if jnp.issubdtype(arg.dtype, jnp.inexact)]

    def function(*values):
        filled = list(args)
        for place, value in zip(floats, values, strict=True):
            filled[place] = value
        return unreduced(name)(*filled)

    if name in ("cosine_embedding_loss", "hinge_embedding_loss"):
        floats = floats[:-1]  # The target is a label.
    inputs = [args[place] for place in floats]
    check_grads(function, inputs, order=2, modes=("fwd", "rev"), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", CALLS)
def test_vmap_and_jit(name):
    args = CALLS[name](torch.float32)
    expected = getattr(T, name)(*args, reduction="none")
    assert_close(jax.vmap(unreduced(name))(*to_jax(args)), expected)
    assert_close(jax.jit(unreduced(name))(*to_jax(args)), expected)


# What meets its margin exactly, or is NaN.
KINKS = {
    "cosine_embedding_loss": [
        ((torch.eye(3), torch.eye(3).flip(0), torch.tensor([-1.0, 1.0, 0.0])), {}),
        ((torch.zeros(3, 3), torch.eye(3), torch.tensor([-1, 1, 2])), {"margin": 0.5}),
    ],
    "hinge_embedding_loss": [
        ((torch.tensor([1.0, 1.0, 0.0, 2.0]), torch.tensor([-1, 1, 0, 0])), {}),
        ((torch.tensor([math.nan, math.nan, 1.0]), torch.tensor([-1, 1, 1])), {}),
    ],
    "margin_ranking_loss": [
        ((torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])), {}),
        ((torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), -torch.ones(2)), {"margin": -1.0}),
    ],
    "multi_margin_loss": [
        ((torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 1.0]]), torch.tensor([0, 1])), {"p": 2}),
        ((torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 1.0]]), torch.tensor([0, 1])), {"margin": 0.0}),
        ((torch.tensor([[math.nan, 0.0, 2.0], [1.0, math.nan, 1.0]]), torch.tensor([1, 1])), {}),
    ],
    "multilabel_margin_loss": [
        ((torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0, 2, -1])), {}),
        ((torch.tensor([math.nan, 0.0, 2.0]), torch.tensor([1, -1, 0])), {}),
    ],
    "soft_margin_loss": [((torch.tensor([0.0, math.inf, 80.0, -80.0]), torch.ones(4)), {})],
    "triplet_margin_loss": [
        ((torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)), {"swap": True, "eps": 0.0}),
        ((torch.zeros(1, 1), torch.ones(1, 1), torch.full((1, 1), 2.0)), {"eps": 0.0}),
    ],
    "gaussian_nll_loss": [
        ((r(3), r(3, seed=1), torch.tensor([0.0, 1e-7, 1.0])), {"eps": 1e-2}),
        ((r(3), r(3, seed=1), torch.tensor([math.inf, math.nan, 1.0])), {}),
    ],
    "kl_div": [((torch.tensor([0.0, -1.0, -math.inf]), torch.tensor([1.0, -1.0, math.nan])), {})],
    "poisson_nll_loss": [
        ((r(4), torch.tensor([1.0, 2.0, 1.5, math.nan])), {"full": True}),
        ((torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0])), {"log_input": False}),
    ],
}


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [(name, *case) for name, cases in KINKS.items() for case in cases],
    ids=op_db.describe,
)
def test_kinks(name, args, options):
    check_function(*both(name), args, {**options, "reduction": "none"})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("full", [False, True])
def test_variances(full, reduction):
    """One for everything, one for each row, or one for each row with its axis kept."""
    args = r(3, 4), r(3, 4, seed=1)
    options = {"full": full, "reduction": reduction}
    for var in (0.5, p(3), p(3, 1), p(1, 4)):
        check_function(*both("gaussian_nll_loss"), (*args, var), options)
    check_function(*both("gaussian_nll_loss"), (r(3), r(3), p(())), options)


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.filterwarnings(KL_MEAN)
def test_divergence(log_target, reduction):
    options = {"log_target": log_target, "reduction": reduction}
    check_function(*both("kl_div"), (-p(3, 4), p(3, 4, seed=1)), options)
    check_function(*both("kl_div"), (-p(3, 4), p(4, seed=1)), options)
    check_function(*both("kl_div"), (-p(()), p((), seed=1)), options)


def test_the_mean_of_a_divergence_warns_every_time():
    args = -p(3), p(3)
    theirs, _ = messages(lambda: T.kl_div(*args))
    for _ in range(2):
        ours, record = messages(lambda: F.kl_div(*to_jax(args)))
        assert ours == theirs
        assert record[0].filename == __file__
    theirs, _ = messages(lambda: T.kl_div(*args, size_average=False, reduction="batchmean"))
    ours, record = messages(lambda: F.kl_div(*to_jax(args), size_average=False, reduction="batchmean"))
    assert ours == theirs


def test_a_count_of_zero_has_a_gradient():
    """With respect to the target; torch's is NaN where Stirling's formula is not used."""
    gradient = jax.grad(lambda t: F.poisson_nll_loss(jnp.ones(2), t, full=True, reduction="sum"))
    assert gradient(jnp.array([0.0, 1.0])).tolist() == [-1.0, -1.0]


def test_large_scores_do_not_overflow():
    """Torch's exponential does."""
    input = jnp.array([-1000.0, 1000.0])
    values, gradient = jax.vmap(jax.value_and_grad(F.soft_margin_loss))(input, jnp.ones(2))
    assert values.tolist() == [1000.0, 0.0]
    assert gradient.tolist() == [-1.0, 0.0]


def test_a_number_that_is_no_label():
    for name in ("cosine_embedding_loss", "hinge_embedding_loss"):
        args = CALLS[name](torch.float32)
        for dtype in (torch.int32, torch.int8, torch.uint8, torch.bool):
            target = torch.arange(args[-1].numel()).reshape(args[-1].shape).to(dtype)
            check_function(*both(name), (*args[:-1], target))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("shape", "target"), [((3,), ()), ((3,), (1,)), ((1, 3), ()), ((), ())])
def test_one_example(shape, target, reduction):
    goal = torch.zeros(target, dtype=torch.long)
    options = {"reduction": reduction}
    check_function(*both("multi_margin_loss"), (r(shape), goal), options)
    if len(shape) < 2:
        goal = torch.zeros(shape, dtype=torch.long)
        check_function(*both("multilabel_margin_loss"), (r(shape), goal), options)


def test_weights_of_classes():
    for reduction in REDUCTIONS:
        options = {"reduction": reduction, "weight": p(3), "p": 2, "margin": 0.5}
        check_function(*both("multi_margin_loss"), (r(4, 3), classes(4)), options)
        options = {"reduction": reduction, "weight": p(4)}
        check_function(*both("multilabel_soft_margin_loss"), (r(3, 4), p(3, 4)), options)


def test_an_axis_that_broadcasting_adds():
    """Torch sums the axis that was the last one before."""
    for args in ((r(3, 4), p(2, 3, 4)), (r(4), p(3, 4))):
        check_function(*both("multilabel_soft_margin_loss"), args, {"reduction": "none"})


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("swap", [False, True])
def test_triplets(norm, swap):
    args = tuple(r(5, 3, seed=seed) for seed in range(3))
    options = {"p": norm, "swap": swap, "margin": 0.5, "reduction": "none"}
    check_function(*both("triplet_margin_loss"), args, options)
    check_function(*both("triplet_margin_loss"), (*args[:2], r(1, 3)), options)


def test_a_distance_of_ones_own():
    args = tuple(r(5, 3, seed=seed) for seed in range(3))
    for swap in (False, True):
        options = {"swap": swap, "margin": 0.5, "reduction": "none"}
        check_function(
            functools.partial(
                F.triplet_margin_with_distance_loss,
                distance_function=lambda a, b: 1 - F.cosine_similarity(a, b),
            ),
            functools.partial(
                T.triplet_margin_with_distance_loss,
                distance_function=lambda a, b: 1 - T.cosine_similarity(a, b),
            ),
            args,
            options,
        )


@pytest.mark.parametrize("margin", [1, 1.0])
def test_a_distance_of_integers(margin):
    args = [r(5, 3, seed=seed).int() for seed in range(3)]
    options: Any = {"distance_function": lambda a, b: a - b, "margin": margin, "reduction": "none"}
    output = F.triplet_margin_with_distance_loss(*to_jax(args), **options)
    expected = T.triplet_margin_with_distance_loss(*args, **options)
    assert output.dtype == to_jax(expected.dtype)
    assert_close(output, expected)


INTEGERS = {
    "cosine_embedding_loss": [(torch.float32,) * 3, (torch.int32, torch.int32, torch.int32)],
    "hinge_embedding_loss": [(torch.float16, torch.int32), (torch.float32, torch.bool)],
    "gaussian_nll_loss": [(torch.int32, torch.float32, torch.float32)],
    "margin_ranking_loss": [(torch.int32,) * 3, (torch.float16, torch.float32, torch.int32)],
    "poisson_nll_loss": [
        (torch.int32, torch.int32),
        (torch.float16, torch.int32),
        (torch.int32, torch.float16),
        (torch.float32, torch.bool),
    ],
    "soft_margin_loss": [(torch.float16, torch.float32), (torch.float32, torch.int32)],
    "triplet_margin_loss": [(torch.int32,) * 3, (torch.float16, torch.float16, torch.float32)],
    "kl_div": [(torch.float16, torch.float32)],
    "multilabel_soft_margin_loss": [(torch.float16, torch.int32)],
}


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [(name, dtypes) for name, cases in INTEGERS.items() for dtypes in cases],
    ids=str,
)
def test_promotion(name, dtypes):
    args = [arg.to(dtype) for arg, dtype in zip(CALLS[name](torch.float32), dtypes, strict=True)]
    output = unreduced(name)(*to_jax(args))
    expected = getattr(T, name)(*args, reduction="none")
    assert output.dtype == to_jax(expected.dtype)
    assert_close(output, expected)


def test_margins_of_integers_are_integers():
    args = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([-1, 1, 0])
    options = {"margin": 2.5, "reduction": "none"}
    output = F.hinge_embedding_loss(*to_jax(args), **options)
    assert output.dtype == jnp.int32
    assert_close(output, T.hinge_embedding_loss(*args, **options))


def test_an_empty_batch():
    """Torch's mean is what was in memory."""
    for name, target in (("multi_margin_loss", (0,)), ("multilabel_margin_loss", (0, 3))):
        args = jnp.zeros((0, 3)), jnp.zeros(target, int)
        assert unreduced(name)(*args).shape == (0,)
        assert getattr(F, name)(*args, reduction="sum") == 0
        assert np.isnan(getattr(F, name)(*args))
