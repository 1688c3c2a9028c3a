"""load_checkpoint(sharding=...): the right slices on the right devices, each read once."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import bridge
import purestate as ps
from purestate import nn
from tests.checkpoint.test_parts import read_so_far
from tests.loading import WRITERS, Net, as_safetensors, as_zip, assert_equal, torch_net


MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("x",))
ROWS = jax.NamedSharding(MESH, jax.P("x"))
COLUMNS = jax.NamedSharding(MESH, jax.P(None, "x"))
WHOLE = jax.NamedSharding(MESH, jax.P())

SHARDINGS: dict[str, Any] = {
    "one for all": ROWS,
    "columns": COLUMNS,
    "a function": lambda name, array: COLUMNS if array.ndim == 2 else None,
    "a mapping": {"embed.weight": ROWS, "body.0.weight": COLUMNS, "scratch": WHOLE},
    "NamedArrays": ps.NamedArrays({"head.weight": WHOLE}),
}


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("write", ["as_zip", "as_safetensors", "as_folder", "as_legacy"])
@pytest.mark.parametrize("name", SHARDINGS)
def test_sharding(tmp_path: Path, name: str, write: str, drawn: bool) -> None:
    sd = torch_net().state_dict()
    model = ps.init(Net(), jax.random.key(0)) if drawn else Net()
    sharding = SHARDINGS[name]
    loaded, _ = bridge.load_checkpoint(model, WRITERS[write](sd, tmp_path), sharding=sharding)
    assert_equal(loaded, sd)
    if name == "one for all":
        assert loaded.embed.weight.sharding.is_equivalent_to(ROWS, 2)
        assert loaded.body.get_submodule("1").num_batches_tracked.sharding.is_equivalent_to(WHOLE, 0)
        assert loaded.scratch.sharding.is_equivalent_to(ROWS, 1)
    if name in ("columns", "a function", "a mapping"):
        assert loaded.body.get_submodule("0").weight.sharding.is_equivalent_to(COLUMNS, 2)
    if name in ("a function", "a mapping"):
        assert len(loaded.body.get_submodule("0").bias.sharding.device_set) == 1
    if name == "NamedArrays":
        assert loaded.embed.weight.sharding.is_equivalent_to(WHOLE, 2)


def test_sharding_of_a_model_that_has_one(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    model = bridge.to(Net(), sharding=lambda name, array: COLUMNS if array.ndim == 2 else WHOLE)
    loaded, _ = bridge.load_checkpoint(model, as_safetensors(sd, tmp_path))
    assert_equal(loaded, sd)
    assert loaded.embed.weight.sharding.is_equivalent_to(COLUMNS, 2)


def test_sharding_with_a_cast(tmp_path: Path) -> None:
    theirs = torch_net()
    loaded, report = bridge.load_checkpoint(
        Net(), as_zip(theirs.state_dict(), tmp_path), sharding=ROWS, dtype=jnp.float16
    )
    assert_equal(loaded, theirs.half().state_dict())
    assert loaded.embed.weight.sharding.is_equivalent_to(ROWS, 2)
    assert report.cast["embed.weight"] == ("float32", "float16")


def test_axes_that_do_not_divide_are_whole(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd = nn.Parameter(jnp.zeros((3, 4)))
            self.vector = nn.Parameter(jnp.zeros(4))

    sd = {"odd": torch.arange(12.0).reshape(3, 4), "vector": torch.arange(4.0)}
    both = jax.NamedSharding(jax.make_mesh((1, 2), ("a", "b")), jax.P("b", "a"))
    loaded, report = bridge.load_checkpoint(Odd(), as_zip(sd, tmp_path), sharding=both)
    assert loaded.odd.sharding.spec == jax.P(None, "a")
    assert report.replicated == ("odd", "vector")
    assert_equal(loaded, sd)


def test_a_sharding_for_a_name_that_is_not_there(tmp_path: Path) -> None:
    path = as_zip(torch_net().state_dict(), tmp_path)
    with pytest.raises(ValueError, match="names that the model has not: nowhere"):
        bridge.load_checkpoint(Net(), path, sharding={"nowhere": ROWS})


def test_replicas_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.rand(1000, 1000)}, path)

    class Big(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(jnp.zeros((1000, 1000)))

    bridge.load_checkpoint(Big(), path, sharding=WHOLE)
    before = read_so_far()
    _, report = bridge.load_checkpoint(Big(), path, sharding=WHOLE)
    assert report.bytes == 4_000_000
    assert read_so_far() - before < 4_100_000
