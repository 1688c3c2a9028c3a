"""The zoo: one table of every layer, as one builder for both sides and the inputs it takes.

Whatever must hold of all layers is tested over this table (``test_zoo.py``). An entry that is missing
fails the test that compares the table with ``purestate.nn``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from purestate import nn


class Entry(NamedTuple):
    """A layer.

    Attributes:
        name: Its class.
        build: From ``torch.nn`` or ``purestate.nn`` to the layer.
        inputs: numpy arrays, float32 or int32.
        draws: Whether a call in training draws random numbers.
        always_draws: Whether one in evaluation does, too.
        path: The program inside that this entry is for, where others of its class run another.
    """

    name: str
    build: Callable[[Any], Any]
    inputs: tuple[np.ndarray, ...]
    draws: bool = False
    always_draws: bool = False
    path: str = ""

    @property
    def id(self) -> str:
        """The name of the entry's tests."""
        return f"{self.name}-{self.path}" if self.path else self.name


def x(*shape: int) -> np.ndarray:
    """Floats, none of them near another's kink."""
    size = int(np.prod(shape))
    return np.random.default_rng(size).normal(size=shape).astype(np.float32)


def p(*shape: int) -> np.ndarray:
    """Probabilities."""
    return (1 / (1 + np.exp(-x(*shape)))).astype(np.float32)


def n(count: int, *shape: int) -> np.ndarray:
    """Integers below a count."""
    return np.random.default_rng(count).integers(count, size=shape).astype(np.int32)


def sign(*shape: int) -> np.ndarray:
    """Ones and minus ones."""
    return np.where(x(*shape) > 0, 1, -1).astype(np.float32)


def layer(name: str, *args: Any, inputs: Any, **options: Any) -> Entry:
    """An entry whose layer is ``nn.<name>(*args, **options)``."""
    flags = {key: options.pop(key) for key in ("draws", "always_draws", "path") if key in options}
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return Entry(name, lambda nn: getattr(nn, name)(*args, **options), inputs, **flags)


def _sized(names: str, *args: Any, shapes: Any, **options: Any) -> list[Entry]:
    """The one-, two- and three-dimensional forms of a layer."""
    return [
        layer(name, *args, inputs=x(*shape), **options)
        for name, shape in zip(names.split(), shapes, strict=True)
    ]


MAPS = [(2, 4, 6), (2, 4, 6, 6), (2, 4, 4, 4, 4)]

ACTIVATIONS = [
    layer(name, inputs=x(2, 4, 3))
    for name in (
        *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity"),
        *("LeakyReLU", "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid"),
        *("Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink"),
    )
] + [
    layer("GLU", 1, inputs=x(2, 4, 3)),
    layer("LogSoftmax", 1, inputs=x(2, 4, 3)),
    layer("RReLU", inputs=x(2, 4, 3), draws=True),
    layer("Softmax", 1, inputs=x(2, 4, 3)),
    layer("Softmax2d", inputs=x(2, 4, 3, 3)),
    layer("Softmin", 1, inputs=x(2, 4, 3)),
    layer("Threshold", 0.1, 2.0, inputs=x(2, 4, 3)),
]

LINEAR = [
    layer("Linear", 4, 3, inputs=x(2, 4)),
    layer("LazyLinear", 3, inputs=x(2, 4)),
    layer("Bilinear", 4, 3, 5, inputs=(x(2, 4), x(2, 3))),
    layer("Embedding", 7, 4, inputs=n(7, 2, 3)),
    layer("EmbeddingBag", 7, 4, inputs=n(7, 2, 3)),
    layer("AdaptiveLogSoftmaxWithLoss", 4, 8, [3, 5], 2.0, inputs=(x(6, 4), n(8, 6))),
]

CONVOLUTIONS = [
    *_sized("Conv1d Conv2d Conv3d", 4, 6, 3, padding=1, groups=2, shapes=MAPS),
    *_sized("ConvTranspose1d ConvTranspose2d ConvTranspose3d", 4, 6, 3, stride=2, shapes=MAPS),
    *_sized("LazyConv1d LazyConv2d LazyConv3d", 5, 2, shapes=MAPS),
    *_sized("LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d", 5, 2, shapes=MAPS),
    layer("Conv2d", 4, 4, 3, 2, 1, groups=4, inputs=x(2, 4, 6, 6), path="depthwise"),
    layer("Conv2d", 4, 6, 1, inputs=x(2, 4, 3, 3), path="pointwise"),
    layer("Conv2d", 4, 6, 3, padding=1, inputs=x(2, 4, 2, 2), path="starved"),
    layer("Unfold", 2, inputs=x(2, 4, 4, 4)),
    layer("Fold", (4, 4), 2, inputs=x(2, 8, 9)),
]

