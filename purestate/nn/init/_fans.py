"""Fans and gains: the numbers that Glorot's and He's initialisers scale by, with torch's checks."""

import math
from collections.abc import Sequence

from purestate._warning import warn


def fan_in_and_fan_out(shape: Sequence[int]) -> tuple[int, int]:
    """``(fan_in, fan_out)`` of a weight: axis 1 is in, axis 0 is out, the rest is receptive field.

    Raises:
        ValueError: For fewer than two axes.
    """
    if len(shape) < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def correct_fan(shape: Sequence[int], mode: str) -> int:
    """The fan that ``mode`` names.

    Raises:
        ValueError: For a mode other than ``"fan_in"`` and ``"fan_out"``.
    """
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return fan_in_and_fan_out(shape)[mode == "fan_out"]


_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of a nonlinearity (``torch.nn.init.calculate_gain``).

    Args:
        nonlinearity: Torch's name of it.
        param: The slope of ``"leaky_relu"``; 0.01 when None.

    Raises:
        ValueError: For an unknown name, or a slope that is not a number.
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if param is None:
        slope = 0.01
    elif isinstance(param, int | float) and not isinstance(param, bool):
        slope = param
    else:
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + slope**2))


def warn_if_empty(shape: Sequence[int]) -> bool:
    """Whether there is nothing to draw, and no fan need be; warns as torch does."""
    if 0 in shape:
        warn("Initializing zero-element tensors is a no-op")
        return True
    return False
