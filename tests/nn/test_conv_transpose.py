"""Transposed convolution layers: the size asked for in a call, how values are drawn, refusals."""

import jax
import numpy as np
import pytest
import torch

import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles.module_db import _loaded, compare_call
from tests.parity import check_error, to_jax


def both(n, *args, **kwargs):
    """The layer on both sides, with torch's values."""
    theirs = getattr(torch.nn, f"ConvTranspose{n}d")(*args, **kwargs)
    return _loaded(getattr(nn, f"ConvTranspose{n}d")(*args, **kwargs), theirs, True), theirs


@pytest.mark.parametrize("n", [1, 2, 3])
def test_output_size(n):
    ours, theirs = both(n, 4, 6, 3, stride=3, padding=1, groups=2)
    x = torch.randn(2, 4, *(3,) * n, requires_grad=True)
    for size in [(7,) * n, (2, 6, *(9,) * n)]:
        compare_call(ours, theirs, (x,), {"output_size": size})
    compare_call(ours, theirs, (x[0].detach(),), {"output_size": [6, *(8,) * n]})
    for size in [(10,) * n, [6] * n, (7,) * (n + 1)]:
        check_error(lambda s=size: ours(to_jax(x), s), lambda s=size: theirs(x, s))


def test_output_size_under_jit():
    ours, _ = both(2, 4, 6, 3, stride=2)
    x = to_jax(torch.randn(1, 4, 3, 3))
    assert jax.jit(lambda m, v: m(v, output_size=(8, 7)))(ours, x).shape == (1, 6, 8, 7)


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2, False, 2),
        lambda lib: lib.ConvTranspose2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 0)),
        lambda lib: lib.ConvTranspose3d(4, 6, 3, dilation=(1, 2, 1), groups=2),
        lambda lib: lib.ConvTranspose2d(4, 6, [3, 2]),
    ],
    ids=["all", "per axis", "groups", "list"],
)
def test_constructors(build):
    check_same(build)


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.ConvTranspose2d(4, 6, 3, padding_mode="reflect"),
        lambda lib: lib.ConvTranspose1d(4, 6, 3, groups=0, padding_mode="no"),
        lambda lib: lib.ConvTranspose3d(4, 6, 3, groups=3),
        lambda lib: lib.ConvTranspose3d(3, 5, 3, groups=3),
        lambda lib: lib.ConvTranspose3d(3, 3, 3, groups=-1),
    ],
    ids=["reflect", "no", "in", "out", "negative"],
)
def test_refused_constructors(build):
    check_same_error(build)


def test_what_is_drawn():
    """Both within torch's bound, which is that of the weight's second axis."""
    model = ps.init(nn.ConvTranspose2d(64, 8, 3, groups=2), jax.random.key(0))
    bound = 1 / np.sqrt(4 * 9)
    for value in (model.weight, model.bias):
        largest = float(np.abs(value).max())
        assert 0.6 * bound < largest <= bound
    assert model.weight.shape == (64, 4, 3, 3)
    half = nn.ConvTranspose1d(2, 2, 1, dtype=jax.numpy.bfloat16)
    assert half.weight.dtype == half.bias.dtype == jax.numpy.bfloat16
    assert model.transposed
