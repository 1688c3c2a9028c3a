"""Layers exported for batches and sequences of any size compute what the model does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import bridge
import purestate as ps
from purestate import nn


F = nn.functional


class Causal(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


class Itself(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


LAYERS = {
    "Linear": (nn.Linear(4, 5), "b, t, 4"),
    "Conv1d": (nn.Conv1d(4, 5, 3, padding=1), "b, 4, t"),
    "Conv2d": (nn.Conv2d(4, 8, 3, padding=1), "b, 4, 8, 8"),
    "Conv2d of any image": (nn.Conv2d(4, 8, 3, padding=1), "1, 4, b, t"),
    "Conv2d with a stride": (nn.Conv2d(4, 8, 3, stride=2), "b, 4, 8, 8"),
    "Conv2d of small maps": (nn.Conv2d(4, 8, 3, padding=1), "b, 4, 2, 2"),
    "Conv2d, 1 x 1": (nn.Conv2d(4, 8, 1, groups=2), "b, 4, 8, t"),
    "Conv2d, depthwise": (nn.Conv2d(4, 4, 3, groups=4, padding=1), "b, 4, 8, 8"),
    "ConvTranspose2d": (nn.ConvTranspose2d(4, 4, 3), "b, 4, 8, 8"),
    "BatchNorm2d": (nn.BatchNorm2d(4), "b, 4, 8, 8"),
    "InstanceNorm2d": (nn.InstanceNorm2d(4), "b, 4, 8, 8"),
    "LayerNorm": (nn.LayerNorm(4), "b, t, 4"),
    "GroupNorm": (nn.GroupNorm(2, 4), "b, 4, 3"),
    "RMSNorm": (nn.RMSNorm(4), "b, t, 4"),
    "LSTM": (nn.LSTM(4, 5, batch_first=True), "b, t, 4"),
    "LSTM of seven steps": (nn.LSTM(4, 5), "7, b, 4"),
    "LSTM, both ways, projected": (nn.LSTM(4, 5, bidirectional=True, proj_size=3), "t, b, 4"),
    "GRU": (nn.GRU(4, 5, num_layers=2), "t, b, 4"),
    "RNN": (nn.RNN(4, 5, nonlinearity="relu"), "t, b, 4"),
    "GRUCell": (nn.GRUCell(4, 5), "b, 4"),
    "attention": (Itself(), "b, t, 4"),
    "causal attention": (Causal(), "b, 2, t, 4"),
    "encoder": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "b, t, 4"),
    "MaxPool2d": (nn.MaxPool2d(2), "b, 4, 8, 8"),
    "AvgPool2d": (nn.AvgPool2d(2), "b, 4, 8, 8"),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d(2), "b, 4, 8, 8"),
    "Upsample": (nn.Upsample(scale_factor=2), "b, 4, 8, 8"),
    "PixelShuffle": (nn.PixelShuffle(2), "b, 4, 4, 4"),
    "Unfold": (nn.Unfold(2), "b, 4, 4, 4"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_any_batch_and_length(name):
    layer, shape = LAYERS[name]
    model = bridge.eval(ps.init(layer, jax.random.key(0)))
    symbolic = jax.ShapeDtypeStruct(export.symbolic_shape(shape), jnp.float32)
    exported = export.export(jax.jit(lambda x: model(x)))(symbolic)
    for batch, length in ((2, 3), (3, 9)):
        sizes = {"b": batch, "t": length}
        known = [sizes.get(size, size) for size in shape.split(", ")]
        x = jnp.asarray(
            np.random.default_rng(0).normal(size=[int(size) for size in known]), jnp.float32
        )
        actual, expected = exported.call(x), model(x)
        for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
