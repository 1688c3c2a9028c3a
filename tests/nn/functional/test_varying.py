"""Inside of shard_map, what the zoo does not reach: arguments that vary beside others that do not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from purestate.nn import functional as F
from purestate.nn.functional._recurrent import lstm


def x(*shape):
    size = int(np.prod(shape))
    return jnp.asarray(np.random.default_rng(size).normal(size=shape), jnp.float32)


INDEX = jnp.array([0, 2, 2, 1])
OFFSETS = jnp.array([2, 2, 5], jnp.int32)
STATE = x(1, 2, 3), x(1, 2, 3) + 1
WEIGHTS = x(12, 4), x(12, 3)


def run_lstm(input, states, weights):
    output, (h, c) = lstm(input, states, weights, bias=False)
    return output + h + c


# Functions of floating arguments, and the arguments.
CASES = {
    "lstm": (run_lstm, (x(5, 2, 4), STATE, WEIGHTS)),
    "grouped rows": (lambda a, b: F.grouped_mm(a, b, offs=OFFSETS), (x(6, 4), x(3, 4, 5))),
    "grouped columns": (lambda a, b: F.grouped_mm(a, b, offs=OFFSETS), (x(3, 5, 4), x(4, 6))),
    "grouped inner": (lambda a, b: F.grouped_mm(a, b, offs=OFFSETS), (x(4, 6), x(6, 5))),
    "one more row": (lambda a, b: F.conv2d(a, b, padding=1), (x(1, 8, 172, 172), x(8, 8, 3, 3))),
    "depthwise": (lambda a, b: F.conv2d(a, b, groups=4), (x(2, 4, 5, 5), x(4, 1, 3, 3))),
    "attention": (F.scaled_dot_product_attention, (x(3, 4), x(5, 4), x(5, 4) + 1, x(3, 5))),
    "bce": (
        lambda a, b: F.binary_cross_entropy(a, b, reduction="none"),
        (abs(x(3)) / 4, abs(x(3)) / 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_argument_may_vary_alone(name):
    function, args = CASES[name]
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def gradients(*args):
        def total(args):
            output = function(*args)
            return jnp.sum(output * jnp.cos(jnp.arange(output.size)).reshape(output.shape))

        output, pushed = jax.jvp(function, args, args)
        return (output, pushed), jax.grad(total)(args)

    def member(place, *args):
        args = list(args)
        args[place] = jax.tree.map(lambda leaf: leaf[0], args[place])
        outputs, by = gradients(*args)
        by = list(by)
        by[place] = jax.tree.map(lambda leaf: leaf[None], by[place])
        return jax.tree.map(lambda leaf: leaf[None], outputs), tuple(by)

    for place in range(len(args)):
        two = list(args)
        two[place] = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf * 1.25]), args[place])
        specs = tuple(P("data") if at == place else P() for at in range(len(args)))
        sharded = jax.shard_map(
            functools.partial(member, place), mesh=mesh, in_specs=specs, out_specs=(P("data"), specs)
        )
        axes = [0 if at == place else None for at in range(len(args))]
        outputs, by = jax.vmap(gradients, axes)(*two)
        by = [
            g if at == place else jax.tree.map(lambda leaf: leaf.sum(0), g) for at, g in enumerate(by)
        ]
        expected = jax.tree.leaves((outputs, by))
        for ours, theirs in zip(jax.tree.leaves(jax.jit(sharded)(*two)), expected, strict=True):
            scale = max(1.0, float(jnp.abs(theirs).max()))
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * scale, err_msg=str(place))


@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 1}, {"max_norm": 0.5}, {"scale_grad_by_freq": True}, {"sparse": True}],
    ids=str,
)
def test_indices_vary_and_the_table_does_not(options):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    weight, index = x(3, 4), jnp.stack([INDEX, INDEX[::-1] // 2])

    def gradient(index, weight):
        return jax.grad(lambda w: jnp.sum(F.embedding(index, w, **options) ** 2))(weight)

    sharded = jax.shard_map(
        lambda index, w: gradient(index[0], w), mesh=mesh, in_specs=(P("data"), P()), out_specs=P()
    )
    expected = sum(gradient(part, weight) for part in index)
    np.testing.assert_allclose(jax.jit(sharded)(index, weight), expected, rtol=1e-5)


def test_a_renormed_table():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    weight, index = x(3, 4), jnp.stack([INDEX[:2], INDEX[2:]])

    def gradient(index, weight):
        return jax.grad(lambda w: jnp.sum(F.embedding_renorm(w, index[0], 0.5) ** 2))(weight)

    sharded = jax.shard_map(gradient, mesh=mesh, in_specs=(P("data"), P()), out_specs=P())
    expected = sum(gradient(part[None], weight) for part in index)
    np.testing.assert_allclose(jax.jit(sharded)(index, weight), expected, rtol=1e-5)
