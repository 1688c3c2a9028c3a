"""The functionals against every sample input of torch's own operator database."""

import jax
import pytest
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db


def ours_embedding(weight, indices, **options):
    return F.embedding(indices, weight, **options)


def theirs_embedding(weight, indices, sparse=False, **options):
    """Torch's lookup with dense gradients: there are no others here."""
    del sparse
    return T.embedding(indices, weight, **options)


def ours_normed(function):
    """Torch gives its running statistics no gradient."""

    def call(input, running_mean=None, running_var=None, *args, **kwargs):
        running_mean, running_var = jax.lax.stop_gradient((running_mean, running_var))
        return function(input, running_mean, running_var, *args, **kwargs)

    return call


def theirs_normed(function):
    """Torch's normalisation on copies of the statistics, which are returned."""

    def call(input, running_mean=None, running_var=None, *args, **kwargs):
        mean = None if running_mean is None else running_mean.detach().clone()
        var = None if running_var is None else running_var.detach().clone()
        return function(input, mean, var, *args, **kwargs), mean, var

    return call


@pytest.mark.parametrize(
    "name",
    [
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "conv1d",
        "conv2d",
        "conv3d",
        "group_norm",
        "layer_norm",
        "linear",
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_samples(name):
    op_db.check(name, getattr(F, name))


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "max_pool3d"])
def test_max_pool_samples(name):
    op_db.check(name, getattr(F, name))


@pytest.mark.parametrize(
    "variant", ["constant", "reflect", "replicate", "replicate_negative", "circular"]
)
def test_pad_samples(variant):
    op_db.check("pad", F.pad, variant=variant)


def test_embedding_samples():
    op_db.check("embedding", ours_embedding, theirs_embedding)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_samples_with_statistics(name):
    op_db.check(name, ours_normed(getattr(F, name)), theirs_normed(getattr(T, name)))
