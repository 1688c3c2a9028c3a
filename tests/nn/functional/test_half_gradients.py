"""Gradients in 16 bits of what is spread over a batch: sums of thousands, rounded once.

The yardstick is torch's own error in the same dtype, both against float64 of the same rounded
numbers. Sizes are such that a sum in the dtype itself is wrong by a tenth or more.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from purestate.nn import functional as F


RNG = np.random.default_rng(0)
INDEX = RNG.integers(0, 4, (2048, 4))
CLASSES = RNG.integers(0, 8, 4096)


def normal(*shape):
    return RNG.standard_normal(shape)


def indices(x, values):
    return torch.tensor(values) if isinstance(x, torch.Tensor) else jnp.asarray(values, jnp.int32)


def first(output):
    """The output without statistics or states."""
    return output[0] if isinstance(output, tuple) else output


def conv_tbc(f, x, weight, bias):
    function = torch.conv_tbc if isinstance(x, torch.Tensor) else f.conv_tbc
    return function(x, weight, bias)  # pyright: ignore[reportCallIssue]


def lstm(f, x, *weights):
    if isinstance(x, torch.Tensor):
        zeros = torch.zeros(1, x.shape[1], 6, dtype=x.dtype)
        return torch.lstm(x, (zeros, zeros), weights, True, 1, 0.0, False, False, False)
    return f.lstm(x, None, weights)


# Name: the function, and the arrays by all of which it is differentiated.
CASES = {
    "linear": (lambda f, *a: f.linear(*a), normal(64, 512, 8), normal(5, 8), normal(5)),
    "linear to one": (lambda f, *a: f.linear(*a), normal(64, 512, 8), normal(1, 8), normal(1)),
    "bilinear": (
        lambda f, *a: f.bilinear(*a),
        normal(4096, 4),
        normal(4096, 4),
        normal(3, 4, 4),
        normal(3),
    ),
    "conv1d": (lambda f, *a: f.conv1d(*a), normal(8, 3, 2048), normal(3, 3, 3), normal(3)),
    "conv2d": (lambda f, *a: f.conv2d(*a), normal(16, 3, 32, 32), normal(8, 3, 3, 3), normal(8)),
    "conv3d": (lambda f, *a: f.conv3d(*a), normal(4, 3, 16, 16, 16), normal(3, 3, 3, 3, 3), normal(3)),
    "conv_transpose1d": (
        lambda f, *a: f.conv_transpose1d(*a),
        normal(8, 3, 2048),
        normal(3, 3, 3),
        normal(3),
    ),
    "conv_transpose2d": (
        lambda f, *a: f.conv_transpose2d(*a),
        normal(16, 3, 32, 32),
        normal(3, 4, 3, 3),
        normal(4),
    ),
    "conv_tbc": (conv_tbc, normal(1024, 8, 3), normal(3, 3, 2), normal(2)),
    "prelu": (lambda f, *a: f.prelu(*a), normal(16, 4, 32, 32), normal(4)),
    "layer_norm": (
        lambda f, x, *a: f.layer_norm(x, (8,), *a),
        normal(8192, 8),
        normal(8),
        normal(8),
    ),
    "rms_norm": (lambda f, x, weight: f.rms_norm(x, (8,), weight), normal(8192, 8), normal(8)),
    "group_norm": (
        lambda f, x, *a: f.group_norm(x, 2, *a),
        normal(16, 4, 24, 24),
        normal(4),
        normal(4),
    ),
    "batch_norm": (
        lambda f, x, *a: f.batch_norm(x, None, None, *a, training=True),
        normal(16, 4, 24, 24),
        normal(4),
        normal(4),
    ),
    "instance_norm": (
        lambda f, x, *a: f.instance_norm(x, None, None, *a),
        normal(16, 4, 24, 24),
        normal(4),
        normal(4),
    ),
    "lstm": (
        lstm,
        normal(64, 128, 8),
        normal(24, 8) * 0.3,
        normal(24, 6) * 0.3,
        normal(24),
        normal(24),
    ),
    "embedding": (lambda f, table: f.embedding(indices(table, INDEX), table), normal(4, 8)),
    "embedding_bag": (lambda f, table: f.embedding_bag(indices(table, INDEX), table), normal(4, 8)),
    "keys for everyone": (
        lambda f, x, key, value: f.multi_head_attention_forward(
            *(x, x, x, 8, 2, weights(x, 24, 8), None, key, value),
            *(False, 0.0, weights(x, 8, 8), None),
            need_weights=False,
        ),
        normal(16, 512, 8),
        normal(1, 1, 8),
        normal(1, 1, 8),
    ),
    "normalize": (lambda f, x: f.normalize(x), normal(8, 4096)),
    "cosine_similarity": (lambda f, *a: f.cosine_similarity(*a), normal(4096, 8), normal(1, 8)),
    "pairwise_distance": (lambda f, *a: f.pairwise_distance(*a), normal(4096, 8), normal(1, 8)),
    **{
        name: (
            lambda f, x, y, name=name: getattr(f, name)(x, y, reduction="none"),
            normal(4096, 8),
            normal(8),
        )
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    },
}


def weights(x, *shape):
    """The same numbers on either side, which nothing is differentiated by."""
    values = np.random.default_rng(2).integers(-4, 5, shape) / 8
    if isinstance(x, torch.Tensor):
        return torch.tensor(values, dtype=x.dtype)
    return jnp.asarray(values, x.dtype)


def cotangent(shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32) + 1


def in_torch(function, arrays, dtype):
    leaves = [array.to(dtype, copy=True).requires_grad_() for array in arrays]
    output = first(function(torch.nn.functional, *leaves))
    (
        output.to(torch.promote_types(dtype, torch.float32)) * torch.tensor(cotangent(output.shape))
    ).sum().backward()
    return [leaf.grad.double().numpy() for leaf in leaves]


def ours(function, arrays):
    def total(*arrays):
        output = first(function(F, *arrays))
        return (output.astype(jnp.float32) * cotangent(output.shape)).sum()

    gradients = jax.jit(jax.grad(total, argnums=tuple(range(len(arrays)))))(*arrays)
    return [np.asarray(gradient.astype(jnp.float32), np.float64) for gradient in gradients]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_as_exact_as_torch(name, dtype):
    function, *arrays = CASES[name]
    kind = getattr(torch, dtype)
    rounded = [torch.tensor(array).to(kind) for array in arrays]
    exact = in_torch(function, rounded, torch.float64)
    theirs = in_torch(function, rounded, kind)
    of_jax = ours(function, [jnp.asarray(x.float().numpy()).astype(dtype) for x in rounded])
    ulp = float(jnp.finfo(dtype).eps)
    for place, (want, got, yardstick) in enumerate(zip(exact, of_jax, theirs, strict=True)):
        size = np.linalg.norm(want)
        error = np.linalg.norm(got - want) / size
        # Torch sums the rows of a table in the dtype itself on a CPU: no yardstick there.
        allowed = min(2 * np.linalg.norm(yardstick - want) / size + ulp, 8 * ulp)
        assert error <= allowed, f"argument {place}: {error:.2e} of {allowed:.2e}"


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_chunks_of_a_loss_are_summed_wide(reduction):
    from purestate.nn import LinearCrossEntropyOptions

    options = LinearCrossEntropyOptions(batch_chunk_size=4)

    def gradient(dtype):
        def loss(weight, bias, x):
            target = jnp.asarray(CLASSES, jnp.int32)
            return F.linear_cross_entropy(
                x, weight, target, linear_bias=bias, reduction=reduction, options=options
            )

        random = np.random.default_rng(3)
        x, weight, bias = (random.standard_normal(s) for s in ((4096, 8), (8, 8), (8,)))
        arrays = (jnp.asarray(a, jnp.bfloat16).astype(dtype) for a in (weight, bias, x))
        return jax.jit(jax.grad(loss, argnums=(0, 1)))(*arrays)

    for wide, narrow in zip(gradient("float32"), gradient("bfloat16"), strict=True):
        assert jnp.linalg.norm(narrow - wide) <= 0.02 * jnp.linalg.norm(wide)


def test_weights_of_the_positive_class_are_summed_wide():
    """Torch has no derivative by them."""
    x, target = jnp.asarray(normal(4096, 8), jnp.bfloat16), jnp.full((4096, 8), 0.5, jnp.bfloat16)

    def loss(weight):
        losses = F.binary_cross_entropy_with_logits(x, target, pos_weight=weight, reduction="none")
        return losses.astype(jnp.float32).sum()

    ones = jnp.ones(8, jnp.bfloat16)
    want = 0.5 * jax.nn.softplus(-x.astype(jnp.float32)).sum(0)
    assert jnp.allclose(jax.grad(loss)(ones).astype(jnp.float32), want, rtol=0.01)
