"""The maths of the layers: torch.nn.functional's names, argument order, defaults and layouts.

Plain functions of arrays, each jitted with its options static, so that calling them one by one
costs about what torch's eager calls cost. Two rules differ from torch because nothing here writes:
a function that updates statistics returns them, and a function that draws takes a key.
"""

from purestate.nn.functional._activation import (
    elu as elu,
    gelu as gelu,
    hardsigmoid as hardsigmoid,
    hardswish as hardswish,
    hardtanh as hardtanh,
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    mish as mish,
    prelu as prelu,
    relu as relu,
    relu6 as relu6,
    sigmoid as sigmoid,
    silu as silu,
    softmax as softmax,
    softplus as softplus,
    tanh as tanh,
)
from purestate.nn.functional._adaptive_pool import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d,
)
from purestate.nn.functional._avg_pool import (
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
)
from purestate.nn.functional._conv import conv1d as conv1d, conv2d as conv2d, conv3d as conv3d
from purestate.nn.functional._dropout import (
    alpha_dropout as alpha_dropout,
    dropout as dropout,
    dropout1d as dropout1d,
    dropout2d as dropout2d,
    dropout3d as dropout3d,
    feature_alpha_dropout as feature_alpha_dropout,
)
from purestate.nn.functional._embedding import (
    embedding as embedding,
    embedding_renorm as embedding_renorm,
)
from purestate.nn.functional._linear import linear as linear
from purestate.nn.functional._loss import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cross_entropy as cross_entropy,
    nll_loss as nll_loss,
)
from purestate.nn.functional._max_pool import (
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
)
from purestate.nn.functional._norm import (
    batch_norm as batch_norm,
    group_norm as group_norm,
    instance_norm as instance_norm,
    layer_norm as layer_norm,
)
from purestate.nn.functional._pad import pad as pad
from purestate.nn.functional._recurrent import lstm as lstm
from purestate.nn.functional._regression import (
    huber_loss as huber_loss,
    l1_loss as l1_loss,
    mse_loss as mse_loss,
    smooth_l1_loss as smooth_l1_loss,
)


__all__ = [  # noqa: RUF022 - grouped, and sorted within a group
    # linear maps and lookups
    "conv1d",
    "conv2d",
    "conv3d",
    "embedding",
    "embedding_renorm",
    "linear",
    # pooling and padding
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pad",
    # normalisation
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    # activations
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
    # dropout
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
    # losses
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
    # recurrent
    "lstm",
]
