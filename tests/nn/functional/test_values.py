"""What the database does not ask: half types, float64, higher derivatives, vmap, traced options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as T
from jax.test_util import check_grads

from purestate.nn import functional as F
from tests.oracles import op_db
from tests.parity import assert_close, check_function, to_jax


def x(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def normed(function):
    return lambda *args, **kwargs: function(*args, **kwargs)[0]


def in_float32(function):
    """The torch function computed in float32, its result cast back."""
    return lambda input, *args: function(input.float(), *args).to(input.dtype)


def given(function, **constants):
    """The function with arguments that have no derivative; floating-point ones in the input's dtype."""

    def call(input, *args):
        is_torch = isinstance(input, torch.Tensor)
        fixed = dict(constants) if is_torch else to_jax(constants)
        for name, value in constants.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                fixed[name] = value.to(input.dtype) if is_torch else fixed[name].astype(input.dtype)
        return function(input, *args, **fixed)

    return call


PLACES = torch.tensor([[[[0, 2], [9, 15]], [[5, 3], [12, 10]]]])
DRAWN = torch.tensor([[[0.1, 0.9], [0.6, 0.3]]])

CALLS = {
    "linear": (F.linear, T.linear, lambda d: (x(2, 3, dtype=d), x(4, 3, dtype=d), x(4, dtype=d))),
    "conv2d": (F.conv2d, T.conv2d, lambda d: (x(1, 2, 5, 5, dtype=d), x(3, 2, 3, 3, dtype=d))),
    "conv_transpose2d": (
        F.conv_transpose2d,
        T.conv_transpose2d,
        lambda d: (x(1, 4, 3, 3, dtype=d), x(4, 1, 3, 3, dtype=d), x(2, dtype=d), 2, 1, 1, 2),
    ),
    "unfold": (F.unfold, T.unfold, lambda d: (x(1, 2, 5, 5, dtype=d), 2, 2, 1, 2)),
    "fold": (F.fold, T.fold, lambda d: (x(1, 8, 9, dtype=d), 5, 2, 2, 1, 2)),
    "pad": (F.pad, T.pad, lambda d: (x(1, 2, 5, dtype=d), (2, -1), "reflect")),
    "max_pool2d": (F.max_pool2d, T.max_pool2d, lambda d: (x(1, 2, 5, 5, dtype=d), 3, 2, 1)),
    "avg_pool2d": (F.avg_pool2d, T.avg_pool2d, lambda d: (x(1, 2, 5, 5, dtype=d), 3, 2, 1)),
    "adaptive_avg_pool2d": (
        F.adaptive_avg_pool2d,
        T.adaptive_avg_pool2d,
        lambda d: (x(1, 2, 5, 5, dtype=d), 3),
    ),
    "adaptive_max_pool2d": (
        F.adaptive_max_pool2d,
        T.adaptive_max_pool2d,
        lambda d: (x(1, 2, 5, 5, dtype=d), 3),
    ),
    "fractional_max_pool2d": (
        given(F.fractional_max_pool2d, _random_samples=DRAWN),
        given(T.fractional_max_pool2d, _random_samples=DRAWN),
        lambda d: (x(1, 2, 5, 5, dtype=d), 2, 3),
    ),
    "lp_pool2d": (F.lp_pool2d, T.lp_pool2d, lambda d: (x(1, 2, 5, 5, dtype=d), 2, 3, 2)),
    "max_unpool2d": (
        given(F.max_unpool2d, indices=PLACES, kernel_size=2),
        given(T.max_unpool2d, indices=PLACES, kernel_size=2),
        lambda d: (x(1, 2, 2, 2, dtype=d),),
    ),
    "layer_norm": (F.layer_norm, T.layer_norm, lambda d: (x(4, 5, dtype=d), (5,))),
    "group_norm": (F.group_norm, T.group_norm, lambda d: (x(4, 6, 3, dtype=d), 2)),
    "batch_norm": (
        normed(F.batch_norm),
        T.batch_norm,
        lambda d: (x(4, 6, 3, dtype=d), None, None, None, None, True),
    ),
    "instance_norm": (
        normed(F.instance_norm),
        T.instance_norm,
        lambda d: (x(4, 6, 3, dtype=d),),
    ),
    "scaled_dot_product_attention": (
        F.scaled_dot_product_attention,
        T.scaled_dot_product_attention,
        lambda d: (x(3, 4, dtype=d), x(5, 4, dtype=d, seed=1), x(5, 2, dtype=d, seed=2)),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_half_types_stay_half(name, dtype):
    ours, theirs, args = CALLS[name]
    if name in ("batch_norm", "instance_norm"):
        # Torch rounds the scale and shift to the half type on the way; we only round the result.
        check_function(ours, in_float32(theirs), args(dtype), gradient=False)
    else:
        check_function(ours, theirs, args(dtype), gradient=False)
    assert ours(*to_jax(list(args(dtype)))).dtype == to_jax(dtype)


@pytest.mark.parametrize("name", CALLS)
def test_float64(name):
    ours, theirs, args = CALLS[name]
    with jax.enable_x64(True):
        check_function(ours, theirs, args(torch.float64))


@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives_in_both_modes(name):
    ours, _, args = CALLS[name]
    with jax.enable_x64(True):
        arrays = to_jax(list(args(torch.float64)))
        places = [i for i, value in enumerate(arrays) if isinstance(value, jax.Array)]

        def call(*inputs):
            filled = list(arrays)
            for place, value in zip(places, inputs, strict=True):
                filled[place] = value
            return ours(*filled)

        check_grads(call, [arrays[i] for i in places], order=2, modes=("fwd", "rev"), eps=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_vmap_is_a_loop(name):
    ours, _, args = CALLS[name]
    first, *rest = to_jax(list(args(torch.float32)))
    batch = jnp.stack([first, first + 1, first * 2])
    mapped = jax.vmap(lambda item: ours(item, *rest))(batch)
    assert_close(mapped, np.stack([ours(item, *rest) for item in batch]))


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "pad"])
def test_no_batch(name):
    ours, theirs, args = CALLS[name]
    first, *rest = args(torch.float32)
    check_function(ours, theirs, (first[0], *rest))


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm"])
def test_half_input_with_float_parameters(name):
    ours = normed(F.batch_norm) if name == "batch_norm" else getattr(F, name)
    args = {
        "layer_norm": ((6,), x(6), x(6, seed=1)),
        "group_norm": (2, x(6), x(6, seed=1)),
        "batch_norm": (x(6), x(6).abs(), x(6, seed=2), x(6, seed=1)),
    }[name]
    for dtype in (torch.float16, torch.bfloat16):
        check_function(ours, getattr(T, name), (x(4, 6, dtype=dtype), *args), gradient=False)


def test_wide_inputs_keep_their_variance():
    """One pass (mean of squares minus squared mean) would lose every digit here."""
    values = x(4, 64) + 1000
    exact = T.layer_norm(values.double(), (64,))
    np.testing.assert_allclose(F.layer_norm(to_jax(values), (64,)), exact, atol=1e-3)


def test_max_pool_ties_and_nan():
    nan = float("nan")
    values = torch.tensor([[[1, 1, 1, 0, 0, nan, 3, nan, 4, 4, 4, float("-inf")]]])
    check_function(
        lambda v: F.max_pool1d(v, 3, 2, 1, return_indices=True),
        lambda v: T.max_pool1d(v, 3, 2, 1, return_indices=True),
        (values,),
    )
    check_function(F.max_pool1d, T.max_pool1d, (values, 3))
    check_function(
        lambda v: F.max_pool2d(v, 2, padding=1, return_indices=True),
        lambda v: T.max_pool2d(v, 2, padding=1, return_indices=True),
        (torch.full((1, 3, 3), float("-inf")),),
    )


def test_integer_pooling():
    values = torch.arange(-8, 8).reshape(1, 4, 4)
    check_function(F.avg_pool2d, T.avg_pool2d, (values, 2))
    check_function(F.max_pool2d, T.max_pool2d, (values, 2, 1, 1))


@pytest.mark.parametrize(("shape", "size"), [((2, 2, 2), 0), ((2, 2, 2, 2), (0, 1))], ids=str)
def test_an_adaptive_mean_of_bytes_into_no_bins(shape, size):
    """There is no kernel for them, and none is asked."""
    name = f"adaptive_avg_pool{len(shape) - 2}d"
    check_function(getattr(F, name), getattr(T, name), (torch.zeros(shape, dtype=torch.uint8), size))


def test_adaptive_pool_bins_do_not_leak():
    """An infinite entry reaches only the bins that hold it."""
    values = x(1, 1, 5, 7)
    values[0, 0, 0, 0] = float("inf")
    check_function(F.adaptive_avg_pool2d, T.adaptive_avg_pool2d, (values, (3, 4)), gradient=False)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("pad", [(1, -2), (-1, 2), (-1, -1), (0, 0), (1, 2, -1, 1), (2, 1, 1, 0)])
def test_negative_padding(mode, pad):
    shape = (2, 3, 4) if len(pad) == 2 else (1, 2, 3, 4)
    check_function(F.pad, T.pad, (x(*shape), pad, mode))


@pytest.mark.parametrize(
    ("shape", "pad", "mode"),
    [
        ((1, 4, 2), (-2, 0, -1, 1), "replicate"),
        ((1, 1, 2), (-1, 2, 0, -1), "replicate"),
        ((2, 2, 1, 2), (2, 3, 0, -1), "replicate"),
        ((1, 4, 4, 4, 2), (0, -2, -4, 0, 0, 0), "replicate"),
        ((1, 4, 4, 2), (-2, 0, 0, 0), "reflect"),
        ((1, 4, 4, 4, 2), (0, -2, -4, 0, 0, 0), "reflect"),
        ((2, 2, 2), (-2, 0), "circular"),
    ],
    ids=op_db.describe,
)
def test_cropping_to_nothing(shape, pad, mode):
    """One of several axes may end empty."""
    check_function(F.pad, T.pad, (x(*shape), pad, mode), gradient=False)


def test_pad_value_is_cast():
    for values in (torch.arange(3), torch.tensor([True, False])):
        check_function(F.pad, T.pad, (values, (1, 1), "constant", 1.7))


def test_running_statistics():
    """Unbiased variance, and a momentum that may be traced."""
    values, mean, var = x(4, 3, 2), x(3, seed=1), x(3, seed=2).abs()
    for momentum in (0.1, 0.0, 1.0):
        after = mean.clone(), var.clone()
        output = T.batch_norm(values, *after, training=True, momentum=momentum)
        step = jax.jit(lambda m: F.batch_norm(*to_jax((values, mean, var)), None, None, True, m))
        assert_close(step(momentum), (output, *after))


def test_statistics_without_an_update():
    values, mean, var = to_jax((x(4, 3), x(3, seed=1), x(3, seed=2).abs()))
    assert_close(F.batch_norm(values, mean, var)[1:], (np.asarray(mean), np.asarray(var)))
    assert F.batch_norm(values, None, None, training=True)[1:] == (None, None)
    empty = F.batch_norm(values[:0], mean, var, training=True)
    assert_close(empty[1:], (np.asarray(mean), np.asarray(var)))


def test_statistics_have_no_gradient():
    def moved(values):
        _, mean, var = F.batch_norm(values, jnp.zeros(3), jnp.ones(3), training=True)
        return mean.sum() + var.sum()

    assert not jax.grad(moved)(to_jax(x(4, 3))).any()


def test_embedding_renorm():
    weight, indices = x(5, 3) * 3, torch.tensor([[0, 3], [3, 1]])
    after = weight.clone()
    for norm_type in (2.0, 1.0, float("inf")):
        torch.embedding_renorm_(after, indices, 1.5, norm_type)
        ours = F.embedding_renorm(to_jax(weight), to_jax(indices), 1.5, norm_type)
        assert_close(ours, after)
        after = weight.clone()
    identity = jax.jacobian(lambda w: F.embedding_renorm(w, to_jax(indices), 1.5))(to_jax(weight))
    np.testing.assert_array_equal(identity.reshape(15, 15), np.eye(15))


def test_embedding_hides_unknown_indices_behind_nan():
    rows = jax.jit(F.embedding)(jnp.array([0, 2, 3, -1]), to_jax(x(3, 2)))
    np.testing.assert_array_equal(np.isnan(rows).all(1), [False, False, True, True])


def test_embedding_gradients():
    indices = torch.tensor([0, 2, 2, 1, 2])
    for options in ({"padding_idx": 2}, {"padding_idx": -2}, {"scale_grad_by_freq": True}):
        check_function(F.embedding, T.embedding, (indices, x(3, 4)), options)


def test_embedding_of_an_infinite_row():
    weight = torch.tensor([[float("inf"), 1.0], [2.0, 3.0]])
    check_function(
        F.embedding, T.embedding, (torch.tensor([0, 0, 1]), weight), {"scale_grad_by_freq": True}
    )


def test_options_as_lists():
    """A list is as good as a tuple, and as an int repeated."""
    values, weight = to_jax((x(1, 2, 5, 5), x(3, 2, 3, 3)))
    expected = F.conv2d(values, weight, None, (2, 2), (1, 1))
    np.testing.assert_array_equal(F.conv2d(values, weight, None, [2, 2], [1, 1]), expected)
    np.testing.assert_array_equal(F.conv2d(values, weight, None, 2, 1), expected)


def test_conv_of_nothing():
    check_function(F.conv2d, T.conv2d, (x(0, 4, 4, 4), x(2, 4, 3, 3)))


def test_linear_of_nothing():
    check_function(F.linear, T.linear, (x(0, 3), x(2, 3), x(2)))
    check_function(F.linear, T.linear, (x(2, 0), x(2, 0), x(2)))
    check_function(F.linear, T.linear, (x(2, 2, 3), x(3)))
