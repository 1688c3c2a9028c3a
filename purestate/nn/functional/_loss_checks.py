"""Torch's checks of the arguments of the losses of classes, in its order and words."""

import jax
import jax.numpy as jnp
import numpy as np

from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._known import known
from purestate.nn.functional._options import listed
from purestate.nn.functional._reduction import check_fits
from purestate.nn.functional._shapes import shown


def check_classes(
    input: jax.Array, target: jax.Array, weight: jax.Array | None, ignore_index: int
) -> None:
    """Indices of classes: their shape, dtype and, where they are known, values."""
    if input.ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {input.ndim})")
    batch = target.shape[0] if target.ndim else 0
    if input.ndim != 1 and input.shape[0] != batch:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({batch})."
        )
    if input.ndim <= 2:
        _check_flat(input, target, weight)
    else:
        _check_spatial(input, target, weight)
    if target.dtype not in (jnp.int32, jnp.int64, jnp.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {scalar_type(target.dtype)}"
        )
    if weight is not None and weight.dtype != input.dtype:
        raise RuntimeError(
            f"expected scalar type {scalar_type(input.dtype)} but found {scalar_type(weight.dtype)}"
        )
    if known(target):
        classes = input.shape[min(input.ndim - 1, 1)]
        values = np.asarray(target).ravel()
        outside = values[(values != ignore_index) & ((values < 0) | (values >= classes))]
        if outside.size:
            raise IndexError(f"Target {outside[0]} is out of bounds.")


def _check_flat(input: jax.Array, target: jax.Array, weight: jax.Array | None) -> None:
    """``(N, C)`` and ``(N,)``, or ``(C,)`` and ``()``."""
    if target.ndim > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input.ndim == 1 and target.ndim == 1 and target.shape[0] != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}"
        )
    classes = input.shape[-1]
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {listed(weight.shape)}"
        )


def _check_spatial(input: jax.Array, target: jax.Array, weight: jax.Array | None) -> None:
    """``(N, C, *)`` and ``(N, *)``; torch words the case of two spatial axes on its own."""
    expected = (input.shape[0], *input.shape[2:])
    is_image = input.ndim == 4
    if is_image and target.ndim != 3:
        raise RuntimeError(
            "only batches of spatial targets supported (3D tensors) but got targets of dimension: "
            f"{target.ndim}"
        )
    if not is_image and target.shape != expected:
        raise RuntimeError(f"Expected target size {listed(expected)}, got {listed(target.shape)}")
    if weight is not None and weight.size != input.shape[1]:
        raise RuntimeError("weight tensor should be defined either for all or no classes")
    if target.shape != expected:
        raise RuntimeError(
            f"size mismatch (got input: {listed(input.shape)} , target: {listed(target.shape)}"
        )


def check_probabilities(
    input: jax.Array, target: jax.Array, weight: jax.Array | None, ignore_index: int
) -> None:
    """Probabilities of classes, in the input's shape."""
    if not jnp.issubdtype(target.dtype, jnp.floating):
        raise RuntimeError(
            "Expected floating point type for target with class probabilities, "
            f"got {scalar_type(target.dtype)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    if input.ndim == 0:
        raise IndexError("Dimension specified as 1 but tensor has no dimensions")
    classes = input.shape[min(input.ndim - 1, 1)]
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no "
            f"classes but got weight tensor of shape: {listed(weight.shape)}"
        )


def check_binary_weight(target: jax.Array, weight: jax.Array | None) -> None:
    """A weight that broadcasts to the target."""
    if weight is None:
        return
    for place in range(1, min(target.ndim, weight.ndim) + 1):
        one, other = target.shape[-place], weight.shape[-place]
        if one != other and 1 not in (one, other):
            raise RuntimeError(
                f"Attempting to broadcast a dimension of length {other} at {-place}! Mismatching "
                f"argument at index 1 had {shown(weight.shape)}; but expected shape should be "
                f"broadcastable to {listed(target.shape)}"
            )
    check_fits(target.shape, weight)


def check_arrays(function: str, first: int, **arguments: object) -> None:
    """Arguments that are arrays or None, and not numbers; torch counts them from ``first`` on."""
    for place, (name, value) in enumerate(arguments.items(), first):
        if value is not None and not hasattr(value, "shape"):
            raise TypeError(
                f"{function}(): argument '{name}' (position {place}) must be Tensor, "
                f"not {type(value).__name__}"
            )


def check_unit_interval(name: str, values: np.ndarray) -> None:
    """Probabilities of two classes are in [0, 1]; NaN is not."""
    if not ((values >= 0) & (values <= 1)).all():
        raise RuntimeError(f"all elements of {name} should be between 0 and 1")