NORMALIZATIONS = [
    *_sized("BatchNorm1d BatchNorm2d BatchNorm3d", 4, shapes=MAPS),
    *_sized("LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d", shapes=MAPS),
    *_sized(
        "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
        4,
        affine=True,
        track_running_stats=True,
        shapes=MAPS,
    ),
    *_sized("LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d", affine=True, shapes=MAPS),
    layer("SyncBatchNorm", 4, inputs=x(2, 4, 6)),
    layer("CrossMapLRN2d", 3, inputs=x(2, 4, 3, 3)),
    layer("GroupNorm", 2, 4, inputs=x(2, 4, 3)),
    layer("LayerNorm", 4, inputs=x(2, 3, 4)),
    layer("LocalResponseNorm", 3, inputs=x(2, 4, 3)),
    layer("RMSNorm", 4, inputs=x(2, 3, 4)),
]

DROPOUTS = [
    layer(name, 0.5, inputs=x(*shape), draws=True)
    for name, shape in [
        ("AlphaDropout", (2, 4, 3)),
        ("Dropout", (2, 4, 3)),
        ("Dropout1d", (2, 4, 3)),
        ("Dropout2d", (2, 4, 3, 3)),
        ("Dropout3d", (2, 4, 3, 3, 3)),
        ("FeatureAlphaDropout", (2, 4, 3)),
    ]
]

POOLS = [
    *_sized("AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d", 3, shapes=MAPS),
    *_sized("AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d", 3, shapes=MAPS),
    *_sized("AvgPool1d AvgPool2d AvgPool3d", 2, shapes=MAPS),
    *_sized("LPPool1d LPPool2d LPPool3d", 2, 2, shapes=MAPS),
    *_sized("MaxPool1d MaxPool2d MaxPool3d", 2, shapes=MAPS),
    *_sized(
        "FractionalMaxPool2d FractionalMaxPool3d",
        2,
        output_size=3,
        shapes=[(2, 4, 9, 9), (2, 2, 7, 7, 7)],
        draws=True,
        always_draws=True,
    ),
    layer("MaxUnpool1d", 2, inputs=(x(1, 1, 3), np.array([[[1, 2, 5]]], np.int32))),
    layer("MaxUnpool2d", 2, inputs=(x(1, 1, 1, 2), np.array([[[[1, 6]]]], np.int32))),
    layer("MaxUnpool3d", 2, inputs=(x(1, 1, 1, 1, 2), np.array([[[[[1, 14]]]]], np.int32))),
]

SHAPES = [
    layer("Flatten", inputs=x(2, 4, 3)),
    layer("Unflatten", 1, (2, 2), inputs=x(2, 4, 3)),
    layer("ChannelShuffle", 2, inputs=x(2, 4, 3, 3)),
    layer("PixelShuffle", 2, inputs=x(2, 4, 3, 3)),
    layer("PixelUnshuffle", 2, inputs=x(2, 4, 4, 4)),
    layer("Upsample", None, 2, inputs=x(2, 4, 3, 3)),
    layer("UpsamplingBilinear2d", None, 2, inputs=x(2, 4, 3, 3)),
    layer("UpsamplingNearest2d", None, 2, inputs=x(2, 4, 3, 3)),
    *_sized("CircularPad1d CircularPad2d CircularPad3d", 1, shapes=MAPS),
    *_sized("ConstantPad1d ConstantPad2d ConstantPad3d", 1, 0.5, shapes=MAPS),
    *_sized("ReflectionPad1d ReflectionPad2d ReflectionPad3d", 1, shapes=MAPS),
    *_sized("ReplicationPad1d ReplicationPad2d ReplicationPad3d", 1, shapes=MAPS),
    *_sized("ZeroPad1d ZeroPad2d ZeroPad3d", 1, shapes=MAPS),
]


class Here:
    """Where ``Packed`` is found again by ``pickle``, under the name that it has in torch, too."""

    class Packed(nn.Module):
        """A recurrent layer over sequences of two lengths."""

        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 3)

        def forward(self, x):
            return _packed(nn.utils.rnn, self.lstm, x)


class There:
    """The same in torch."""

    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 3)

        def forward(self, x):
            return _packed(torch.nn.utils.rnn, self.lstm, x)


def _packed(rnn: Any, lstm: Any, x: Any) -> Any:
    output, state = lstm(rnn.pack_padded_sequence(x, [9, 6]))
    return (rnn.pad_packed_sequence(output)[0], *state)


