"""What torch checks before it normalises, in torch's words."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from purestate.nn.functional._dtypes import is_half, scalar_type
from purestate.nn.functional._options import listed
from purestate.nn.functional._shapes import shown


def check_channels(
    shape: Sequence[int],
    running_mean: jax.Array | None,
    running_var: jax.Array | None,
    weight: jax.Array | None,
    bias: jax.Array | None,
    training: bool,
    eps: float,
    merged: bool = False,
) -> None:
    """The checks of ``batch_norm``; ``merged`` counts the channels of all examples together."""
    channels = shape[1] if len(shape) > 1 else 0
    if training and not merged and math.prod(shape) == channels > 0:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {shown(shape)}"
        )
    if training and not merged and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    if (running_mean is None) != (running_var is None) and training:
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    times = shape[0] if merged else 1
    for name, value in (
        ("running_mean", running_mean),
        ("running_var", running_var),
        ("weight", weight),
        ("bias", bias),
    ):
        if value is None and not training and name.startswith("running"):
            raise RuntimeError(f"{name} must be defined in evaluation mode")
        if value is not None and value.size != channels:
            raise RuntimeError(
                f"{name} should contain {times * channels} elements not {times * value.size}"
            )
    if len(shape) < 2 and 0 not in shape:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")


def check_layer(
    input: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    shape: tuple[int, ...],
) -> None:
    _check_normalized(shape, weight, bias)
    _check_last_axes(input, shape, "*, ")


def check_rms(input: jax.Array, weight: jax.Array | None, shape: tuple[int, ...]) -> None:
    _check_normalized(shape, weight, None)
    if input.ndim < len(shape):
        raise ValueError(
            f"Input tensor must have at least {len(shape)} dimensions, but got {input.ndim}"
        )
    _check_last_axes(input, shape, "*")
    if not jnp.issubdtype(input.dtype, jnp.inexact):
        raise NotImplementedError(f"\"rms_norm\" not implemented for '{scalar_type(input.dtype)}'")


def _check_normalized(shape: tuple[int, ...], weight: jax.Array | None, bias: jax.Array | None) -> None:
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{listed(value.shape)} and normalized_shape = {listed(shape)}"
            )


def _check_last_axes(input: jax.Array, shape: tuple[int, ...], leading: str) -> None:
    if input.shape[-len(shape) :] != shape:
        sizes = ", ".join(map(str, shape))
        raise RuntimeError(
            f"Given normalized_shape={listed(shape)}, expected input with shape [{leading}{sizes}], "
            f"but got input of size{listed(input.shape)}"
        )


def check_groups(
    input: jax.Array, num_groups: int, weight: jax.Array | None, bias: jax.Array | None
) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if input.shape[0] * input.shape[1] // num_groups * math.prod(input.shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 value per channel when training, "
            f"got input size {listed(input.shape)}"
        )
    if input.shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {listed(input.shape)} and num_groups={num_groups}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != input.shape[1:2]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {listed(value.shape)} "
                f"and input of shape {listed(input.shape)}"
            )


def check_dtypes(kernel: str, input: jax.Array, *parameters: jax.Array | None) -> None:
    """All of one dtype, or a half input with parameters in float32."""
    if not jnp.issubdtype(input.dtype, jnp.inexact):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(input.dtype)}'")
    dtypes = [parameter.dtype for parameter in parameters if parameter is not None]
    if all(dtype == input.dtype for dtype in dtypes):
        return
    if any(dtype != jnp.float32 for dtype in dtypes):
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
    if not is_half(input.dtype):
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
