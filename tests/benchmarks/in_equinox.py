"""The timed networks in Equinox, of its own layers, as its documentation writes them.

A network is for one example and is mapped over the batch; BatchNorm takes its statistics over the
mapped axis and keeps them in ``eqx.nn.State``.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tests.benchmarks.raw import Built, Values


def _built(model: Any, state: Any, batch_axis: int = 0) -> Built:
    """Split into what trains and the rest; the batch is mapped."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    evaluated = eqx.partition(eqx.nn.inference_mode(model), eqx.is_inexact_array)[1]

    def run(static: Any, params: Any, state: Any, x: Any) -> Any:
        mapped = jax.vmap(
            eqx.combine(params, static),
            axis_name="batch",
            in_axes=(batch_axis, None),
            out_axes=(0, None),
        )
        return mapped(x, state)

    return (
        params,
        state,
        lambda params, state, x: run(static, params, state, x),
        lambda params, state, x: run(evaluated, params, state, x)[0],
    )


def _keys() -> Callable[[], jax.Array]:
    keys = iter(jax.random.split(jax.random.key(0), 200))
    return lambda: next(keys)


class MLP(eqx.Module):
    """784-1024-1024-10 with ReLU."""

    layers: eqx.nn.MLP

    def __call__(self, x: Any, state: Any) -> Any:
        return self.layers(x), state


def mlp(values: Values) -> Built:
    """The multi-layer perceptron."""
    del values
    return _built(MLP(eqx.nn.MLP(784, 10, 1024, 2, key=jax.random.key(0))), None)


class LSTM(eqx.Module):
    """Two layers of cells and a head."""

    cells: list[eqx.nn.LSTMCell]
    head: eqx.nn.Linear

    def __call__(self, x: Any, state: Any) -> Any:
        for cell in self.cells:

            def step(carry: Any, x: Any, cell: Any = cell) -> Any:
                carry = cell(x, carry)
                return carry, carry[0]

            x = jax.lax.scan(step, (jnp.zeros(256), jnp.zeros(256)), x)[1]
        return self.head(x[-1]), state


def lstm(values: Values) -> Built:
    """The recurrent network."""
    del values
    key = _keys()
    cells = [eqx.nn.LSTMCell(256, 256, key=key()) for _ in range(2)]
    return _built(LSTM(cells, eqx.nn.Linear(256, 10, key=key())), None, batch_axis=1)


class GPTBlock(eqx.Module):
    """Attention and a perceptron, both after a LayerNorm."""

    ln_1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    ln_2: eqx.nn.LayerNorm
    fc: eqx.nn.Linear
    out: eqx.nn.Linear

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.ln_1)(x)
        x = x + self.attention(y, y, y, mask=jnp.tri(x.shape[0], dtype=bool))
        y = jax.nn.gelu(jax.vmap(self.fc)(jax.vmap(self.ln_2)(x)), approximate=False)
        return x + jax.vmap(self.out)(y)


class GPT(eqx.Module):
    """Six blocks between embeddings and a head."""

    wte: eqx.nn.Embedding
    wpe: jax.Array
    blocks: list[GPTBlock]
    ln: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __call__(self, tokens: Any, state: Any) -> Any:
        x = jax.vmap(self.wte)(tokens) + self.wpe
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(jax.vmap(self.ln)(x)), state


def gpt(values: Values) -> Built:
    """The transformer."""
    key, width = _keys(), 384
    blocks = [
        GPTBlock(
            eqx.nn.LayerNorm(width),
            eqx.nn.MultiheadAttention(
                6,
                width,
                use_query_bias=True,
                use_key_bias=True,
                use_value_bias=True,
                use_output_bias=True,
                key=key(),
            ),
            eqx.nn.LayerNorm(width),
            eqx.nn.Linear(width, 4 * width, key=key()),
            eqx.nn.Linear(4 * width, width, key=key()),
        )
        for _ in range(6)
    ]
    model = GPT(
        eqx.nn.Embedding(1024, width, key=key()),
        jnp.asarray(values["wpe"]),
        blocks,
        eqx.nn.LayerNorm(width),
        eqx.nn.Linear(width, 1024, use_bias=False, key=key()),
    )
    return _built(model, None)