RECURRENT = [
    *(
        layer(name, 4, 3, 2, dropout=0.5, bidirectional=True, inputs=x(5, 2, 4), draws=True)
        for name in ("GRU", "LSTM", "RNN")
    ),
    # Nine steps: two of the blocks that a CPU takes at a time, and one more.
    layer("GRU", 4, 3, inputs=x(9, 2, 4), path="blocks"),
    layer("RNN", 4, 3, inputs=x(9, 2, 4), path="blocks"),
    Entry(
        "LSTM",
        lambda nn: (There if nn is torch.nn else Here).Packed(),
        (x(9, 2, 4),),
        path="packed",
    ),
    *(layer(name, 4, 3, inputs=x(2, 4)) for name in ("GRUCell", "LSTMCell", "RNNCell")),
]

ATTENTION = [
    layer("MultiheadAttention", 4, 2, 0.5, inputs=(x(3, 2, 4), x(5, 2, 4), x(5, 2, 4)), draws=True),
    layer("TransformerEncoderLayer", 4, 2, 8, inputs=x(3, 2, 4), draws=True),
    layer("TransformerDecoderLayer", 4, 2, 8, inputs=(x(3, 2, 4), x(5, 2, 4)), draws=True),
    layer("Transformer", 4, 2, 1, 1, 8, inputs=(x(3, 2, 4), x(5, 2, 4)), draws=True),
    Entry(
        "TransformerEncoder",
        lambda nn: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False
        ),
        (x(3, 2, 4),),
        draws=True,
    ),
    Entry(
        "TransformerDecoder",
        lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2),
        (x(3, 2, 4), x(5, 2, 4)),
        draws=True,
    ),
]

CONTAINERS = [
    Entry("Sequential", lambda nn: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (x(5, 4),)),
    Entry(
        "Sequential",
        lambda nn: nn.Sequential(*(nn.Linear(4, 4) for _ in range(12))),
        (x(5, 4),),
        path="scanned",
    ),
]

LOSSES = [
    layer("BCELoss", inputs=(p(3, 4), p(3, 4))),
    layer("BCEWithLogitsLoss", inputs=(x(3, 4), p(3, 4))),
    layer("CTCLoss", inputs=(-p(6, 2, 5), 1 + n(4, 2, 3), np.full(2, 6, np.int32), n(3, 2) + 1)),
    layer("CosineEmbeddingLoss", inputs=(x(3, 4), p(3, 4), sign(3))),
    layer("CosineSimilarity", inputs=(x(3, 4), p(3, 4))),
    layer("CrossEntropyLoss", inputs=(x(3, 4), n(4, 3))),
    layer("GaussianNLLLoss", inputs=(x(3, 4), p(3, 4), p(3, 4))),
    layer("HingeEmbeddingLoss", inputs=(x(3, 4), sign(3, 4))),
    layer("HuberLoss", inputs=(x(3, 4), p(3, 4))),
    layer("KLDivLoss", reduction="batchmean", inputs=(-p(3, 4), p(3, 4))),
    layer("L1Loss", inputs=(x(3, 4), p(3, 4))),
    layer("LinearCrossEntropyLoss", 4, 5, inputs=(x(3, 4), n(5, 3))),
    layer("MSELoss", inputs=(x(3, 4), p(3, 4))),
    layer("MarginRankingLoss", inputs=(x(3), p(3), sign(3))),
    layer("MultiLabelMarginLoss", inputs=(x(3, 4), n(4, 3, 4))),
    layer("MultiLabelSoftMarginLoss", inputs=(x(3, 4), p(3, 4))),
    layer("MultiMarginLoss", inputs=(x(3, 4), n(4, 3))),
    layer("NLLLoss", inputs=(-p(3, 4), n(4, 3))),
    layer("NLLLoss2d", inputs=(-p(3, 4, 2, 2), n(4, 3, 2, 2))),
    layer("PairwiseDistance", inputs=(x(3, 4), p(3, 4))),
    layer("PoissonNLLLoss", inputs=(x(3, 4), p(3, 4))),
    layer("SmoothL1Loss", inputs=(x(3, 4), p(3, 4))),
    layer("SoftMarginLoss", inputs=(x(3, 4), sign(3, 4))),
    layer("TripletMarginLoss", inputs=(x(3, 4), p(3, 4), x(3, 4) + 1)),
    layer("TripletMarginWithDistanceLoss", inputs=(x(3, 4), p(3, 4), x(3, 4) + 1)),
]

ZOO = [
    *ACTIVATIONS,
    *LINEAR,
    *CONVOLUTIONS,
    *NORMALIZATIONS,
    *DROPOUTS,
    *POOLS,
    *SHAPES,
    *RECURRENT,
    *ATTENTION,
    *CONTAINERS,
    *LOSSES,
]

WITHOUT_FORWARD = {
    "Container",
    "Module",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "RNNBase",
    "RNNCellBase",
}
"""Classes that are not called: bases and containers."""
