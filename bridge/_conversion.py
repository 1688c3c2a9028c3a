"""Conversion: another dtype, another device, another sharding.

PyTorch's rules of what is touched: every parameter and buffer, the non-persistent ones too, and no
plain attribute; ``double`` and the like change floating-point arrays only, ``to(dtype)`` complex
ones as well; integers and booleans keep their dtype. Ties stay tied.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purestate._abstract import is_undrawn
from purestate._definition import Definition, Leaf, intern
from purestate._lives import flatten, unflatten
from purestate._select import Selector, select


def to(
    model: Any,
    dtype: Any = None,
    device: Any = None,
    sharding: Any = None,
    keep: Selector | None = None,
) -> Any:
    """The model with another dtype, device or sharding (``torch.nn.Module.to``).

    Args:
        model: A model; arrays that are not drawn yet take the new dtype and sharding too.
        dtype: A floating-point or complex dtype, for the floating-point and complex arrays.
        device: A JAX device, or the name of a platform ("cpu", "gpu", "tpu") for its first device.
        sharding: A ``jax.sharding.Sharding`` for every array, or a function
            ``(name, array) -> sharding or None``.
        keep: Modules whose own arrays keep their dtype (normalisation in float32, say).

    Raises:
        TypeError: For an integer dtype, with torch's text.
        ValueError: For a 64-bit dtype while x64 is off.
        SelectorError: When ``keep`` matches nothing.
    """
    if dtype is not None:
        dtype = jnp.dtype(dtype)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )
        model = _cast(model, dtype, jnp.inexact, keep)
    if device is not None:
        device = jax.devices(device)[0] if isinstance(device, str) else device
        sharding = jax.sharding.SingleDeviceSharding(device)
    return model if sharding is None else _place(model, sharding)


def double(model: Any) -> Any:
    """The model in float64; needs x64. (``torch.nn.Module.double``)."""
    return _cast(model, jnp.dtype("float64"), jnp.floating, None)


def float(model: Any) -> Any:
    """The model in float32 (``torch.nn.Module.float``)."""
    return _cast(model, jnp.dtype("float32"), jnp.floating, None)


def half(model: Any) -> Any:
    """The model in float16 (``torch.nn.Module.half``)."""
    return _cast(model, jnp.dtype("float16"), jnp.floating, None)


def bfloat16(model: Any) -> Any:
    """The model in bfloat16 (``torch.nn.Module.bfloat16``)."""
    return _cast(model, jnp.dtype("bfloat16"), jnp.floating, None)


def _cast(model: Any, dtype: Any, kind: Any, keep: Selector | None) -> Any:
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(
            f"JAX is in 32-bit mode and cannot hold {dtype.name}.\n"
            '    write: jax.config.update("jax_enable_x64", True)'
        )
    leaves, definition = flatten(model)
    kept = _own_leaves(definition, keep, leaves)
    chosen = [
        leaf not in kept and jnp.issubdtype(array.dtype, kind) for leaf, array in enumerate(leaves)
    ]
    arrays = tuple(
        _cast_array(array, dtype) if change else array
        for array, change in zip(leaves, chosen, strict=True)
    )
    # A cast is a decision about the dtype: what JAX narrowed before is no longer remembered.
    described = tuple(
        Leaf(leaf.trainable) if change else leaf
        for leaf, change in zip(definition.leaves, chosen, strict=True)
    )
    return unflatten(intern(definition.nodes, described), arrays)


def _cast_array(array: Any, dtype: Any) -> Any:
    if is_undrawn(array):
        return array.update(dtype=dtype)
    if jnp.issubdtype(array.dtype, jnp.complexfloating) and not jnp.issubdtype(
        dtype, jnp.complexfloating
    ):
        warnings.warn("Casting complex values to real discards the imaginary part", stacklevel=4)
        array = array.real
    return array.astype(dtype)


def _own_leaves(definition: Definition, where: Selector | None, leaves: Any) -> set[int]:
    """The leaves that the selected modules themselves hold."""
    if where is None:
        return set()
    return {
        leaf
        for node in select(definition, where, leaves)
        for kind in ("parameters", "buffers")
        for _, leaf in definition.members(node, kind)
        if leaf is not None
    }


def _place(model: Any, sharding: Any) -> Any:
    leaves, definition = flatten(model)
    choose: Callable[[str, Any], Any] = sharding if callable(sharding) else lambda name, array: sharding

    def place(name: str, array: Any) -> Any:
        target = choose(name, array)
        if target is None:
            return array
        if is_undrawn(array):
            return array.update(sharding=target)
        return jax.device_put(array, target)

    return unflatten(
        definition,
        tuple(place(name, array) for name, array in zip(definition.names, leaves, strict=True)),
    )
