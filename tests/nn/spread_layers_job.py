"""Layers with their batch over four devices: what each device computes, as JSON.

Run as ``python -m tests.nn.spread_layers_job``, in a process of its own: how many devices there are is
settled when JAX starts.
"""

import json
import os
from typing import Any


def main() -> None:
    """Compile every layer with its input whole and spread, and print what came of it."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    import purestate as ps
    from purestate import nn

    auto = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    square = jax.make_mesh((2, 2), ("d", "t"), axis_types=(AxisType.Auto, AxisType.Auto))
    explicit = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
    encoder = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "dropout": 0.0}
    first, second = P("d"), P(None, "d")
    layers: dict[str, tuple[Any, P]] = {
        "Linear, sequence first": (nn.Linear(32, 32), second),
        "Linear, batch and sequence": (nn.Linear(32, 32), P("d", "t")),
        "encoder, sequence first": (nn.TransformerEncoderLayer(**encoder), second),
        "encoder, batch first": (nn.TransformerEncoderLayer(**encoder, batch_first=True), first),
        "attention, sequence first": (nn.MultiheadAttention(32, 4), second),
        "attention, batch first": (nn.MultiheadAttention(32, 4, batch_first=True), first),
    }
    for kind in (nn.LSTM, nn.GRU):
        layers[f"{kind.__name__}, sequence first"] = kind(32, 32), second
        layers[f"{kind.__name__}, batch first"] = kind(32, 32, batch_first=True), first

    def forward(model: Any, x: Any) -> Any:
        output = model(x, x, x) if isinstance(model, nn.MultiheadAttention) else model(x)
        return jax.tree.leaves(output)[0]

    def loss(model: Any, x: Any) -> Any:
        return jnp.sum(forward(model, x) ** 2)

    def flops(function: Any, *args: Any) -> float:
        cost: Any = jax.jit(function).lower(*args).compile().cost_analysis()
        return cost["flops"]

    report: dict[str, Any] = {}
    for name, (layer, spec) in layers.items():
        mesh = square if "t" in spec else auto
        model = jax.device_put(ps.init(layer, jax.random.key(0)), NamedSharding(mesh, P()))
        whole = jax.device_put(jnp.ones((16, 16, 32)), NamedSharding(mesh, P()))
        spread = jax.device_put(whole, NamedSharding(mesh, spec))
        compiled = jax.jit(forward).lower(model, spread).compile()
        both = jax.value_and_grad(loss)
        report[name] = {
            "gathers": "all-gather" in str(compiled.as_text()),
            "kept": compiled(model, spread).sharding.is_equivalent_to(spread.sharding, 3),
            "share": flops(both, model, spread) / flops(both, model, whole),
        }
    with jax.set_mesh(explicit):
        for name, (layer, spec) in layers.items():
            if "t" not in spec:
                model = ps.init(layer, jax.random.key(0))
                spread = jax.device_put(jnp.ones((16, 16, 32)), NamedSharding(explicit, spec))
                kept = jax.typeof(jax.eval_shape(forward, model, spread)).sharding.spec[: len(spec)]
                jax.eval_shape(jax.grad(loss), model, spread)
                report[name]["explicit"] = kept == tuple(spec)
        others: list[tuple[Any, tuple[int, ...]]] = [
            (nn.PixelShuffle(2), (4, 4, 4, 4)),
            (nn.PixelUnshuffle(2), (4, 4, 4, 4)),
            (nn.Unfold(2), (4, 4, 4, 4)),
            (nn.Conv2d(4, 4, 1), (4, 4, 4, 4)),
            (nn.Conv2d(4, 4, 3, padding=1, groups=2), (4, 4, 2, 2)),
            (nn.LSTM(4, 4, num_layers=2, bidirectional=True, batch_first=True), (4, 3, 4)),
        ]
        for layer, shape in others:
            model = ps.init(layer, jax.random.key(0))
            spread = jax.device_put(jnp.ones(shape), NamedSharding(explicit, first))
            assert jax.typeof(jax.eval_shape(forward, model, spread)).sharding.spec[0] == "d", layer
            jax.eval_shape(jax.grad(loss), model, spread)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
