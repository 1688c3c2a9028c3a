"""Two processes that save a model whose arrays are spread over them (run by test_save_checkpoint)."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def model() -> Any:
    """A network with a tie and statistics, the same in every process."""
    import jax

    import purestate as ps
    from purestate import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8, 4)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 8)
            self.head.weight = self.embed.weight
            self.register_buffer("table", np.arange(8))

    return ps.init(Net(), jax.random.key(0))


def main(process: int, port: str, folder: Path) -> None:
    """Be refused in every way of saving, then write what the error says and save."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax
    from jax.sharding import NamedSharding, PartitionSpec as P

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, process, initialization_timeout=60)
    import bridge
    from bridge.checkpoint import Unwritable

    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def place(name: str, array: Any) -> Any:
        # Some spread, some with a copy in every process, some that only this process knows of.
        if name in ("embed.weight", "norm.running_mean"):
            return NamedSharding(mesh, P("x"))
        return NamedSharding(mesh, P()) if name.startswith("norm") else None

    net = bridge.to(model(), sharding=place)
    sd = bridge.state_dict(net)
    rows = NamedSharding(mesh, P("x"))
    narrowed = bridge.to(model(), sharding=lambda name, array: rows if name == "table" else None)
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("table", lambda: bridge.state_dict(narrowed)),
        ("embed.weight", lambda: bridge.save(sd, folder / "m.pt")),
        ("['net']['embed.weight']", lambda: bridge.save({"net": sd}, folder / "m.pt")),
        ("embed.weight", lambda: bridge.save(sd, folder / "m.safetensors")),
        ("embed.weight", lambda: bridge.save(sd, folder / "m", shard_size="1GB")),
        ("entry 'embed.weight'", lambda: bridge.save_checkpoint(net, folder / "m.pt")),
    ]
    text = ""
    for name, save in ways:
        try:
            save()
        except Unwritable as error:
            text = str(error)
            assert name in text
            assert "spread over several processes" in text
        else:
            raise AssertionError("saved")
    assert not [*folder.iterdir()]
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    scope = {"jax": jax, "model": net}
    exec("\n".join(lines), scope)
    if jax.process_index() == 0:
        bridge.save_checkpoint(scope["model"], folder / "m.pt")
        found, expected = bridge.load(folder / "m.pt"), bridge.state_dict(model())
        assert list(found) == list(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], np.asarray(array))
        assert found["embed.weight"] is found["head.weight"]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
