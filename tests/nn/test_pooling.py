"""Pooling layers that torch's database lacks or cannot ask about: unpooling, blocks, drawn windows."""

import jax
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles import op_db
from tests.oracles.module_db import compare_call
from tests.parity import check_error, raised, to_jax


def loaded(name, *args, **kwargs):
    """The layer on both sides."""
    return getattr(nn, name)(*to_jax(args), **to_jax(kwargs)), getattr(torch.nn, name)(*args, **kwargs)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_unpool(n):
    values = torch.randn(2, 3, *(5,) * n, generator=torch.Generator().manual_seed(0))
    for window in [(2,), (3, 2, 1)]:
        pool, theirs_pool = loaded(f"MaxPool{n}d", *window, return_indices=True)
        ours, theirs = loaded(f"MaxUnpool{n}d", *window)
        assert repr(ours) == repr(theirs)
        maxima, positions = theirs_pool(values)
        np.testing.assert_array_equal(pool(to_jax(values))[1], positions)
        compare_call(ours, theirs, (maxima.requires_grad_(), positions, values.shape))
    with pytest.raises(ValueError, match="invalid output_size"):
        ours(*to_jax([maxima, positions]), [9] * n)


def test_fold_and_unfold():
    columns = torch.randn(2, 12, 12, requires_grad=True)
    compare_call(*loaded("Fold", (4, 5), 2), (columns,))
    image = torch.randn(2, 3, 4, 5, requires_grad=True)
    compare_call(*loaded("Unfold", (2, 3), padding=1, stride=2), (image,))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Fold", ([4, 5], 2, 1, (0, 1))),
        ("Unfold", ((2, 3), 2)),
        ("MaxUnpool1d", (2,)),
        ("MaxUnpool2d", ((2, 3), 1, [1, 0])),
        ("MaxUnpool3d", (2, (1, 2, 3))),
        ("AdaptiveMaxPool2d", ((3, None), True)),
        ("LPPool2d", (1.5, (2, 3), None, True)),
        ("FractionalMaxPool2d", (2, 3)),
        ("FractionalMaxPool3d", ((2, 3, 2), None, 0.5)),
        ("FractionalMaxPool3d", (2, (3, 4, 5), None, True, torch.rand(2, 3, 3))),
    ],
    ids=op_db.describe,
)
def test_constructors(name, args):
    check_same(lambda lib: getattr(lib, name)(*(to_jax(args) if lib is nn else args)))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("FractionalMaxPool2d", (2,)),
        ("FractionalMaxPool2d", (2, 3, 0.5)),
        ("FractionalMaxPool2d", (2, None, (0.5, 1.0))),
        ("FractionalMaxPool3d", (2,)),
        ("FractionalMaxPool3d", (2, 3, (0.5, 0.5, 0.5))),
        ("FractionalMaxPool3d", (2, None, 0)),
        ("FractionalMaxPool3d", (0, 3)),
        ("FractionalMaxPool3d", ((2, -1, 2), 3)),
    ],
    ids=op_db.describe,
)
def test_refused_constructors(name, args):
    check_same_error(lambda lib: getattr(lib, name)(*args))


@pytest.mark.parametrize("name", ["FractionalMaxPool2d", "FractionalMaxPool3d"])
def test_fractional_max_pool_draws_in_evaluation_too(name):
    n = int(name[-2])
    model = bridge.eval(getattr(nn, name)(2, output_ratio=0.6))
    x = jax.random.normal(jax.random.key(0), (1, 2, *(12,) * n))
    first, second = (ps.call(model, x, rng=jax.random.key(seed))[0] for seed in (0, 1))
    assert first.shape == (1, 2, *(7,) * n)
    assert not np.array_equal(first, second)
    assert isinstance(raised(lambda: model(x)), ps.MissingRngError)


def test_fractional_max_pool_keeps_its_numbers():
    drawn = torch.rand(1, 2, 2)
    ours, theirs = loaded("FractionalMaxPool2d", 2, 5, None, True, drawn)
    after = compare_call(ours, theirs, (torch.randn(1, 2, 9, 9, requires_grad=True),))
    np.testing.assert_array_equal(after._random_samples, drawn)


def test_errors_in_a_call():
    ours, theirs = loaded("LPPool2d", 2, 5)
    values = torch.zeros(1, 1, 4, 4)
    check_error(lambda: ours(to_jax(values)), lambda: theirs(values))
