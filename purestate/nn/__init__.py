"""PyTorch's layers: ``from purestate import nn`` is enough to write a model.

What each file offers is its ``__all__``; this package is the sum of them.
"""

from purestate._module import Module as Module
from purestate._parameter import (
    Buffer as Buffer,
    Parameter as Parameter,
    UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter,
)
from purestate.nn import (
    activation,
    adaptive,
    adaptive_pooling,
    avg_pooling,
    batchnorm,
    container,
    conv,
    conv_transpose,
    ctc,
    distance,
    dropout,
    embedding,
    embedding_bag,
    flatten,
    fold,
    fractional_pooling,
    functional as functional,
    init as init,
    instancenorm,
    lazy,
    likelihood_loss,
    linear,
    linear_cross_entropy,
    loss,
    lp_pooling,
    margin_loss,
    max_pooling,
    multihead_attention,
    normalization,
    padding,
    parameter_container,
    ranking_loss,
    rectifier,
    recurrent,
    recurrent_cells,
    shrink,
    shuffle,
    softmax,
    sync_batchnorm,
    transformer,
    transformer_layers,
    unpooling,
    upsampling,
    utils as utils,
)
from purestate.nn.activation import *
from purestate.nn.adaptive import *
from purestate.nn.adaptive_pooling import *
from purestate.nn.avg_pooling import *
from purestate.nn.batchnorm import *
from purestate.nn.container import *
from purestate.nn.conv import *
from purestate.nn.conv_transpose import *
from purestate.nn.ctc import *
from purestate.nn.distance import *
from purestate.nn.dropout import *
from purestate.nn.embedding import *
from purestate.nn.embedding_bag import *
from purestate.nn.flatten import *
from purestate.nn.fold import *
from purestate.nn.fractional_pooling import *
from purestate.nn.instancenorm import *
from purestate.nn.lazy import *
from purestate.nn.likelihood_loss import *
from purestate.nn.linear import *
from purestate.nn.linear_cross_entropy import *
from purestate.nn.loss import *
from purestate.nn.lp_pooling import *
from purestate.nn.margin_loss import *
from purestate.nn.max_pooling import *
from purestate.nn.multihead_attention import *
from purestate.nn.normalization import *
from purestate.nn.padding import *
from purestate.nn.parameter_container import *
from purestate.nn.ranking_loss import *
from purestate.nn.rectifier import *
from purestate.nn.recurrent import *
from purestate.nn.recurrent_cells import *
from purestate.nn.shrink import *
from purestate.nn.shuffle import *
from purestate.nn.softmax import *
from purestate.nn.sync_batchnorm import *
from purestate.nn.transformer import *
from purestate.nn.transformer_layers import *
from purestate.nn.unpooling import *
from purestate.nn.upsampling import *


__all__ = ["Buffer", "Module", "Parameter", "functional", "init"]
__all__ += ["UninitializedBuffer", "UninitializedParameter", "utils"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += adaptive_pooling.__all__
__all__ += avg_pooling.__all__
__all__ += batchnorm.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += conv_transpose.__all__
__all__ += ctc.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += embedding.__all__
__all__ += embedding_bag.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += fractional_pooling.__all__
__all__ += instancenorm.__all__
__all__ += lazy.__all__
__all__ += likelihood_loss.__all__
__all__ += linear.__all__
__all__ += linear_cross_entropy.__all__
__all__ += loss.__all__
__all__ += lp_pooling.__all__
__all__ += margin_loss.__all__
__all__ += max_pooling.__all__
__all__ += multihead_attention.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parameter_container.__all__
__all__ += ranking_loss.__all__
__all__ += rectifier.__all__
__all__ += recurrent.__all__
__all__ += recurrent_cells.__all__
__all__ += shrink.__all__
__all__ += shuffle.__all__
__all__ += softmax.__all__
__all__ += sync_batchnorm.__all__
__all__ += transformer.__all__
__all__ += transformer_layers.__all__
__all__ += unpooling.__all__
__all__ += upsampling.__all__
