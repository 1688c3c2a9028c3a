"""``nn.init.normal_`` and the rest: how a constructor says how its parameters are drawn.

Torch's functions write into a tensor. While a model is under construction a parameter is a box
without a value yet, and these put the initialiser into the box; ``purestate.init`` draws. So the
line in ``__init__`` or in a loop over ``self.modules()`` is the same as in PyTorch.
"""

import math
from typing import Any

from purestate._abstract import AbstractArray, Initializer
from purestate._parameter import Box
from purestate._warning import warn
from purestate.nn.init import _initializers as values
from purestate.nn.init._fans import calculate_gain, correct_fan, fan_in_and_fan_out, warn_if_empty


def _put(tensor: Any, initializer: Initializer, name: str, generator: Any = None) -> Any:
    if generator is not None:
        raise TypeError(
            f"nn.init.{name}_ draws no numbers and takes no generator.\n"
            "    write: model = purestate.init(model, rng)"
        )
    if not isinstance(tensor, Box):
        raise TypeError(
            f"nn.init.{name}_ works on a parameter or buffer of a model under construction; an "
            f"array ({type(tensor).__name__}) never changes in place.\n"
            f"    write: array = nn.init.{name}(...)(key, shape, dtype)"
        )
    tensor.data = AbstractArray(tensor.shape, tensor.dtype, initializer)
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    """``torch.nn.init._calculate_fan_in_and_fan_out``, which much constructor code calls."""
    return fan_in_and_fan_out(tensor.shape)


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """``torch.nn.init.uniform_`` for a parameter under construction."""
    return _put(tensor, values.uniform(a, b), "uniform", generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """``torch.nn.init.normal_`` for a parameter under construction."""
    return _put(tensor, values.normal(mean, std), "normal", generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """``torch.nn.init.trunc_normal_`` for a parameter under construction."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
        )
    return _put(tensor, values.trunc_normal(mean, std, a, b), "trunc_normal", generator)


def constant_(tensor: Any, val: float) -> Any:
    """``torch.nn.init.constant_`` for a parameter under construction."""
    return _put(tensor, values.constant(val), "constant")


def ones_(tensor: Any) -> Any:
    """``torch.nn.init.ones_`` for a parameter under construction."""
    return _put(tensor, values.ones(), "ones")


def zeros_(tensor: Any) -> Any:
    """``torch.nn.init.zeros_`` for a parameter under construction."""
    return _put(tensor, values.zeros(), "zeros")


def eye_(tensor: Any) -> Any:
    """``torch.nn.init.eye_`` for a parameter under construction."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _put(tensor, values.eye(), "eye")


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """``torch.nn.init.dirac_`` for a parameter under construction."""
    values.check_dirac(tensor.shape, groups)
    return _put(tensor, values.dirac(groups), "dirac")


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """``torch.nn.init.xavier_uniform_`` for a parameter under construction."""
    fan_in_and_fan_out(tensor.shape)
    return _put(tensor, values.xavier_uniform(gain), "xavier_uniform", generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """``torch.nn.init.xavier_normal_`` for a parameter under construction."""
    fan_in_and_fan_out(tensor.shape)
    return _put(tensor, values.xavier_normal(gain), "xavier_normal", generator)


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """``torch.nn.init.kaiming_uniform_`` for a parameter under construction."""
    if warn_if_empty(tensor.shape):
        return zeros_(tensor)
    correct_fan(tensor.shape, mode)
    calculate_gain(nonlinearity, a)
    return _put(tensor, values.kaiming_uniform(a, mode, nonlinearity), "kaiming_uniform", generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """``torch.nn.init.kaiming_normal_`` for a parameter under construction."""
    if warn_if_empty(tensor.shape):
        return zeros_(tensor)
    correct_fan(tensor.shape, mode)
    calculate_gain(nonlinearity, a)
    return _put(tensor, values.kaiming_normal(a, mode, nonlinearity), "kaiming_normal", generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """``torch.nn.init.orthogonal_`` for a parameter under construction."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if math.prod(tensor.shape) == 0:
        return zeros_(tensor)
    return _put(tensor, values.orthogonal(gain), "orthogonal", generator)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """``torch.nn.init.sparse_`` for a parameter under construction."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _put(tensor, values.sparse(sparsity, std), "sparse", generator)
