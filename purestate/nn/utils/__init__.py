"""torch.nn.utils on values: what wrote into parameters and gradients takes them and returns new ones.

What each file offers is its ``__all__``; this package is the sum of them.
"""

from purestate.nn.utils import (
    _clip,
    _fusion,
    _skip_init,
    _vectors,
    rnn as rnn,
)
from purestate.nn.utils._clip import *
from purestate.nn.utils._fusion import *
from purestate.nn.utils._skip_init import *
from purestate.nn.utils._vectors import *


__all__ = ["rnn"]
__all__ += _clip.__all__
__all__ += _fusion.__all__
__all__ += _skip_init.__all__
__all__ += _vectors.__all__
