"""The CPU's programs for convolutions against XLA's own: values, every derivative, vmap, platforms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from purestate.nn.functional import _conv_cpu
from purestate.nn.functional._conv import convolve
from purestate.nn.functional._conv_cpu import choose, columns, depthwise


THREE = (1, 1, 1)

# input, weight, stride, pads, dilation, groups, and the program that is chosen.
CASES = {
    "depthwise, stride 2": ((2, 4, 5, 5), (4, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 4, depthwise),
    "depthwise, uneven": ((2, 4, 6, 7), (4, 1, 3, 2), (3, 2), ((1, 2), (0, 1)), (1, 2), 4, depthwise),
    "depthwise, 1-D": ((2, 3, 9), (3, 1, 3), (2,), ((0, 0),), (2,), 3, depthwise),
    "depthwise, 3-D": (
        (1, 2, 4, 4, 4),
        (2, 1, 2, 3, 2),
        (1, 2, 1),
        ((1, 0),) * 3,
        (1,) * 3,
        2,
        depthwise,
    ),
    "starved": ((2, 4, 2, 2), (6, 4, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, columns),
    "starved, grouped": ((2, 4, 3, 2), (6, 2, 3, 3), (2, 1), ((1, 1), (1, 1)), (1, 1), 2, columns),
    "pointwise": ((2, 4, 4, 4), (6, 4, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1, columns),
    "pointwise, padded": ((2, 4, 4, 3), (6, 2, 1, 1), (1, 2), ((1, 1), (0, 0)), (1, 1), 2, columns),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def native(stride, pads, dilation, groups):
    spatial = "DHW"[-len(stride) :]
    return functools.partial(
        lax.conv_general_dilated,
        window_strides=stride,
        padding=pads,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
    )


def sides(case, dtype=jnp.float32):
    shape, kernel, *options, _ = case
    rng = np.random.default_rng(0)
    arrays = tuple(jnp.asarray(rng.normal(size=sizes), dtype) for sizes in (shape, kernel))
    return lambda x, w: convolve(x, w, *options), native(*options), arrays


def close(actual, expected, tolerance=3e-5):
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), actual, expected
    )


def loss(function, arrays):
    output = function(*arrays)
    return jnp.sum(jnp.sin(output) * jnp.cos(jnp.arange(output.size)).reshape(output.shape))


@every_case
def test_the_program_is_chosen(case):
    *shapes, program = case
    chosen = choose(*shapes)
    assert isinstance(chosen, functools.partial)
    assert chosen.func is program


@pytest.mark.parametrize(
    ("shape", "kernel", "pads", "groups"),
    [
        ((2, 4, 8, 8), (6, 4, 3, 3), ((1, 1), (1, 1)), 1),
        ((2, 4, 8, 8), (6, 2, 3, 3), ((1, 1), (1, 1)), 2),
        ((0, 4, 8, 8), (6, 4, 1, 1), ((0, 0), (0, 0)), 1),
        ((2, 4, 40), (6, 4, 100), ((90, 90),), 1),
    ],
    ids=["large enough", "grouped", "empty", "too many columns"],
)
def test_xlas_own_is_kept(shape, kernel, pads, groups):
    ones = (1,) * len(pads)
    assert choose(shape, kernel, ones, pads, ones, groups) is None


@pytest.mark.parametrize("merged", [True, False], ids=["merged axes", "axes as they are"])
@every_case
def test_values_and_every_derivative(monkeypatch, case, merged):
    monkeypatch.setattr(_conv_cpu, "merging_pays", lambda: merged)
    ours, theirs, arrays = sides(case)
    tangents = tuple(map(jnp.cos, arrays))

    def derivatives(function):
        gradient = jax.grad(functools.partial(loss, function))
        return jax.jit(
            lambda arrays: (
                jax.jvp(function, arrays, tangents),
                gradient(arrays),
                jax.jvp(gradient, (arrays,), (tangents,)),
                jax.jvp(lambda w: function(arrays[0], w), (arrays[1],), (tangents[1],)),
            )
        )(arrays)

    close(derivatives(ours), derivatives(theirs))


@every_case
def test_vmap(case):
    ours, theirs, (x, w) = sides(case)
    xs, ws = jnp.stack([x, 2 * x]), jnp.stack([w, w + 1])
    for axes in ((0, 0), (0, None), (None, 0)):
        inputs = (xs if axes[0] == 0 else x, ws if axes[1] == 0 else w)
        close(*(jax.jit(jax.vmap(function, axes))(*inputs) for function in (ours, theirs)))


@every_case
def test_half_precision_sums_in_float32(case):
    ours, _, (x, w) = sides(case, jnp.bfloat16)
    _, theirs, _ = sides(case)
    output = ours(x, w)
    assert output.dtype == jnp.bfloat16
    expected = theirs(x.astype(jnp.float32), w.astype(jnp.float32))
    close(output.astype(jnp.float32), expected.astype(jnp.bfloat16).astype(jnp.float32), 8e-3)


@pytest.mark.parametrize("name", ["starved", "depthwise, stride 2", "pointwise"])
def test_other_platforms_keep_xlas_convolution(name):
    ours, _, arrays = sides(CASES[name])
    exported = jax.export.export(jax.jit(ours), platforms=["cuda"])(*arrays)
    assert "stablehlo.convolution" in exported.mlir_module()
    assert "stablehlo.convolution" not in jax.jit(ours).lower(*arrays).as_text()
