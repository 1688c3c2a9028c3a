"""grouped_mm and conv_tbc, which the database lacks, against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.parity import check_error, check_function, to_jax


OFFSETS = torch.tensor([3, 3, 8], dtype=torch.int32)
SHAPES = {"rows": ((8, 16), (3, 16, 24)), "columns": ((3, 16, 8), (8, 8)), "inner": ((16, 8), (8, 16))}


def x(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def grouped(f, offsets):
    # Torch's own gradient refuses an expanded cotangent.
    return lambda a, b: f(a, b, offs=offsets) * 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_groups(kind, dtype):
    a, b = SHAPES[kind]
    ours, theirs = grouped(F.grouped_mm, to_jax(OFFSETS)), grouped(T.grouped_mm, OFFSETS)
    check_function(ours, theirs, (x(*a, dtype=dtype), x(*b, dtype=dtype)))


def test_no_offsets():
    check_function(F.grouped_mm, T.grouped_mm, (x(2, 8, 16), x(2, 16, 24)))
    check_function(
        F.grouped_mm, T.grouped_mm, (x(2, 8, 16), x(2, 16, 24)), {"out_dtype": torch.float32}
    )


def test_what_is_in_no_group_gives_zeros():
    output = F.grouped_mm(jnp.ones((10, 3)), jnp.ones((2, 3, 5)), offs=jnp.array([3, 8]))
    np.testing.assert_array_equal(output[:, 0], [3] * 8 + [0] * 2)


def test_what_is_not_finite_stays_in_its_group():
    a, b = jnp.ones((4, 2)).at[0].set(jnp.nan), jnp.ones((2, 2, 2)).at[1].set(jnp.inf)
    run = lambda a, b: F.grouped_mm(a, b, offs=jnp.array([2, 4]))  # noqa: E731
    np.testing.assert_array_equal(
        jnp.isfinite(run(a, b)), [[False] * 2, [True] * 2, *[[False] * 2] * 2]
    )
    gradient = jax.grad(lambda a: run(a, b)[:2].sum())(a)
    np.testing.assert_array_equal(gradient[:2], [[2, 2], [2, 2]])


@pytest.mark.parametrize("kind", SHAPES)
def test_transforms(kind):
    a, b = (to_jax(x(*shape)) for shape in SHAPES[kind])
    run = grouped(F.grouped_mm, to_jax(OFFSETS))
    both = jax.vmap(run)(jnp.stack([a, 2 * a]), jnp.stack([b, b]))
    np.testing.assert_allclose(both[1], 2 * run(a, b), rtol=1e-5, atol=1e-5)
    # Bilinear: its second derivative along (a, b) twice is twice the product.
    along = lambda t: run(a * t, b * t)  # noqa: E731
    second = jax.jvp(lambda t: jax.jvp(along, (t,), (1.0,))[1], (1.0,), (1.0,))[1]
    np.testing.assert_allclose(second, 2 * run(a, b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        (x(8, 16), x(2, 16, 24), {}),
        (x(2, 8, 16), x(2, 16, 24), {"offs": OFFSETS[:2]}),
        (x(8, 16), x(3, 16, 24), {"offs": OFFSETS[None]}),
        (x(8, 16), x(3, 16, 24), {"offs": OFFSETS.short()}),
        (x(8, 16), x(2, 16, 24), {"offs": OFFSETS}),
        (x(2, 16, 16), x(16, 8), {"offs": OFFSETS}),
        (x(8, 16), x(3, 12, 24), {"offs": OFFSETS}),
        (x(2, 8, 16), x(3, 16, 24), {}),
        (x(16), x(2, 16, 24), {}),
        (x(2, 16, 16), x(16), {}),
        (x(8, 16).short(), x(3, 16, 24), {"offs": OFFSETS}),
        (x(8, 16), x(3, 16, 24).int(), {"offs": OFFSETS}),
        (x(8, 16).bfloat16(), x(3, 16, 24), {"offs": OFFSETS}),
        (x(8, 16), x(3, 16, 24), {"offs": OFFSETS, "bias": x(24)}),
        (x(8, 16), x(3, 16, 24), {"offs": OFFSETS, "out_dtype": torch.bfloat16}),
    ],
)
def test_errors(a, b, options):
    check_error(
        lambda: F.grouped_mm(*to_jax((a, b)), **to_jax(options)), lambda: T.grouped_mm(a, b, **options)
    )


TBC = x(7, 2, 3), x(3, 3, 5), x(5)


@pytest.mark.parametrize("pad", [0, 2, 5, -1])
def test_conv_tbc(pad):
    check_function(F.conv_tbc, T.conv_tbc, (*TBC, pad))


def test_conv_tbc_of_little():
    input, weight, bias = TBC
    for args in [
        (input[:2], weight, bias),
        (input[:, :0], weight, bias),
        (input[..., :0], weight[:, :0], bias),
        (input, weight[..., :0], bias[:0]),
        (input.int(), weight.int(), bias.int()),
        (input.bfloat16(), weight.bfloat16(), bias.bfloat16()),
        (input, weight, bias.double()),
    ]:
        check_function(F.conv_tbc, T.conv_tbc, args, gradient=False)


def test_conv_tbc_transforms():
    input, weight, bias = to_jax(TBC)
    both = jax.vmap(F.conv_tbc, (0, None, None))(jnp.stack([input, -input]), weight, bias)
    np.testing.assert_allclose(both[0] + both[1], jnp.broadcast_to(2 * bias, both[0].shape), atol=1e-5)


@pytest.mark.parametrize(
    "args",
    [
        (x(2, 3), *TBC[1:]),
        (TBC[0], x(3, 5), TBC[2]),
        (*TBC[:2], x(1, 5)),
        (x(7, 2, 2), *TBC[1:]),
        (*TBC[:2], x(3)),
        (x(1, 2, 3), *TBC[1:]),
        (TBC[0], TBC[1].half(), TBC[2]),
    ],
)
def test_conv_tbc_errors(args):
    check_error(lambda: F.conv_tbc(*to_jax(args)), lambda: T.conv_tbc(*args))
