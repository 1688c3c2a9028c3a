"""Constructors: the same repr, names, order, shapes and refusals as torch; and what is drawn."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.parity import check_error, raised


BUILDS = [
    lambda nn: nn.Identity(),
    lambda nn: nn.Identity(54, unused=3),
    lambda nn: nn.Linear(3, 4),
    lambda nn: nn.Linear(3, 4, bias=False),
    lambda nn: nn.Flatten(),
    lambda nn: nn.Flatten(0, 2),
    lambda nn: nn.Conv1d(2, 4, 3),
    lambda nn: nn.Conv1d(2, 4, (3,), stride=[2], padding=(1,)),
    lambda nn: nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2, bias=False),
    lambda nn: nn.Conv2d(2, 4, (3, 5), stride=(2, 1), padding=(1, 2), padding_mode="circular"),
    lambda nn: nn.Conv2d(2, 4, 3, padding="same"),
    lambda nn: nn.Conv2d(2, 4, 3, padding="valid", padding_mode="reflect"),
    lambda nn: nn.Conv3d(2, 4, 3, dilation=(1, 2, 1)),
    lambda nn: nn.Conv3d(2, 4, (1, 2, 3), padding=(0, 1, 2), padding_mode="replicate"),
    lambda nn: nn.BatchNorm1d(3),
    lambda nn: nn.BatchNorm2d(3, eps=1e-3, momentum=None, affine=False),
    lambda nn: nn.BatchNorm3d(3, track_running_stats=False, bias=False),
    lambda nn: nn.LayerNorm(3),
    lambda nn: nn.LayerNorm([3, 4], eps=1e-6, elementwise_affine=False),
    lambda nn: nn.LayerNorm((3, 4), bias=False),
    lambda nn: nn.GroupNorm(2, 4),
    lambda nn: nn.GroupNorm(2, 4, eps=1e-3, affine=False, bias=False),
    lambda nn: nn.GroupNorm(4, 4, bias=False),
    lambda nn: nn.Embedding(5, 3),
    lambda nn: nn.Embedding(5, 3, padding_idx=0),
    lambda nn: nn.Embedding(5, 3, padding_idx=-1, max_norm=1.5, norm_type=1.0),
    lambda nn: nn.Embedding(5, 3, scale_grad_by_freq=True, sparse=True),
    *(
        lambda nn, name=name: getattr(nn, name)(p=0.25, inplace=True)
        for name in (
            "Dropout",
            "Dropout1d",
            "Dropout2d",
            "Dropout3d",
            "AlphaDropout",
            "FeatureAlphaDropout",
        )
    ),
    lambda nn: nn.Dropout(),
    *(
        lambda nn, name=name, flag=flag: getattr(nn, name)(inplace=flag)
        for name in ("ReLU", "ReLU6", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "ELU", "Hardtanh")
        for flag in (False, True)
    ),
    lambda nn: nn.PReLU(),
    lambda nn: nn.PReLU(3, 0.5),
    lambda nn: nn.LeakyReLU(),
    lambda nn: nn.LeakyReLU(0.2, inplace=True),
    lambda nn: nn.ELU(0.5),
    lambda nn: nn.Hardtanh(-2, 3.5),
    lambda nn: nn.GELU(),
    lambda nn: nn.GELU("tanh"),
    lambda nn: nn.Sigmoid(),
    lambda nn: nn.Tanh(),
    lambda nn: nn.Softplus(2, 10),
    lambda nn: nn.CELU(0.5, inplace=True),
    lambda nn: nn.SELU(inplace=True),
    lambda nn: nn.GLU(1),
    lambda nn: nn.RReLU(),
    lambda nn: nn.RReLU(0.1, 0.25, inplace=True),
    lambda nn: nn.Threshold(0.1, 20),
    lambda nn: nn.Threshold(0.1, 20, inplace=True),
    lambda nn: nn.Hardshrink(),
    lambda nn: nn.Softshrink(1),
    *(
        lambda nn, name=name: getattr(nn, name)()
        for name in ("LogSigmoid", "Softsign", "Tanhshrink", "Softmax2d", "Softmin")
    ),
    lambda nn: nn.Softmax(dim=1),
    lambda nn: nn.LogSoftmax(),
    lambda nn: nn.CosineSimilarity(0, 1e-3),
    lambda nn: nn.PairwiseDistance(1.0, keepdim=True),
    lambda nn: nn.Bilinear(2, 3, 4),
    lambda nn: nn.Bilinear(2, 3, 4, bias=False),
    lambda nn: nn.Unflatten(1, (2, -1)),
    lambda nn: nn.Unflatten(-1, [2, 3]),
    lambda nn: nn.MaxPool1d(2),
    lambda nn: nn.MaxPool2d((2, 3), stride=1, padding=(0, 1), dilation=2, ceil_mode=True),
    lambda nn: nn.MaxPool3d(2, return_indices=True),
    lambda nn: nn.AvgPool1d(2, 3, 1),
    lambda nn: nn.AvgPool2d(2),
    lambda nn: nn.AvgPool3d((2, 3, 4), (1, 2, 1), divisor_override=3),
    lambda nn: nn.AdaptiveAvgPool1d(2),
    lambda nn: nn.AdaptiveAvgPool2d((2, None)),
    lambda nn: nn.AdaptiveAvgPool3d(4),
]


@pytest.mark.parametrize("build", BUILDS)
def test_built_as_torch(build):
    check_same(build)


ERRORS = {
    "conv-groups": lambda nn: nn.Conv2d(2, 4, 3, groups=0),
    "conv-in": lambda nn: nn.Conv2d(3, 4, 3, groups=2),
    "conv-out": lambda nn: nn.Conv2d(4, 3, 3, groups=2),
    "conv-same": lambda nn: nn.Conv2d(4, 3, 3, padding="same", stride=2),
    "groups": lambda nn: nn.GroupNorm(2, 5),
    "embedding-padding": lambda nn: nn.Embedding(5, 3, padding_idx=5),
    "embedding-padding-negative": lambda nn: nn.Embedding(5, 3, padding_idx=-6),
    "dropout-above": lambda nn: nn.Dropout(1.5),
    "dropout-below": lambda nn: nn.AlphaDropout(-0.5),
    "hardtanh": lambda nn: nn.Hardtanh(1, 1),
    "bilinear": lambda nn: nn.Bilinear(0, 3, 4),
    "unflatten-int": lambda nn: nn.Unflatten(1, 4),
    "unflatten-dict": lambda nn: nn.Unflatten(1, {"a": 2}),
    "unflatten-float": lambda nn: nn.Unflatten(1, (2, 2.0)),
    "unflatten-named": lambda nn: nn.Unflatten(1, (("a", 2), ("b", 2))),
    "positional": lambda nn: nn.Sigmoid(3),
    "keyword": lambda nn: nn.Tanh(inplace=True),
}


@pytest.mark.parametrize("build", ERRORS.values(), ids=ERRORS)
def test_refused_as_torch(build):
    check_same_error(build)


@pytest.mark.parametrize("options", [{"padding": "some"}, {"padding_mode": "mirror"}])
def test_texts_that_print_a_set(options):
    """The order within the set is not defined."""
    ours, theirs = (raised(lambda nn=nn: nn.Conv2d(4, 3, 3, **options)) for nn in (nn, torch.nn))
    assert type(ours) is type(theirs) is ValueError
    assert sorted(str(ours)) == sorted(str(theirs))


def test_deprecated_names_warn():
    with pytest.warns(FutureWarning, match="`min_value` is deprecated") as record:
        layer = nn.Hardtanh(min_value=-3.0)
    assert record[0].filename == __file__
    assert layer.min_val == -3.0


DTYPED = [
    lambda dtype: nn.Linear(3, 4, dtype=dtype),
    lambda dtype: nn.Bilinear(3, 4, 5, dtype=dtype),
    lambda dtype: nn.Conv1d(3, 4, 3, dtype=dtype),
    lambda dtype: nn.LayerNorm(4, dtype=dtype),
    lambda dtype: nn.GroupNorm(2, 4, dtype=dtype),
    lambda dtype: nn.Embedding(3, 4, dtype=dtype),
    lambda dtype: nn.PReLU(dtype=dtype),
]


@pytest.mark.parametrize("build", DTYPED)
def test_dtype(build):
    model = ps.init(build("bfloat16"), 0)
    assert {value.dtype for value in model.parameters()} == {jnp.dtype("bfloat16")}


def test_batch_norm_dtype():
    sd = bridge.state_dict(ps.init(nn.BatchNorm1d(4, dtype="float16"), 0))
    assert [value.dtype.name for value in sd.values()] == ["float16"] * 4 + ["int64"]


@pytest.mark.parametrize(
    ("build", "bound"),
    [
        (lambda: nn.Linear(100, 400), 0.1),
        (lambda: nn.Bilinear(100, 2, 400), 0.1),
        (lambda: nn.Conv2d(4, 600, 5), 0.1),
        (lambda: nn.Conv1d(100, 400, 4, groups=4), 0.1),
    ],
)
def test_uniform_within_fan_in(build, bound):
    model = ps.init(build(), 0)
    for values in model.parameters():
        values = np.asarray(values)
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.97 * bound
        assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    again = ps.init(build(), 0)
    for first, second in zip(model.parameters(), again.parameters(), strict=True):
        assert np.array_equal(first, second)


def test_constants_drawn():
    for layer in (nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm2d(4)):
        theirs = getattr(torch.nn, type(layer).__name__)
        theirs = theirs(2, 4) if isinstance(layer, nn.GroupNorm) else theirs(4)
        for name, value in bridge.state_dict(ps.init(layer, 0)).items():
            assert np.array_equal(value, theirs.state_dict()[name].numpy()), name
    assert np.array_equal(ps.init(nn.PReLU(3, 0.5), 0).weight, np.full(3, 0.5))


def test_constructors_draw_nothing():
    model = nn.Sequential(nn.Linear(10**6, 10**6), nn.BatchNorm1d(10**6), nn.Embedding(10**9, 10**3))
    assert all(isinstance(leaf, ps.AbstractArray) for leaf in jax.tree.leaves(model))


def test_reset_parameters_works_in_constructors_only():
    class Host(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, dtype="float16")
            self.linear = nn.Linear(3, 3)
            for module in self.children():
                module.reset_parameters()

    model = ps.init(Host(), 0)
    assert model.norm.running_var.dtype == jnp.float16
    assert bridge.state_dict(model)["norm.num_batches_tracked"].dtype == np.int64
    for call in (model.linear.reset_parameters, model.norm.reset_running_stats):
        with pytest.raises(ps.FrozenModelError, match=r"write: model = purestate\.init"):
            call()


# The layers that the module database lacks.


def test_embedding_padding_row_and_pretrained_table():
    model = ps.init(nn.Embedding(5, 400, padding_idx=-2), 0)
    assert not model.weight[3].any()
    assert np.asarray(model.weight[4]).std() == pytest.approx(1, rel=0.1)
    table = jnp.arange(6.0).reshape(3, 2)
    frozen = nn.Embedding.from_pretrained(table, padding_idx=1)
    assert repr(frozen) == repr(torch.nn.Embedding.from_pretrained(torch.ones(3, 2), padding_idx=1))
    assert list(ps.split(frozen)[1]) == []
    assert list(ps.split(nn.Embedding.from_pretrained(table, freeze=False))[1]) == ["weight"]
    assert frozen(jnp.array([1, 2])).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    with pytest.raises(AssertionError, match="expected to be 2-dimensional"):
        nn.Embedding.from_pretrained(jnp.ones(3))
    with pytest.raises(AssertionError, match="Shape of weight does not match"):
        nn.Embedding(3, 3, _weight=table)


def test_identity_gives_back_what_it_is_given():
    value = object()
    assert nn.Identity(1, a=2)(value) is value


@pytest.mark.parametrize("options", [(), (0,), (0, 1), (-2, -1), (1, 1), (2, 2)])
def test_flatten(options):
    x = torch.arange(24.0).reshape(2, 3, 4)
    expected = torch.nn.Flatten(*options)(x)
    actual = nn.Flatten(*options)(jnp.asarray(x.numpy()))
    assert np.array_equal(actual, expected.numpy())
    assert actual.shape == expected.shape


def test_flatten_edges():
    assert nn.Flatten(0)(jnp.ones(())).shape == (1,)
    assert nn.Flatten()(jnp.ones((0, 3, 2))).shape == (0, 6)


@pytest.mark.parametrize(("options", "ndim"), [((2, 1), 3), ((5,), 3), ((0, -4), 3), ((1,), 1)])
def test_flatten_refused_as_torch(options, ndim):
    check_error(
        lambda: nn.Flatten(*options)(jnp.ones((1,) * ndim)),
        lambda: torch.nn.Flatten(*options)(torch.ones((1,) * ndim)),
    )


@pytest.mark.parametrize("shape", [(3, 4, 4), (4, 4), (1, 3, 4, 4), (1, 3, 4, 4, 4)], ids=str)
def test_a_kernel_of_too_many_axes_is_refused_in_the_call(shape):
    """By the convolution that the class is named for."""
    kernel: Any = (2, 2, 2)
    layer = ps.init(nn.Conv2d(3, 4, kernel), 0)
    check_error(
        lambda: layer(jnp.zeros(shape)),
        lambda: torch.nn.Conv2d(3, 4, kernel)(torch.zeros(shape)),
    )
