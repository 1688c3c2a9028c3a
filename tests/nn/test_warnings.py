"""A warning names the line of the user's code that asked for it, however deep a layer gave it."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purestate as ps
from purestate import nn
from purestate.nn import functional as F


class OfLSTM(nn.LSTM):
    def __init__(self):
        super().__init__(2, 2, dropout=0.5)


class OfMSELoss(nn.MSELoss):
    def __init__(self):
        super().__init__(size_average=True)

    def forward(self, input, target):
        return super().forward(input, target)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = np.zeros(2**18 + 1)

    def forward(self, x):
        return x


def container():
    class Mine(nn.Container):
        pass

    return Mine


CONSTRUCTIONS = {
    "LSTM": lambda: nn.LSTM(2, 2, dropout=0.5),
    "GRU": lambda: nn.GRU(2, 2, dropout=0.5),
    "RNN": lambda: nn.RNN(2, 2, dropout=0.5),
    "a subclass of LSTM": OfLSTM,
    "MSELoss": lambda: nn.MSELoss(reduce=False),
    "CrossEntropyLoss": lambda: nn.CrossEntropyLoss(size_average=True),
    "a subclass of MSELoss": OfMSELoss,
    "NLLLoss2d": nn.NLLLoss2d,
    "Hardtanh": lambda: nn.Hardtanh(min_value=-1.0),
    "Container": nn.Container,
    "a subclass of Container": container,
    "TransformerEncoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(2, 1, 2), 1),
    "Transformer": lambda: nn.Transformer(2, 1, 1, 1, 2),
    "Linear": lambda: nn.Linear(0, 2),
    "a large constant": Large,
}


def attention():
    layer = ps.init(nn.MultiheadAttention(2, 1), 0)
    x, mask = jnp.ones((3, 1, 2)), jnp.zeros((3, 3), bool)
    return lambda: layer(x, x, x, key_padding_mask=jnp.zeros((1, 3)), attn_mask=mask)


def encoder_layer():
    layer = ps.init(nn.TransformerEncoderLayer(2, 1, 2, dropout=0.0), 0)
    mask, padding = jnp.zeros((3, 3), bool), jnp.zeros((1, 3))
    return lambda: layer(jnp.ones((3, 1, 2)), mask, padding)


def encoder():
    layer = nn.TransformerEncoderLayer(2, 1, 2, dropout=0.0)
    stack = ps.init(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), 0)
    mask, padding = jnp.zeros((3, 3), bool), jnp.zeros((1, 3))
    return lambda: stack(jnp.ones((3, 1, 2)), mask, padding)


def cross_entropy():
    options = nn.LinearCrossEntropyOptions()
    layer = ps.init(nn.LinearCrossEntropyLoss(2, 3, label_smoothing=0.5, options=options), 0)
    return lambda: layer(jnp.ones((4, 2)), jnp.zeros(4, int))


def called(layer, *inputs):
    layer = ps.init(layer, 0)
    return lambda: ps.call(layer, *map(jnp.ones, inputs), rng=0)


CALLS = {
    "MSELoss": lambda: called(nn.MSELoss(), (2, 2), (2,)),
    "L1Loss": lambda: called(nn.L1Loss(), (2, 2), (2,)),
    "SmoothL1Loss": lambda: called(nn.SmoothL1Loss(), (2, 2), (2,)),
    "HuberLoss": lambda: called(nn.HuberLoss(), (2, 2), (2,)),
    "KLDivLoss": lambda: called(nn.KLDivLoss(), (2, 2), (2, 2)),
    "Softmax": lambda: called(nn.Softmax(), (2, 2)),
    "LogSoftmax": lambda: called(nn.LogSoftmax(), (2, 2)),
    "Softmin": lambda: called(nn.Softmin(), (2, 2)),
    "Dropout2d of three axes": lambda: called(nn.Dropout2d(), (2, 2, 2)),
    "Dropout2d of two axes": lambda: called(nn.Dropout2d(), (2, 2)),
    "Dropout3d": lambda: called(nn.Dropout3d(), (2, 2)),
    "InstanceNorm1d": lambda: called(nn.InstanceNorm1d(3), (2, 2, 4)),
    "MultiheadAttention": attention,
    "TransformerEncoderLayer": encoder_layer,
    "TransformerEncoder": encoder,
    "LinearCrossEntropyLoss": cross_entropy,
    "Softmax in a Sequential": lambda: called(nn.Sequential(nn.Sequential(nn.Softmax())), (2, 2)),
    "Softmax in a scan": lambda: called(nn.Sequential(*[nn.Softmax() for _ in range(16)]), (2, 2)),
    "Softmax in jit": lambda: jax.jit(called(nn.Softmax(), (2, 2))),
    "Softmax in ps.init": lambda: (
        lambda: ps.init(nn.Sequential(nn.LazyLinear(2), nn.Softmax()), 0, jnp.ones((2, 2)))
    ),
    "functional.mse_loss": lambda: lambda: F.mse_loss(jnp.ones((2, 2)), jnp.ones(2)),
    "functional.kl_div": lambda: lambda: F.kl_div(jnp.ones((2, 2)), jnp.ones((2, 2))),
}


def files(call):
    """Where the warnings of a call point."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        call()
    return {warning.filename for warning in record}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_constructors_warning_points_here(name):
    assert files(CONSTRUCTIONS[name]) == {__file__}


@pytest.mark.parametrize("name", CALLS)
def test_a_calls_warning_points_here(name):
    call = CALLS[name]()
    assert files(call) == {__file__}
