"""Two-sided comparison: the same call on torch and here, compared in value, gradient and error.

``to_jax`` and ``to_torch`` carry values across by copy, so that neither side can see the other's
later writes. ``check_function`` runs one functional on both sides and compares the outputs and the
gradient of a weighted sum with respect to every floating-point array among the arguments.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

from purestate import nn
from tests import tolerances


def to_numpy(value: torch.Tensor) -> np.ndarray:
    """A copy of a tensor as numpy; bfloat16 goes through its bits."""
    value = value.detach().cpu().resolve_conj().resolve_neg()
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16)
    return value.numpy().copy()


def to_jax(value: Any) -> Any:
    """The same structure with every tensor as a JAX array (64-bit dtypes narrow unless x64 is on)."""
    if isinstance(value, torch.Tensor):
        array = to_numpy(value)
        return jnp.asarray(array.astype(jax.dtypes.canonicalize_dtype(array.dtype)))
    if isinstance(value, torch.dtype):
        return jnp.dtype(str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return nn.LinearCrossEntropyOptions(**to_jax(dataclasses.asdict(value)))
    if isinstance(value, Mapping):
        return {key: to_jax(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(to_jax(item) for item in value)
    return value


def to_torch(value: Any) -> torch.Tensor:
    """A torch copy of an array."""
    array = np.array(value)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def assert_close(actual: Any, expected: Any, *, table=tolerances.VALUE, where: str = "output") -> None:
    """Equal structure, shape and values within the table's tolerance; NaN equals NaN."""
    if isinstance(expected, torch.Tensor):
        expected = to_numpy(expected)
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected), f"{where}: {len(actual)} items, expected {len(expected)}"
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            assert_close(ours, theirs, table=table, where=f"{where}[{index}]")
        return
    if expected is None:
        assert actual is None, f"{where}: expected None, got {actual!r}"
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{where}: shape {actual.shape}, expected {expected.shape}"
    rtol, atol = tolerances.tolerance(actual.dtype, table)
    if actual.dtype == ml_dtypes.bfloat16:
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    # The scale of the whole array bounds the rounding of its smallest entries (sums cancel).
    finite = np.abs(expected[np.isfinite(expected)]) if expected.size else expected
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(
        actual, expected, rtol=rtol, atol=atol * scale, equal_nan=True, err_msg=where
    )


def _is_float_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _outputs(value: Any) -> list[Any]:
    """The floating-point arrays among the outputs, in order."""
    leaves = value if isinstance(value, tuple | list) else [value]
    return [leaf for leaf in leaves if leaf is not None]


def cotangent(shape: Sequence[int]) -> np.ndarray:
    """A fixed, uneven cotangent: a plain sum would hide permuted or mixed gradients."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.cos(np.arange(size, dtype=np.float64)).reshape(tuple(shape))


def check_function(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    gradient: bool = True,
) -> None:
    """Run one call on both sides and compare outputs and, where there are any, gradients.

    Args:
        ours: The JAX function.
        theirs: The torch function; called with the tensors themselves.
        args: Positional arguments with torch tensors among them (nested lists and tuples allowed).
        kwargs: Keyword arguments, likewise.
        gradient: Compare the gradient of ``sum(cos(i) * output_i)`` for every float argument too.
    """
    kwargs = dict(kwargs or {})
    leaves, treedef = jax.tree.flatten((list(args), kwargs), is_leaf=lambda x: x is None)
    places = [i for i, leaf in enumerate(leaves) if _is_float_tensor(leaf)] if gradient else []
    tensors = [
        leaf.detach().clone().requires_grad_(i in places) if isinstance(leaf, torch.Tensor) else leaf
        for i, leaf in enumerate(leaves)
    ]
    arrays = [to_jax(leaf) for leaf in leaves]

    torch_args, torch_kwargs = jax.tree.unflatten(treedef, tensors)
    expected = theirs(*torch_args, **torch_kwargs)

    def run(inputs):
        filled = list(arrays)
        for place, value in zip(places, inputs, strict=True):
            filled[place] = value
        jax_args, jax_kwargs = jax.tree.unflatten(treedef, filled)
        return ours(*jax_args, **jax_kwargs)

    inputs = [arrays[place] for place in places]
    assert_close(run(inputs), expected)

    differentiable = [out for out in _outputs(expected) if _is_float_tensor(out) and out.requires_grad]
    if not places or not differentiable:
        return

    def loss(inputs):
        outputs = [out for out in _outputs(run(inputs)) if jnp.issubdtype(out.dtype, jnp.inexact)]
        return sum(
            jnp.sum(jnp.real(out) * jnp.asarray(cotangent(out.shape), jnp.real(out).dtype))
            for out in outputs
        )

    total: Any = sum(
        (torch.real(out) * torch.from_numpy(cotangent(out.shape)).to(torch.real(out).dtype)).sum()
        for out in differentiable
    )
    grads = torch.autograd.grad(total, [tensors[p] for p in places], allow_unused=True)
    actual = jax.grad(loss)(inputs)
    for place, ours_grad, theirs_grad in zip(places, actual, grads, strict=True):
        expected_grad = torch.zeros_like(tensors[place]) if theirs_grad is None else theirs_grad
        if torch.is_complex(expected_grad):
            expected_grad = expected_grad.conj()
        assert_close(
            ours_grad, expected_grad, table=tolerances.GRADIENT, where=f"gradient of argument {place}"
        )


def check_error(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    """Both sides must raise, with the same exception type and the same text."""
    expected = raised(theirs)
    actual = raised(ours)
    assert expected is not None, "torch did not raise"
    assert actual is not None, f"torch raised {expected!r}; nothing was raised here"
    assert (type(actual), str(actual)) == (type(expected), str(expected))


def raised(call: Callable[[], Any]) -> Exception | None:
    """The exception a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None
