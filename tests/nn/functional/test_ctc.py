"""ctc_loss beyond the database's samples: lengths, infinities, gradients, errors, transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import assert_close, check_error, check_function, to_jax


torch.manual_seed(0)
SCORES = torch.randn(6, 2, 4)
LOG_PROBS = SCORES.log_softmax(2)
TARGETS = torch.tensor([[1, 1, 2], [3, 0, -7]])
LENGTHS = (6, 4), (3, 1)


def check(log_probs, targets=TARGETS, input_lengths=LENGTHS[0], target_lengths=LENGTHS[1], **options):
    args = targets, input_lengths, target_lengths
    check_function(
        lambda x: F.ctc_loss(x, *to_jax(args), **options),
        lambda x: T.ctc_loss(x, *args, **options),
        (log_probs,),
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_targets_padded_and_in_a_row(reduction):
    check(LOG_PROBS, reduction=reduction)
    check(LOG_PROBS, torch.tensor([1, 1, 2, 3]), reduction=reduction)
    check(LOG_PROBS, TARGETS.int(), *map(torch.tensor, LENGTHS), reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_one_example(reduction):
    one = LOG_PROBS[:, 0]
    check(one, TARGETS[0], (6,), (3,), reduction=reduction)
    check(one, TARGETS[:1], torch.tensor(6), torch.tensor(3), reduction=reduction)


def test_the_gradient_is_torchs_whatever_the_input():
    """``exp(log_probs) - posterior``, also where the rows are no distributions."""
    check(LOG_PROBS + 1)
    check(SCORES, blank=3, targets=torch.tensor([[1, 1, 2], [0, 3, 3]]))


@pytest.mark.parametrize("zero_infinity", [True, False])
def test_what_cannot_be_aligned(zero_infinity):
    """Too short an input: infinity and NaN, or zero; and nothing for nothing is certain."""
    options = {"reduction": "none", "zero_infinity": zero_infinity}
    check(LOG_PROBS, input_lengths=(3, 4), **options)  # The repeated label needs a blank between.
    check(LOG_PROBS, input_lengths=(0, 0), target_lengths=(0, 1), **options)
    check(LOG_PROBS, target_lengths=(0, 0), **options)
    check(LOG_PROBS, TARGETS[:, :0], target_lengths=(0, 0), **options)
    check(LOG_PROBS.masked_fill(torch.arange(6)[:, None, None] == 2, torch.nan), **options)


def test_mean_of_empty_targets():
    check(LOG_PROBS, target_lengths=(0, 1))


def test_a_label_that_is_the_blank():
    """Torch reads it as any other label, but overwrites a part of its gradient."""
    blanks = TARGETS * 0
    args = LOG_PROBS, blanks, torch.tensor(LENGTHS[0]), torch.tensor(LENGTHS[1])
    assert_close(F.ctc_loss(*to_jax(args)), T.ctc_loss(*args))


def test_a_class_of_probability_zero_has_a_finite_gradient():
    """Torch's is NaN at that class alone."""
    log_probs = LOG_PROBS.clone()
    log_probs[2, 0, 3] = -torch.inf
    tensor = log_probs.clone().requires_grad_()
    loss = T.ctc_loss(tensor, TARGETS, torch.tensor(LENGTHS[0]), torch.tensor(LENGTHS[1]))
    (expected,) = torch.autograd.grad(loss, tensor)
    actual, gradient = jax.value_and_grad(F.ctc_loss)(to_jax(log_probs), to_jax(TARGETS), *LENGTHS)
    assert_close(actual, loss)
    assert expected[2, 0, 3].isnan()
    assert_close(gradient, torch.nan_to_num(expected))


def test_double():
    with jax.enable_x64(True):
        check(LOG_PROBS.double(), reduction="sum")


def test_unknown_lengths_and_labels():
    args = to_jax((LOG_PROBS, TARGETS, *map(torch.tensor, LENGTHS)))
    expected = F.ctc_loss(*args)
    np.testing.assert_allclose(jax.jit(F.ctc_loss)(*args), expected, rtol=1e-6)
    in_a_row = jnp.array([1, 1, 2, 3])
    np.testing.assert_allclose(jax.jit(F.ctc_loss)(args[0], in_a_row, *args[2:]), expected, rtol=1e-6)
    assert np.isnan(F.ctc_loss(args[0], args[1] + 3, *args[2:]))


def test_transforms():
    args = to_jax((TARGETS, *map(torch.tensor, LENGTHS)))
    loss = lambda scores: F.ctc_loss(jax.nn.log_softmax(scores, 2), *args)  # noqa: E731
    scores, direction = to_jax(SCORES), jnp.cos(jnp.arange(48.0)).reshape(6, 2, 4)
    batch = jax.vmap(loss)(jnp.stack([scores, 2 * scores]))
    np.testing.assert_allclose(batch, [loss(scores), loss(2 * scores)], rtol=1e-6)
    slope = jax.jvp(loss, (scores,), (direction,))[1]
    np.testing.assert_allclose(slope, (jax.grad(loss)(scores) * direction).sum(), rtol=1e-5)
    curvature = jax.jvp(lambda x: jax.jvp(loss, (x,), (direction,))[1], (scores,), (direction,))[1]
    step = 1e-2
    ahead, behind = (
        (jax.grad(loss)(scores + sign * step * direction) * direction).sum() for sign in (1, -1)
    )
    np.testing.assert_allclose(curvature, (ahead - behind) / (2 * step), rtol=2e-2)


ERRORS = [
    {"log_probs": LOG_PROBS.half()},
    {"log_probs": LOG_PROBS.int()},
    {"log_probs": LOG_PROBS[None]},
    {"log_probs": LOG_PROBS[0, 0]},
    {"log_probs": LOG_PROBS[:0]},
    {"log_probs": LOG_PROBS[:, :0], "input_lengths": (), "target_lengths": ()},
    {"targets": TARGETS[None]},
    {"targets": TARGETS[0, 0]},
    {"blank": 4},
    {"blank": -1},
    {"input_lengths": (6,)},
    {"target_lengths": (3,)},
    {"target_lengths": (-1, 1)},
    {"target_lengths": (3, 4)},
    {"targets": TARGETS[:1]},
    {"targets": TARGETS.reshape(-1)},
    {"input_lengths": (-1, 4)},
    {"input_lengths": (7, 4)},
    {"input_lengths": torch.ones(2), "target_lengths": torch.tensor([3, 1])},
    {"input_lengths": torch.tensor([6, 4]), "target_lengths": torch.ones(2)},
    {"input_lengths": torch.ones(2) > 0, "target_lengths": torch.tensor([3, 1])},
    {"reduction": "some"},
]


@pytest.mark.parametrize("change", ERRORS, ids=range(len(ERRORS)))
def test_errors(change):
    args = {
        "log_probs": LOG_PROBS,
        "targets": TARGETS,
        "input_lengths": LENGTHS[0],
        "target_lengths": LENGTHS[1],
        **change,
    }
    check_error(lambda: F.ctc_loss(**to_jax(args)), lambda: T.ctc_loss(**args))
