"""Transposed convolution: refusals, empty batches, dtypes, and that XLA gets one convolution."""

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as T

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import check_error, check_function, raised, to_jax


def r(*shape, dtype=torch.float32):
    return torch.zeros(*shape).to(dtype)


X, W = r(1, 4, 4, 4), r(4, 2, 3, 3)

REFUSED = [
    ((r(1, 3, 4, 4), W), {}),
    ((r(3, 4, 4), W), {}),
    ((r(3, 4), W), {}),
    ((X, r(4, 2, 3)), {}),
    ((X, r(4, 2)), {}),
    ((X, W, r(3)), {}),
    ((X, W, r(2, 1)), {}),
    ((X, W, r(2)), {"groups": 2}),
    ((X, W), {"groups": 3}),
    ((X, W), {"groups": 5}),
    ((X, W), {"groups": 0}),
    ((X, W), {"stride": 0}),
    ((X, W), {"padding": (-1, 1)}),
    ((X, W), {"output_padding": (-1, 1)}),
    ((X, W), {"output_padding": (1, 0)}),
    ((X, W), {"output_padding": (2, 0), "dilation": (1, 3), "stride": (2, 1)}),
    ((X, W), {"dilation": 0}),
    ((X, W), {"dilation": -1}),
    ((X, W), {"stride": (1, 1, 1)}),
    ((X, W), {"padding": (1, 1, 1)}),
    ((X, W), {"output_padding": (1, 1, 1)}),
    ((X, W), {"dilation": (1, 1, 1)}),
    ((X, W), {"padding": "same"}),
    ((X, W), {"padding": 4}),
    ((X, W), {"padding": 4, "output_padding": 5}),
    ((r(1, 4, 0, 4), W), {}),
    ((X, r(4, 0, 3, 3)), {}),
    ((X, r(4, 2, 0, 3)), {}),
    ((r(1, 0, 4, 4), r(0, 2, 3, 3)), {}),
    ((X, W.half()), {}),
    ((X.to(torch.uint8), W.to(torch.uint8)), {}),
]


@pytest.mark.parametrize(("args", "kwargs"), REFUSED, ids=op_db.describe)
def test_refusals(args, kwargs):
    check_error(
        lambda: F.conv_transpose2d(*to_jax(list(args)), **kwargs),
        lambda: T.conv_transpose2d(*args, **kwargs),
    )


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{"output_padding": 1}, {"dilation": 0}, {"padding": 4}, {"stride": (1,) * 4}],
    ids=op_db.describe,
)
def test_refusals_of_one_and_three_axes(n, options):
    name = f"conv_transpose{n}d"
    x, weight = r(1, 4, *(4,) * n), r(4, 2, *(3,) * n)
    for args in [(x, weight), (x[..., :0], weight), (x, weight[:, :0]), (x, weight[..., :0])]:
        check_error(
            lambda args=args: getattr(F, name)(*to_jax(list(args)), **options),
            lambda args=args: getattr(T, name)(*args, **options),
        )


def test_the_bias_of_three_axes_is_not_cast():
    args = (r(1, 4, 4, 4, 4), r(4, 2, 3, 3, 3), r(2).half())
    check_error(lambda: F.conv_transpose3d(*to_jax(list(args))), lambda: T.conv_transpose3d(*args))


def test_an_empty_batch():
    check_function(F.conv_transpose2d, T.conv_transpose2d, (r(0, 4, 4, 4), W, r(2), 2))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_the_sizes_of_an_empty_batch(n, size, stride, padding):
    """Torch computes them without a convolution, and they may be none that one has."""
    options = {"stride": stride, "padding": padding}
    ours, theirs = getattr(F, f"conv_transpose{n}d"), getattr(T, f"conv_transpose{n}d")
    weight = r(1, 2, *(3,) * n)
    for args in [(r(0, 1, *(2,) * (n - 1), size), weight), (r(0, 1, *(size,) * n), weight)]:
        if raised(lambda args=args: theirs(*args, **options)):
            check_error(
                lambda args=args: ours(*to_jax(args), **options),
                lambda args=args: theirs(*args, **options),
            )
        else:
            check_function(ours, theirs, args, options)


def test_an_empty_batch_with_an_empty_kernel():
    for weight in (r(4, 0, 3, 3), r(4, 2, 0, 3)):
        args = (r(0, 4, 4, 4), weight)
        check_error(
            lambda args=args: F.conv_transpose2d(*to_jax(args)),
            lambda args=args: T.conv_transpose2d(*args),
        )
    check_function(F.conv_transpose2d, T.conv_transpose2d, (r(0, 4, 4, 4), W), {"dilation": 0})


def test_no_batch():
    x, weight = torch.randn(4, 5), torch.randn(4, 3, 2)
    check_function(F.conv_transpose1d, T.conv_transpose1d, (x, weight, torch.randn(3), 2, 1, 1))


def test_integers_and_complex_numbers():
    x, weight = torch.arange(16).reshape(1, 4, 4), torch.arange(24).reshape(4, 2, 3)
    check_function(F.conv_transpose1d, T.conv_transpose1d, (x, weight, torch.arange(2), 2))
    check_function(F.conv_transpose1d, T.conv_transpose1d, (x * 1j, weight * (1 + 1j)))


def test_it_is_one_convolution():
    """Of the input as it is: nothing is filled with zeros first."""
    traced = jax.make_jaxpr(lambda *args: F.conv_transpose2d(*args, stride=3, output_padding=1))
    text = str(traced(jnp.zeros((1, 4, 5, 5)), jnp.zeros((4, 2, 3, 3))))
    assert text.count("conv_general_dilated[") == 1
    assert "lhs_dilation=(3, 3)" in text
    assert " pad[" not in text
