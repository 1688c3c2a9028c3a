"""torch.nn.utils.parametrize and parametrizations: weights that are computed from others.

Each function takes a model, or in a constructor a child, and returns it with the change. A
parametrized weight keeps every promise of the model: it goes through jit, grad, vmap, pickle and
deepcopy, and its names in a ``state_dict`` are torch's.
"""

from bridge.parametrize._list import (
    ParametrizationList as ParametrizationList,
    is_parametrized as is_parametrized,
)
from bridge.parametrize._orthogonal import orthogonal as orthogonal
from bridge.parametrize._registration import (
    cached as cached,
    register_parametrization as register_parametrization,
    remove_parametrizations as remove_parametrizations,
    set_parametrized as set_parametrized,
    transfer_parametrizations_and_params as transfer_parametrizations_and_params,
    type_before_parametrizations as type_before_parametrizations,
)
from bridge.parametrize._spectral_norm import spectral_norm as spectral_norm
from bridge.parametrize._weight_norm import weight_norm as weight_norm
