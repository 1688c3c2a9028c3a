"""Both forms of the linear map: with its axes merged, for one CPU device, and as they are."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purestate.nn.functional import _forms, _linear


SHAPES = {
    "a sequence of batches": ((3, 2, 4), (5, 4), (5,)),
    "a matrix": ((3, 4), (5, 4), (5,)),
    "a vector": ((4,), (5, 4), None),
    "one output": ((3, 2, 4), (4,), None),
    "a number": ((4,), (4,), None),
    "nothing": ((0, 2, 4), (5, 4), (5,)),
}


def plain(x, w, b=None):
    return x @ w.T + (0 if b is None else b)


def close(actual, expected):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), actual, expected)


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_values_and_every_derivative(monkeypatch, shapes, merged):
    monkeypatch.setattr(_linear, "merging_pays", lambda: merged)
    ours: Any = inspect.unwrap(_linear.linear)
    rng = np.random.default_rng(0)
    args = tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes if shape)
    tangents = jax.tree.map(jnp.cos, args)

    def derivatives(function):
        def total(args):
            return jnp.sum(jnp.sin(function(*args)))

        return jax.jit(
            lambda args: (
                jax.jvp(function, args, tangents),
                jax.grad(total)(args),
                jax.hessian(total)(args),
                jax.vmap(function, (0, *[None] * (len(args) - 1)))(jnp.stack([args[0]] * 2), *args[1:]),
            )
        )(args)

    close(derivatives(ours), derivatives(plain))


@pytest.mark.parametrize(
    ("backend", "devices", "expected"),
    [("cpu", 1, True), ("cpu", 2, False), ("gpu", 1, False)],
)
def test_merging_is_for_one_cpu_device(monkeypatch, backend, devices, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    assert _forms.merging_pays() is expected
