"""The maths of the layers: torch.nn.functional's names, argument order, defaults and layouts.

Plain functions of arrays, jitted with their options static, so that calling them one by one costs
about what torch's eager calls cost; a few only put others together
(``triplet_margin_with_distance_loss``, whose option is a function) and are not. Two rules differ from
torch because nothing here writes: a function that updates statistics returns them, and a function
that draws takes a key. What each file offers is its ``__all__``; this package is the sum of them.
"""

from purestate.nn.functional import (
    _activation,
    _adaptive_max_pool,
    _adaptive_pool,
    _attention,
    _avg_pool,
    _bilinear,
    _conv,
    _conv_tbc,
    _conv_transpose,
    _ctc,
    _distance,
    _dropout,
    _embedding,
    _embedding_bag,
    _fold,
    _fractional_pool,
    _grid_sample,
    _grouped_mm,
    _interpolate,
    _likelihood,
    _linear,
    _linear_cross_entropy,
    _local_response,
    _loss,
    _lp_pool,
    _margin,
    _max_pool,
    _max_unpool,
    _multi_head,
    _norm,
    _one_hot,
    _pad,
    _ranking,
    _rectifier,
    _recurrent,
    _recurrent_cells,
    _regression,
    _rms_norm,
    _shrink,
    _shuffle,
    _softmax,
)
from purestate.nn.functional._activation import *
from purestate.nn.functional._adaptive_max_pool import *
from purestate.nn.functional._adaptive_pool import *
from purestate.nn.functional._attention import *
from purestate.nn.functional._avg_pool import *
from purestate.nn.functional._bilinear import *
from purestate.nn.functional._conv import *
from purestate.nn.functional._conv_tbc import *
from purestate.nn.functional._conv_transpose import *
from purestate.nn.functional._ctc import *
from purestate.nn.functional._distance import *
from purestate.nn.functional._dropout import *
from purestate.nn.functional._embedding import *
from purestate.nn.functional._embedding_bag import *
from purestate.nn.functional._fold import *
from purestate.nn.functional._fractional_pool import *
from purestate.nn.functional._grid_sample import *
from purestate.nn.functional._grouped_mm import *
from purestate.nn.functional._interpolate import *
from purestate.nn.functional._likelihood import *
from purestate.nn.functional._linear import *
from purestate.nn.functional._linear_cross_entropy import *
from purestate.nn.functional._local_response import *
from purestate.nn.functional._loss import *
from purestate.nn.functional._lp_pool import *
from purestate.nn.functional._margin import *
from purestate.nn.functional._max_pool import *
from purestate.nn.functional._max_unpool import *
from purestate.nn.functional._multi_head import *
from purestate.nn.functional._norm import *
from purestate.nn.functional._one_hot import *
from purestate.nn.functional._pad import *
from purestate.nn.functional._ranking import *
from purestate.nn.functional._rectifier import *
from purestate.nn.functional._recurrent import *
from purestate.nn.functional._recurrent_cells import *
from purestate.nn.functional._regression import *
from purestate.nn.functional._rms_norm import *
from purestate.nn.functional._shrink import *
from purestate.nn.functional._shuffle import *
from purestate.nn.functional._softmax import *


__all__ = []
__all__ += _activation.__all__
__all__ += _adaptive_max_pool.__all__
__all__ += _adaptive_pool.__all__
__all__ += _attention.__all__
__all__ += _avg_pool.__all__
__all__ += _bilinear.__all__
__all__ += _conv.__all__
__all__ += _conv_tbc.__all__
__all__ += _conv_transpose.__all__
__all__ += _ctc.__all__
__all__ += _distance.__all__
__all__ += _dropout.__all__
__all__ += _embedding.__all__
__all__ += _embedding_bag.__all__
__all__ += _fold.__all__
__all__ += _fractional_pool.__all__
__all__ += _grid_sample.__all__
__all__ += _grouped_mm.__all__
__all__ += _interpolate.__all__
__all__ += _likelihood.__all__
__all__ += _linear.__all__
__all__ += _linear_cross_entropy.__all__
__all__ += _local_response.__all__
__all__ += _loss.__all__
__all__ += _lp_pool.__all__
__all__ += _margin.__all__
__all__ += _max_pool.__all__
__all__ += _max_unpool.__all__
__all__ += _multi_head.__all__
__all__ += _norm.__all__
__all__ += _one_hot.__all__
__all__ += _pad.__all__
__all__ += _ranking.__all__
__all__ += _rectifier.__all__
__all__ += _recurrent.__all__
__all__ += _recurrent_cells.__all__
__all__ += _regression.__all__
__all__ += _rms_norm.__all__
__all__ += _shrink.__all__
__all__ += _shuffle.__all__
__all__ += _softmax.__all__
