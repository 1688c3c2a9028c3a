"""What the losses refuse: torch's types and texts, beyond those of cross entropy and its kin."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.nn.functional.test_loss import p, r
from tests.nn.functional.test_margin_losses import CALLS, LABELS, unreduced
from tests.oracles import op_db
from tests.parity import check_error, to_jax


def test_a_class_that_is_none_raises_where_it_is_known():
    for name, targets in (
        ("multi_margin_loss", ([0, 3], [0, -1])),
        ("multilabel_margin_loss", ([[0, -1, -1], [0, -1, 3]], [[0, -1, -1], [-2, -1, -1]])),
    ):
        for target in map(torch.tensor, targets):
            check_error(
                lambda name=name, target=target: getattr(F, name)(jnp.zeros((2, 3)), to_jax(target)),
                lambda name=name, target=target: getattr(T, name)(torch.zeros(2, 3), target),
            )
            losses = jax.jit(unreduced(name))(jnp.zeros((2, 3)), to_jax(target))
            assert np.isnan(losses).tolist() == [False, True]


LONG = torch.ones(2, dtype=torch.long)
INT, BOOL, COMPLEX = r(2, 3).int(), r(2, 3).bool(), r(2, 3) + 0j
X = r(2, 3)

REFUSED = {
    "cosine_embedding_loss": [
        ((X, X, X), {}),
        ((r(3), X, LONG), {}),
        ((X, X, LONG[0]), {}),
        ((X, r(2, 4), LONG), {}),
        ((X, X, r(3)), {}),
        ((COMPLEX, COMPLEX, LONG), {}),
        ((X, X, LONG), {"reduction": "some"}),
    ],
    "gaussian_nll_loss": [
        ((X, X, -1 - p(2, 3)), {}),
        ((X, X, -1.0), {}),
        ((X, X, INT.abs()), {}),
        ((X, X, INT.abs()[:, 0]), {}),
        ((X, X, p(1, 1)), {}),
        ((X, X, p(())), {}),
        ((X, X, p(2, 2, 3)), {}),
        ((X, X, COMPLEX), {}),
        ((BOOL, BOOL, p(2, 3)), {}),
    ],
    "hinge_embedding_loss": [
        ((X, r(2, 4)), {}),
        ((INT, LABELS[:2, :3]), {}),
        ((BOOL, BOOL), {}),
        ((COMPLEX, INT), {}),
    ],
    "kl_div": [
        ((INT, X), {}),
        ((X, INT), {}),
        ((BOOL, BOOL), {}),
        ((COMPLEX, INT), {}),
        ((X, r(2, 4)), {}),
        ((X, X), {"reduction": "some"}),
        ((X, r(2, 4)), {"log_target": True}),
    ],
    "margin_ranking_loss": [
        ((X, X, r(2, 4)), {}),
        ((X, r(2, 4), X), {}),
        ((BOOL, BOOL, INT), {}),
        ((BOOL, INT, BOOL), {}),
        ((INT, INT, BOOL), {}),
        ((COMPLEX, X, X), {}),
    ],
    "multi_margin_loss": [
        ((X, LONG[0]), {}),
        ((X, LONG[:, None]), {}),
        ((r(3), LONG), {}),
        ((r(2, 2, 3), LONG), {}),
        ((r(0, 0), LONG[:0]), {}),
        ((INT, LONG), {}),
        ((COMPLEX, LONG), {}),
        ((X, LONG.float()), {"weight": r(3).half()}),
        ((X, LONG), {"weight": r(3).half()}),
        ((X, LONG), {"p": 2.5}),
    ],
    "multilabel_margin_loss": [
        ((X, LONG), {}),
        ((r(3), LONG), {}),
        ((r(3), LONG[None]), {}),
        ((r(2, 2, 3), r(2, 2, 3).long()), {}),
        ((X, X.clamp(-1, 2)), {}),
        ((X, 5 * torch.ones(2, 3)), {}),
        ((INT, torch.ones(2, 3).long()), {}),
    ],
    "multilabel_soft_margin_loss": [
        ((r(()), r(())), {}),
        ((X, r(2, 4)), {}),
        ((X, X), {"weight": r(4)}),
        ((X, X), {"reduction": "some"}),
        ((INT, INT), {}),
        ((X, BOOL), {}),
        ((COMPLEX, X), {}),
    ],
    "poisson_nll_loss": [
        ((BOOL, BOOL), {}),
        ((BOOL, X), {"log_input": False}),
        ((X, BOOL), {"full": True}),
        ((X, COMPLEX), {"full": True}),
        ((X, r(2, 4)), {"log_input": False}),
        ((X, X), {"reduction": "elementwise_mean"}),
    ],
    "soft_margin_loss": [
        ((r(3), X), {}),
        ((r(3), r(2, 4)), {}),
        ((INT, INT), {}),
        ((INT, X), {}),
        ((BOOL, X), {}),
        ((X, COMPLEX), {}),
    ],
    "triplet_margin_loss": [
        ((X, X, X), {"margin": 0}),
        ((BOOL, BOOL, BOOL), {}),
        ((X, r(1, 3), r(3, 3)), {}),
        ((X, r(1, 3), r(3, 3)), {"swap": True}),
        ((r(4, 3), r(4, 3), X), {}),
    ],
    "triplet_margin_with_distance_loss": [((X, X, X), {"margin": 0}), ((BOOL, BOOL, BOOL), {})],
    "huber_loss": [((INT, X), {}), ((INT, INT), {}), ((COMPLEX, X), {})],
    "smooth_l1_loss": [((INT, INT), {"beta": 0.0}), ((COMPLEX, X), {}), ((BOOL, BOOL), {})],
    "mse_loss": [((COMPLEX, X), {})],
    "nll_loss": [((COMPLEX, LONG), {})],
}


def refused(name, args, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_error(
            lambda: getattr(F, name)(*to_jax(args), **to_jax(options)),
            lambda: getattr(T, name)(*args, **options),
        )


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [(name, *case) for name, cases in REFUSED.items() for case in cases],
    ids=op_db.describe,
)
def test_refused_as_torch(name, args, options):
    refused(name, args, options)


@pytest.mark.parametrize("name", [*CALLS, "huber_loss", "triplet_margin_with_distance_loss"])
def test_refused_by_the_database(name):
    for args, options in op_db.errors(name):
        refused(name, args, {k: v for k, v in options.items() if k != "distance_function"})


def test_distances_of_integers_have_no_mean():
    def call(function, *args):
        return function(*args, distance_function=lambda a, b: a - b, margin=1)

    args = [INT, INT, INT + 1]
    check_error(
        lambda: call(F.triplet_margin_with_distance_loss, *to_jax(args)),
        lambda: call(T.triplet_margin_with_distance_loss, *args),
    )