class Unit(eqx.Module):
    """Convolution, BatchNorm, and an activation or none."""

    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    activation: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, x: Any, state: Any) -> Any:
        x, state = self.norm(self.conv(x), state)
        return self.activation(x), state


def _unit(key: Any, sizes: tuple[int, int, int], stride: int, activation: Any, groups: int = 1) -> Unit:
    inputs, outputs, size = sizes
    conv = eqx.nn.Conv2d(
        inputs, outputs, size, stride, size // 2, groups=groups, use_bias=False, key=key()
    )
    return Unit(conv, eqx.nn.BatchNorm(outputs, "batch", mode="batch"), activation)


def _identity(x: Any) -> Any:
    return x


class Residual(eqx.Module):
    """Units in a row, beside a shortcut: a unit, the input itself, or none."""

    units: list[Unit]
    shortcut: Unit | None
    adds: bool = eqx.field(static=True)
    activation: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, x: Any, state: Any) -> Any:
        y = x
        for unit in self.units:
            y, state = unit(y, state)
        if self.shortcut is not None:
            x, state = self.shortcut(x, state)
        return self.activation(x + y if self.adds else y), state


class Network(eqx.Module):
    """Blocks in a row, the mean over the map, and a head."""

    blocks: list[Any]
    head: eqx.nn.Linear

    def __call__(self, x: Any, state: Any) -> Any:
        for block in self.blocks:
            x, state = block(x, state)
        return self.head(x.mean((1, 2))), state


class Pool(eqx.Module):
    """Max pooling, in the form of a block."""

    pool: eqx.nn.MaxPool2d

    def __call__(self, x: Any, state: Any) -> Any:
        return self.pool(x), state


def resnet18(values: Values) -> Built:
    """ResNet-18."""
    del values
    key, relu = _keys(), jax.nn.relu

    def make() -> Network:
        blocks: list[Any] = [_unit(key, (3, 64, 7), 2, relu), Pool(eqx.nn.MaxPool2d(3, 2, 1))]
        for inputs, outputs, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
            for first, step in ((inputs, stride), (outputs, 1)):
                units = [
                    _unit(key, (first, outputs, 3), step, relu),
                    _unit(key, (outputs, outputs, 3), 1, _identity),
                ]
                changes = step != 1 or first != outputs
                shortcut = _unit(key, (first, outputs, 1), step, _identity) if changes else None
                blocks.append(Residual(units, shortcut, True, relu))
        return Network(blocks, eqx.nn.Linear(512, 10, key=key()))

    return _built(*eqx.nn.make_with_state(make)())


def mobilenet_v2(values: Values) -> Built:
    """MobileNetV2."""
    del values
    key = _keys()
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)] + [
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]

    def make() -> Network:
        relu6 = jax.nn.relu6
        blocks: list[Any] = [_unit(key, (3, 32, 3), 2, relu6)]
        inputs = 32
        for expand, outputs, repeats, first in table:
            for index in range(repeats):
                stride, hidden = first if index == 0 else 1, inputs * expand
                units = [] if expand == 1 else [_unit(key, (inputs, hidden, 1), 1, relu6)]
                units.append(_unit(key, (hidden, hidden, 3), stride, relu6, hidden))
                units.append(_unit(key, (hidden, outputs, 1), 1, _identity))
                adds = stride == 1 and inputs == outputs
                blocks.append(Residual(units, None, adds, _identity))
                inputs = outputs
        blocks.append(_unit(key, (inputs, 1280, 1), 1, relu6))
        return Network(blocks, eqx.nn.Linear(1280, 10, key=key()))

    return _built(*eqx.nn.make_with_state(make)())
