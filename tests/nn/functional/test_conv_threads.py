"""The convolution with a row too many against XLA's own: when it is taken, values, every derivative."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from purestate.nn.functional import _conv_threads
from purestate.nn.functional._conv import convolve
from purestate.nn.functional._conv_threads import one_more_row, runs_on_one_thread


PLAIN = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}

# input, weight, pads, dilation
CASES = {
    "same": ((2, 3, 9, 5), (4, 3, 3, 3), ((1, 1), (1, 1)), (1, 1)),
    "smaller": ((1, 2, 40, 6), (3, 2, 3, 2), ((0, 0), (0, 0)), (1, 1)),
    "larger": ((1, 2, 9, 6), (3, 2, 3, 3), ((2, 2), (2, 1)), (1, 1)),
    "uneven": ((2, 2, 17, 6), (3, 2, 4, 2), ((0, 2), (1, 0)), (1, 1)),
    "dilated": ((2, 2, 18, 8), (3, 2, 3, 3), ((2, 2), (0, 3)), (2, 3)),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def sides(case):
    *shapes, pads, dilation = case
    rng = np.random.default_rng(0)
    arrays = tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    ours = functools.partial(one_more_row, pads=pads, dilation=dilation)
    theirs = functools.partial(
        lax.conv_general_dilated, window_strides=(1, 1), padding=pads, rhs_dilation=dilation
    )
    return ours, theirs, arrays


def close(actual, expected):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=3e-5, atol=3e-5), actual, expected)


@every_case
def test_values_and_every_derivative(case):
    ours, theirs, arrays = sides(case)
    tangents = tuple(map(jnp.cos, arrays))

    def derivatives(function):
        def loss(arrays):
            output = function(*arrays)
            return jnp.sum(jnp.sin(output) * jnp.cos(jnp.arange(output.size)).reshape(output.shape))

        return jax.jit(
            lambda arrays: (
                jax.jvp(function, arrays, tangents),
                jax.grad(loss)(arrays),
                jax.jvp(jax.grad(loss), (arrays,), (tangents,)),
                jax.grad(lambda arrays: jnp.vdot(jax.grad(loss)(arrays)[1], tangents[1]))(arrays),
            )
        )(arrays)

    close(derivatives(ours), derivatives(theirs))


def test_vmap():
    ours, theirs, (x, w) = sides(CASES["same"])
    xs, ws = jnp.stack([x, 2 * x]), jnp.stack([w, w + 1])
    for axes in ((0, 0), (0, None), (None, 0)):
        inputs = (xs if axes[0] == 0 else x, ws if axes[1] == 0 else w)
        close(*(jax.jit(jax.vmap(function, axes))(*inputs) for function in (ours, theirs)))


@pytest.mark.parametrize(
    ("shape", "kernel", "pads", "options", "expected"),
    [
        ((16, 64, 16, 16), (64, 64, 3, 3), 1, {}, True),
        ((16, 64, 16, 16), (128, 64, 3, 3), 1, {}, True),
        ((16, 128, 16, 16), (128, 128, 3, 3), 1, {}, False),
        ((16, 64, 16, 16), (256, 64, 3, 3), 1, {}, False),
        ((16, 64, 4, 16), (64, 64, 3, 3), 1, {}, False),
        ((1, 8, 16, 16), (8, 8, 3, 3), 1, {}, False),
        ((16, 64, 16, 16), (64, 64, 3, 3), 3, {}, False),
        ((16, 64, 32, 32), (64, 64, 3, 3), 1, {"stride": (2, 2)}, False),
        ((16, 64, 32, 32), (64, 32, 3, 3), 1, {"groups": 2}, False),
    ],
    ids=[
        "few channels",
        "few weights",
        "two blocks",
        "two blocks of weights",
        "low",
        "little work",
        "wide pads",
        "strided",
        "grouped",
    ],
)
def test_when_it_is_taken(shape, kernel, pads, options, expected):
    pads = ((pads, pads),) * 2
    assert runs_on_one_thread(shape, kernel, pads=pads, **(PLAIN | options)) is expected


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_only_a_cpu_gets_the_row(monkeypatch, backend):
    monkeypatch.setattr(_conv_threads, "PRODUCTS", 0)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    shape, kernel, pads, dilation = CASES["same"]
    arrays = jnp.ones(shape), jnp.ones(kernel)
    lowered = jax.jit(lambda x, w: convolve(x, w, (1, 1), pads, dilation, 1)).lower(*arrays)
    assert ("tensor<2x4x10x5xf32>" in lowered.as_text()) is (backend == "cpu")


def test_other_ranks_keep_xlas_own():
    assert not runs_on_one_thread((9, 64, 4096), (64, 64, 3), (1,), ((1, 1),), (1,), 1)
