"""How a loss ends: the mean, the sum, or nothing, under torch's names for it.

The name is settled, with torch's warnings for the old ways to say it, before anything is traced:
a warning inside a jitted body would come once and never again.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from purestate._warning import warn
from purestate.nn.functional._dtypes import scalar_type
from purestate.nn.functional._options import listed
from purestate.nn.functional._shapes import broadcast


def settled(
    reduction: str,
    size_average: bool | None = None,
    reduce: bool | None = None,
) -> str:
    """``"none"``, ``"mean"`` or ``"sum"``, from torch's argument and its two deprecated ones.

    Args:
        reduction: Torch's argument.
        size_average: Deprecated in torch; overrides ``reduction``.
        reduce: Deprecated in torch; overrides ``reduction``.

    Raises:
        ValueError: For another reduction.
    """
    reduction = overridden(reduction, size_average, reduce)
    if reduction == "elementwise_mean":
        warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
        )
        return "mean"
    check_reduction(reduction)
    return reduction


def overridden(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, or the one that torch's two deprecated arguments stand for, with its warning."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is not None and not reduce:
        reduction = "none"
    else:
        reduction = "sum" if size_average is not None and not size_average else "mean"
    warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
    )
    return reduction


def check_reduction(reduction: str, refusal: str = "is not a valid value for reduction") -> None:
    """The three names that there are.

    Raises:
        ValueError: For another name; torch's losses word it in two ways.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} {refusal}")


def reduced(losses: jax.Array, reduction: str, weight: jax.Array | None = None) -> jax.Array:
    """The losses, their sum, or their mean (the weighted one, of losses that are weighted already)."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if weight is None else losses.sum() / weight.sum()


def check_fits(shape: Sequence[int], weight: jax.Array, first: bool = False) -> None:
    """Torch multiplies losses by a weight in place: the weight may not add axes to them.

    Args:
        shape: The shape of the losses.
        weight: What they are multiplied by.
        first: Whether torch names the weight first when the two do not broadcast.

    Raises:
        RuntimeError: The weight does not broadcast to ``shape``.
    """
    result = broadcast(weight.shape, shape) if first else broadcast(shape, weight.shape)
    if result != tuple(shape):
        raise RuntimeError(
            f"output with shape {listed(shape)} doesn't match the broadcast shape {listed(result)}"
        )


def check_floating(kernel: str, *arrays: jax.Array) -> None:
    """Torch has the kernels of its losses for floating-point numbers only.

    Raises:
        NotImplementedError: The arrays are of integers, booleans or complex numbers.
    """
    dtype = jnp.result_type(*arrays)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_type(dtype)}'")
