"""The timed networks in Flax NNX, of its own layers, as its documentation writes them.

A network is a mutable object: ``nnx.split`` takes it apart into its graph, what trains and the rest. A
call puts it together with ``nnx.merge``, in a copy that it may write to, and returns the rest as it is
then. Images become NHWC, NNX's layout, at the entry. The deep transformer is a scan over stacked
layers.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx  # pyright: ignore[reportMissingImports]

from tests.benchmarks.raw import Built, Values


def _built(model: Any) -> Built:
    """Split into what trains and the rest, with a graph for training and one for evaluation."""
    training, params, state = nnx.split(model, nnx.Param, ...)
    model.eval()
    evaluated = nnx.graphdef(model)

    def run(graph: Any, params: Any, state: Any, x: Any) -> Any:
        model = nnx.merge(graph, params, state, copy=True)
        output = model(x)
        return output, nnx.state(model, nnx.Not(nnx.Param))

    return (
        params,
        state,
        lambda params, state, x: run(training, params, state, x),
        lambda params, state, x: run(evaluated, params, state, x)[0],
    )


def mlp(values: Values) -> Built:
    """784-1024-1024-10 with ReLU."""
    del values
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Linear(784, 1024, rngs=rngs),
        nnx.relu,
        nnx.Linear(1024, 1024, rngs=rngs),
        nnx.relu,
        nnx.Linear(1024, 10, rngs=rngs),
    )
    return _built(model)


def _last(x: Any) -> Any:
    return x[-1]


def lstm(values: Values) -> Built:
    """Two layers and a head; a layer has one bias, where torch's has two that are added."""
    del values
    rngs = nnx.Rngs(0)
    cells = [nnx.OptimizedLSTMCell(256, 256, rngs=rngs) for _ in range(2)]
    layers = [nnx.RNN(cell, time_major=True, rngs=rngs) for cell in cells]
    return _built(nnx.Sequential(*layers, _last, nnx.Linear(256, 10, rngs=rngs)))


class Block(nnx.Module):
    """Attention and a perceptron, both after a LayerNorm."""

    def __init__(self, width: int, heads: int, causal: bool, rngs: Any):
        self.causal = causal
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.fc = nnx.Linear(width, 4 * width, rngs=rngs)
        self.out = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x), is_causal=self.causal)
        return x + self.out(nnx.gelu(self.fc(self.norm2(x)), approximate=False))


class GPT(nnx.Module):
    """Six blocks between embeddings and a head."""

    def __init__(self, width: int, rngs: Any):
        self.wte = nnx.Embed(1024, width, rngs=rngs)
        self.wpe = nnx.Embed(256, width, rngs=rngs)
        self.blocks = nnx.Sequential(*(Block(width, 6, True, rngs) for _ in range(6)))
        self.ln = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(width, 1024, use_bias=False, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.wte(tokens) + self.wpe(jnp.arange(tokens.shape[1]))
        return self.head(self.ln(self.blocks(x)))


def gpt(values: Values) -> Built:
    """The transformer."""
    del values
    return _built(GPT(384, nnx.Rngs(0)))


class DeepTransformer(nnx.Module):
    """Layers stacked along a first axis, run as a scan, and a head."""

    def __init__(self, layers: int, rngs: Any):
        @nnx.split_rngs(splits=layers)
        @nnx.vmap
        def stacked(rngs: Any) -> Block:
            return Block(64, 4, False, rngs)

        self.blocks = stacked(rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def run(x: Any, block: Block) -> Any:
            return block(x)

        return self.head(run(x, self.blocks).mean(1))


def deep_transformer(values: Values) -> Built:
    """48 encoder layers."""
    del values
    return _built(DeepTransformer(48, nnx.Rngs(0)))


def _unit(
    sizes: tuple[int, int, int],
    stride: int,
    activation: Callable[[Any], Any],
    rngs: Any,
    groups: int = 1,
) -> Any:
    """Convolution, BatchNorm and an activation."""
    inputs, outputs, size = sizes
    conv = nnx.Conv(
        inputs,
        outputs,
        (size, size),
        stride,
        padding=size // 2,
        feature_group_count=groups,
        use_bias=False,
        rngs=rngs,
    )
    return nnx.Sequential(conv, nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs), activation)


class Residual(nnx.Module):
    """A branch beside a shortcut."""

    def __init__(self, branch: Any, shortcut: Any, activation: Callable[[Any], Any]):
        self.branch, self.shortcut, self.activation = branch, shortcut, activation

    def __call__(self, x: Any) -> Any:
        return self.activation(self.branch(x) + self.shortcut(x))


def _channels_last(x: Any) -> Any:
    return jnp.moveaxis(x, 1, -1)


def _pool(x: Any) -> Any:
    padding: Any = ((1, 1), (1, 1))  # Flax's signature says str alone.
    return nnx.max_pool(x, (3, 3), (2, 2), padding)


def _mean(x: Any) -> Any:
    return x.mean((1, 2))


def resnet18(values: Values) -> Built:
    """ResNet-18."""
    del values
    rngs, relu, identity = nnx.Rngs(0), nnx.relu, nnx.identity
    blocks: list[Any] = [_channels_last, _unit((3, 64, 7), 2, relu, rngs), _pool]
    for inputs, outputs, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
        for first, step in ((inputs, stride), (outputs, 1)):
            branch = nnx.Sequential(
                _unit((first, outputs, 3), step, relu, rngs),
                _unit((outputs, outputs, 3), 1, identity, rngs),
            )
            changes = step != 1 or first != outputs
            shortcut = _unit((first, outputs, 1), step, identity, rngs) if changes else identity
            blocks.append(Residual(branch, shortcut, relu))
    return _built(nnx.Sequential(*blocks, _mean, nnx.Linear(512, 10, rngs=rngs)))


def mobilenet_v2(values: Values) -> Built:
    """MobileNetV2."""
    del values
    rngs, relu6, identity = nnx.Rngs(0), nnx.relu6, nnx.identity
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)] + [
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    blocks: list[Any] = [_channels_last, _unit((3, 32, 3), 2, relu6, rngs)]
    inputs = 32
    for expand, outputs, repeats, first in table:
        for index in range(repeats):
            stride, hidden = first if index == 0 else 1, inputs * expand
            units = [] if expand == 1 else [_unit((inputs, hidden, 1), 1, relu6, rngs)]
            units.append(_unit((hidden, hidden, 3), stride, relu6, rngs, hidden))
            units.append(_unit((hidden, outputs, 1), 1, identity, rngs))
            branch = nnx.Sequential(*units)
            adds = stride == 1 and inputs == outputs
            blocks.append(Residual(branch, identity, identity) if adds else branch)
            inputs = outputs
    blocks += [_unit((inputs, 1280, 1), 1, relu6, rngs), _mean, nnx.Linear(1280, 10, rngs=rngs)]
    return _built(nnx.Sequential(*blocks))
