"""The timed networks in plain ``jax.numpy`` and ``lax``, as one writes them without a library.

Each builder takes torch's values by name and gives ``(params, state, call, evaluate)`` for
``throughput.compiled``: the running statistics are the state.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


Values = dict[str, np.ndarray]
Built = tuple[Any, Any, Callable[[Any, Any, Any], tuple[Any, Any]], Callable[[Any, Any, Any], Any]]


def _stateless(values: Values, forward: Callable[[Any, Any], Any]) -> Built:
    return (
        dict(values),
        {},
        lambda params, state, x: (forward(params, x), state),
        lambda params, state, x: forward(params, x),
    )


def mlp(values: Values) -> Built:
    """784-1024-1024-10 with ReLU."""

    def forward(p: Any, x: Any) -> Any:
        for layer in "024":
            x = x @ p[f"{layer}.weight"].T + p[f"{layer}.bias"]
            x = x if layer == "4" else jax.nn.relu(x)
        return x

    return _stateless(values, forward)


def lstm(values: Values) -> Built:
    """Two layers, each a scan of the cell."""

    def layer(p: Any, x: Any, index: int) -> Any:
        weights = [
            p[f"lstm.{kind}_l{index}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]

        def cell(carry: Any, x: Any) -> Any:
            (h, c), (wi, wh, bi, bh) = carry, weights
            i, f, g, o = jnp.split(x @ wi.T + h @ wh.T + bi + bh, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], 256))
        return lax.scan(cell, (zeros, zeros), x)[1]

    def forward(p: Any, x: Any) -> Any:
        return layer(p, layer(p, x, 0), 1)[-1] @ p["head.weight"].T + p["head.bias"]

    return _stateless(values, forward)


def _layer_norm(p: Any, name: str, x: Any) -> Any:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def _linear(p: Any, name: str, x: Any, joint: str = ".") -> Any:
    return x @ p[f"{name}{joint}weight"].T + p[f"{name}{joint}bias"]


def deep_transformer(values: Values) -> Built:
    """48 encoder layers, one after the other."""

    def attention(p: Any, name: str, x: Any) -> Any:
        qkv = _linear(p, f"{name}.in_proj", x, "_").reshape(*x.shape[:2], 3, 4, 16)
        q, k, v = (qkv[:, :, part].swapaxes(1, 2) for part in range(3))
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4)
        y = jnp.einsum("bhqk,bhkd->bhqd", weights, v)
        return _linear(p, f"{name}.out_proj", y.swapaxes(1, 2).reshape(x.shape))

    def forward(p: Any, x: Any) -> Any:
        for index in range(48):
            name = f"encoder.layers.{index}"
            x = x + attention(p, f"{name}.self_attn", _layer_norm(p, f"{name}.norm1", x))
            y = _linear(p, f"{name}.linear1", _layer_norm(p, f"{name}.norm2", x))
            x = x + _linear(p, f"{name}.linear2", jax.nn.gelu(y, approximate=False))
        return _linear(p, "head", x.mean(1))

    return _stateless(values, forward)


def gpt(values: Values) -> Built:
    """Six blocks, one after the other."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
        scores = jnp.where(np.tri(q.shape[2], dtype=bool), scores, -jnp.inf)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)

    def block(p: Any, name: str, x: Any) -> Any:
        qkv = _linear(p, f"{name}.qkv", _layer_norm(p, f"{name}.ln_1", x))
        qkv = qkv.reshape(*x.shape[:2], 3, 6, 64)
        y = attention(*(qkv[:, :, part].swapaxes(1, 2) for part in range(3)))
        x = x + _linear(p, f"{name}.proj", y.swapaxes(1, 2).reshape(x.shape))
        y = _linear(p, f"{name}.fc", _layer_norm(p, f"{name}.ln_2", x))
        return x + _linear(p, f"{name}.out", jax.nn.gelu(y, approximate=False))

    def forward(p: Any, tokens: Any) -> Any:
        x = p["wte.weight"][tokens] + p["wpe"]
        for index in range(6):
            x = block(p, f"blocks.{index}", x)
        return _layer_norm(p, "ln", x) @ p["head.weight"].T

    return _stateless(values, forward)


