"""Upsampling and shuffling layers, which the module database lacks."""

import jax
import pytest
import torch

from purestate import nn
from tests.nn.both import check_same, check_same_error
from tests.oracles import module_db
from tests.oracles.op_db import describe
from tests.parity import check_error, to_jax


def x(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


LAYERS = [
    ("Upsample", {"scale_factor": 2}),
    ("Upsample", {"size": (3, 5)}),
    ("Upsample", {"size": 5, "mode": "bicubic"}),
    ("Upsample", {"scale_factor": (1.7, 0.6), "mode": "bilinear", "align_corners": True}),
    ("Upsample", {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
    ("Upsample", {"size": 3, "mode": "area"}),
    ("UpsamplingNearest2d", {"scale_factor": 2}),
    ("UpsamplingNearest2d", {"size": [3, 5]}),
    ("UpsamplingBilinear2d", {"scale_factor": (2, 1)}),
    ("UpsamplingBilinear2d", {"size": 6}),
    ("PixelShuffle", {"upscale_factor": 2}),
    ("PixelUnshuffle", {"downscale_factor": 2}),
    ("ChannelShuffle", {"groups": 2}),
]


@pytest.mark.parametrize(("name", "options"), LAYERS, ids=describe)
def test_layers(name, options):
    check_same(lambda nn: getattr(nn, name)(**options))
    ours, theirs = getattr(nn, name)(**options), getattr(torch.nn, name)(**options)
    module_db.compare_call(ours, theirs, (x(2, 4, 4, 2),))
    for attribute in theirs.__constants__:
        assert getattr(ours, attribute) == getattr(theirs, attribute)


def test_other_numbers_of_axes():
    for shape, mode in [((1, 2, 4), "linear"), ((1, 2, 3, 2, 2), "trilinear")]:
        options = {"scale_factor": 2.0, "mode": mode}
        module_db.compare_call(nn.Upsample(**options), torch.nn.Upsample(**options), (x(*shape),))


def test_under_jit():
    layer, values = nn.Upsample(scale_factor=2.0), to_jax(x(1, 2, 3, 4))
    assert (jax.jit(lambda model, v: model(v))(layer, values) == layer(values)).all()


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("Upsample", {}, (1, 2, 3, 4)),
        ("Upsample", {"size": 2, "scale_factor": 2.0}, (1, 2, 3, 4)),
        ("Upsample", {"scale_factor": 0}, (1, 2, 3, 4)),
        ("Upsample", {"size": 2, "mode": "bilinear"}, (1, 2, 3)),
        ("Upsample", {"size": 2, "align_corners": True}, (1, 2, 3, 4)),
        ("UpsamplingBilinear2d", {"size": 2}, (1, 2, 3)),
        ("PixelShuffle", {"upscale_factor": 2}, (1, 2, 3, 4)),
        ("PixelUnshuffle", {"downscale_factor": 2}, (1, 2, 3, 4)),
        ("ChannelShuffle", {"groups": 3}, (1, 2, 3, 4)),
    ],
    ids=describe,
)
def test_errors(name, options, shape):
    check_error(
        lambda: getattr(nn, name)(**options)(to_jax(x(*shape))),
        lambda: getattr(torch.nn, name)(**options)(x(*shape)),
    )


def test_constructor_errors():
    check_same_error(lambda nn: nn.Upsample(scale_factor=[2.0, 2.0]))
