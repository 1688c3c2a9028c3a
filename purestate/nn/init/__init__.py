"""torch.nn.init, twice: initialisers as values, and under torch's ``_`` names for constructors.

``nn.init.normal(std=0.02)`` is an initialiser, ``(key, shape, dtype) -> array``.
``nn.init.normal_(self.weight, std=0.02)`` says, in a constructor, how a parameter will be drawn.
"""

from purestate.nn.init._fans import calculate_gain as calculate_gain
from purestate.nn.init._in_place import (
    _calculate_fan_in_and_fan_out as _calculate_fan_in_and_fan_out,
    constant_ as constant_,
    dirac_ as dirac_,
    eye_ as eye_,
    kaiming_normal_ as kaiming_normal_,
    kaiming_uniform_ as kaiming_uniform_,
    normal_ as normal_,
    ones_ as ones_,
    orthogonal_ as orthogonal_,
    sparse_ as sparse_,
    trunc_normal_ as trunc_normal_,
    uniform_ as uniform_,
    xavier_normal_ as xavier_normal_,
    xavier_uniform_ as xavier_uniform_,
    zeros_ as zeros_,
)
from purestate.nn.init._initializers import (
    constant as constant,
    dirac as dirac,
    eye as eye,
    kaiming_normal as kaiming_normal,
    kaiming_uniform as kaiming_uniform,
    normal as normal,
    ones as ones,
    orthogonal as orthogonal,
    sparse as sparse,
    trunc_normal as trunc_normal,
    uniform as uniform,
    xavier_normal as xavier_normal,
    xavier_uniform as xavier_uniform,
    zero_row as zero_row,
    zeros as zeros,
)