class _Images:
    """A pass through a network of convolutions: parameters, statistics read, statistics written."""

    def __init__(self, params: Any, state: Any, training: bool):
        self.params, self.state, self.training = params, dict(state), training

    def conv(self, name: str, x: Any, stride: int, pad: int, groups: int = 1) -> Any:
        return lax.conv_general_dilated(
            x,
            self.params[f"{name}.weight"],
            (stride, stride),
            [(pad, pad)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=groups,
        )

    def norm(self, name: str, x: Any) -> Any:
        mean, var = self.state[f"{name}.running_mean"], self.state[f"{name}.running_var"]
        if self.training:
            count = x.shape[0] * x.shape[2] * x.shape[3]
            batch_mean, batch_var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.state[f"{name}.running_mean"] = 0.9 * mean + 0.1 * batch_mean
            self.state[f"{name}.running_var"] = 0.9 * var + 0.1 * batch_var * count / (count - 1)
            self.state[f"{name}.num_batches_tracked"] += 1
            mean, var = batch_mean, batch_var
        scale = lax.rsqrt(var + 1e-5) * self.params[f"{name}.weight"]
        shift = self.params[f"{name}.bias"]
        return (x - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.params[f"{name}.weight"].T + self.params[f"{name}.bias"]


def _of_images(values: Values, forward: Callable[[_Images, Any], Any]) -> Built:
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    state = {name: np.asarray(v) for name, v in values.items() if name.endswith(buffers)}
    params = {name: value for name, value in values.items() if name not in state}

    def call(params: Any, state: Any, x: Any) -> Any:
        images = _Images(params, state, True)
        return forward(images, x), images.state

    return params, state, call, lambda params, state, x: forward(_Images(params, state, False), x)


def resnet18(values: Values) -> Built:
    """ResNet-18."""

    def block(m: _Images, name: str, x: Any, stride: int) -> Any:
        y = jax.nn.relu(m.norm(f"{name}.bn1", m.conv(f"{name}.conv1", x, stride, 1)))
        y = m.norm(f"{name}.bn2", m.conv(f"{name}.conv2", y, 1, 1))
        if f"{name}.downsample.0.weight" in m.params:
            x = m.norm(f"{name}.downsample.1", m.conv(f"{name}.downsample.0", x, stride, 0))
        return jax.nn.relu(x + y)

    def forward(m: _Images, x: Any) -> Any:
        x = jax.nn.relu(m.norm("bn1", m.conv("conv1", x, 2, 3)))
        pads = ((0, 0), (0, 0), (1, 1), (1, 1))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), pads)
        for index, stride in enumerate((1, 2, 2, 2)):
            x = block(m, f"layers.{index}.1", block(m, f"layers.{index}.0", x, stride), 1)
        return m.linear("fc", x.mean((2, 3)))

    return _of_images(values, forward)


def mobilenet_v2(values: Values) -> Built:
    """MobileNetV2."""

    def unit(m: _Images, name: str, x: Any, stride: int = 1, groups: int = 1) -> Any:
        pad = m.params[f"{name}.0.weight"].shape[2] // 2
        return jnp.clip(m.norm(f"{name}.1", m.conv(f"{name}.0", x, stride, pad, groups)), 0, 6)

    def inverted(m: _Images, name: str, x: Any, stride: int) -> Any:
        last = max(int(key.split(".")[2]) for key in m.params if key.startswith(f"{name}.conv."))
        y = x if last == 2 else unit(m, f"{name}.conv.0", x)
        y = unit(m, f"{name}.conv.{last - 2}", y, stride, y.shape[1])
        y = m.norm(f"{name}.conv.{last}", m.conv(f"{name}.conv.{last - 1}", y, 1, 0))
        return x + y if stride == 1 and x.shape == y.shape else y

    strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]

    def forward(m: _Images, x: Any) -> Any:
        x = unit(m, "0", x, 2)
        for index, stride in enumerate(strides):
            x = inverted(m, f"{index + 1}", x, stride)
        return m.linear("21", unit(m, "18", x).mean((2, 3)))

    return _of_images(values, forward)
