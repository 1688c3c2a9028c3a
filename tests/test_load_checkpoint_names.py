"""load_checkpoint where names do not meet: renaming, proposals, and state dicts inside of others."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
import torch

import bridge
from bridge.checkpoint import BadFormat, Damaged, Unsupported
from purestate import nn
from tests.loading import Net, as_zip, assert_equal, torch_net


def test_rename(tmp_path: Path) -> None:
    sd = {name.replace("body.", "trunk."): v for name, v in torch_net().state_dict().items()}
    path = as_zip(sd, tmp_path)
    rules = {"trunk": "body", "other": "body"}
    for rename in (rules, list(rules.items()), iter(rules.items())):
        loaded, report = bridge.load_checkpoint(Net(), path, rename=rename)
        assert_equal(loaded, torch_net().state_dict())
        assert report.renamed["trunk.0.bias"] == "body.0.bias"
        assert report.unused_rules == ("other",)


PREFIXES: dict[str, Callable[[str], str]] = {
    "module.": lambda name: f"module.{name}",
    "_orig_mod.": lambda name: f"_orig_mod.{name}",
    "_orig_mod.module.": lambda name: f"_orig_mod.module.{name}",
    "module._orig_mod.": lambda name: f"module._orig_mod.{name}",
    "model.": lambda name: f"model.{name}",
    "_fsdp_wrapped_module.": lambda name: f"_fsdp_wrapped_module.{name}",
    "inside": lambda name: name.replace("body.", "body._checkpoint_wrapped_module."),
    "inside and before": lambda name: "module." + name.replace("body.", "body._fsdp_wrapped_module."),
    "any other": lambda name: f"backbone.net.{name}",
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_proposed_and_the_line_works(tmp_path: Path, prefix: str) -> None:
    theirs = torch_net().state_dict()
    path = as_zip({PREFIXES[prefix](name): v for name, v in theirs.items()}, tmp_path)
    with pytest.raises(RuntimeError, match="If they mean the same, write:") as caught:
        bridge.load_checkpoint(Net(), path)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: ")
    scope = {"bridge": bridge, "re": re, "model": Net()}
    exec(text.splitlines()[-1].strip(), scope)
    assert_equal(scope["model"], theirs)


def test_a_prefix_of_the_models_is_proposed(tmp_path: Path) -> None:
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

    theirs = torch_net().state_dict()
    path = as_zip(theirs, tmp_path)
    with pytest.raises(RuntimeError, match=r"The model's names start with 'net\.'") as caught:
        bridge.load_checkpoint(Outer(), path)
    scope = {"bridge": bridge, "model": Outer()}
    exec(str(caught.value).splitlines()[-1].strip(), scope)
    assert_equal(scope["model"].net, theirs)


def test_names_without_anything_in_common_propose_nothing(tmp_path: Path) -> None:
    path = as_zip({"a.b": torch.ones(1)}, tmp_path)
    with pytest.raises(RuntimeError) as caught:
        bridge.load_checkpoint(Net(), path)
    assert "write" not in str(caught.value)


def nested(sd: dict[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    by_name = {"state": {"x": {"step": torch.ones(1)}}, "param_groups": []}
    other = {"generator.weight": torch.ones(2)}
    return {
        "state_dict": {
            "epoch": 1,
            "state_dict": sd,
            "optimizer_states": [optimizer.state_dict()],
            "callbacks": {"best": {"score": torch.tensor(1.0)}},
        },
        "model": {"model": sd, "optimizer": optimizer.state_dict(), "loss": torch.tensor(0.5)},
        "app": {"app": {"model": sd, "optim": by_name}},
        "net": {"net": sd, "generator": other, "args": {"lr": 0.1}},
    }


@pytest.mark.parametrize("key", ["state_dict", "model", "app", "net"])
def test_the_state_dict_in_a_training_checkpoint(tmp_path: Path, key: str) -> None:
    sd = torch_net().state_dict()
    loaded, report = bridge.load_checkpoint(Net(), as_zip(nested(sd)[key], tmp_path))
    assert_equal(loaded, sd)
    assert report.inside == (("app", "model") if key == "app" else (key,))
    assert "found at: ['" in str(report)


def test_a_renamed_state_dict_among_others(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    prefixed = {f"module.{name}": value for name, value in sd.items()}
    path = as_zip({"net": prefixed, "other": {"x": torch.ones(1)}}, tmp_path)
    loaded, _ = bridge.load_checkpoint(Net(), path, rename={"module.": ""})
    assert_equal(loaded, sd)


def test_several_state_dicts(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    path = as_zip({"model": sd, "ema": sd}, tmp_path)
    with pytest.raises(Unsupported, match=r"holds 2 state dicts: \['model'\], \['ema'\]") as caught:
        bridge.load_checkpoint(Net(), path)
    line = re.search(r"Write: (.*?) or ", str(caught.value))
    assert line is not None
    scope = {"bridge": bridge, "model": Net()}
    exec(line[1], scope)
    assert_equal(scope["model"], sd)


@pytest.mark.parametrize(
    "value", [[1, 2], {"epoch": 3}, torch.ones(2)], ids=["list", "numbers", "array"]
)
def test_no_state_dict(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(BadFormat, match="dictionary of arrays"):
        bridge.load_checkpoint(Net(), tmp_path / "x.pt")


@pytest.mark.parametrize("value", [3, None, "text", [1, 2], ()], ids=repr)
def test_a_file_without_any_array_has_no_line_to_write(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(BadFormat, match="not a dictionary of arrays") as caught:
        bridge.load_checkpoint(nn.Linear(1, 1), tmp_path / "x.pt")
    assert "bridge.load" not in str(caught.value)


def test_the_lines_for_an_array_and_for_a_list_work(tmp_path: Path) -> None:
    theirs = torch.nn.Linear(2, 3)
    torch.save(theirs.weight.detach(), tmp_path / "x.pt")
    with pytest.raises(BadFormat, match="holds a ndarray") as caught:
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt")
    line = str(caught.value).partition("its name: ")[2].rstrip(".").replace("...", "weight")
    model, keys = eval(line, {"bridge": bridge, "model": nn.Linear(2, 3)})
    np.testing.assert_array_equal(model.weight, theirs.weight.detach())
    assert keys.missing_keys == ["bias"]
    torch.save([3, theirs.state_dict()], tmp_path / "x.pt")
    with pytest.raises(BadFormat, match="holds a list") as caught:
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt")
    line = str(caught.value).partition("Write: ")[2].rstrip(".")
    assert line.endswith("key='1')")
    scope = {"bridge": bridge, "model": nn.Linear(2, 3)}
    exec(line, scope)
    np.testing.assert_array_equal(scope["model"].weight, theirs.weight.detach())


def test_a_key_names_the_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    one, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    torch.save({"model": one.state_dict(), "ema": {"a.b": other.state_dict()}, "epoch": 3}, path)
    for key, theirs in (("model", one), ("ema.a.b", other)):
        model, report = bridge.load_checkpoint(nn.Linear(2, 3), path, key=key)
        np.testing.assert_array_equal(model.weight, theirs.weight.detach())
        assert ".".join(report.inside) == key
    with pytest.raises(BadFormat, match=r"under 'epoch'.*under 'model', 'ema.a.b'"):
        bridge.load_checkpoint(nn.Linear(2, 3), path, key="epoch")


def test_the_state_dict_above_those_of_callbacks(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    theirs = torch.nn.Linear(2, 3)
    state = {f"model.{name}": value for name, value in theirs.state_dict().items()}
    callbacks = {"ModelCheckpoint{}": {"best_model_score": torch.ones(())}}
    torch.save({"state_dict": state, "callbacks": callbacks}, path)
    with pytest.raises(RuntimeError, match=r"rename=\{'model.': ''\}"):
        bridge.load_checkpoint(nn.Linear(2, 3), path)
    model, report = bridge.load_checkpoint(nn.Linear(2, 3), path, rename={"model.": ""})
    assert report.inside == ("state_dict",)
    np.testing.assert_array_equal(model.weight, theirs.weight.detach())


def test_only_what_the_file_has_counts_as_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({f"module.{k}": v for k, v in torch.nn.BatchNorm1d(3).state_dict().items()}, path)
    _, report = bridge.load_checkpoint(nn.BatchNorm1d(3), path, strict=False)
    assert report.loaded == ()


def test_arguments_of_other_kinds_say_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(2, 3).state_dict(), path)
    for call, text in (
        (lambda: bridge.load_checkpoint(nn.Linear, path), "takes a model first"),
        (lambda: bridge.load_checkpoint(str(path), nn.Linear(2, 3)), "takes a model first"),
        (
            lambda: bridge.load_checkpoint(nn.Linear(2, 3), path, rename=cast("Any", "module.")),
            "rename={'module.': ''}",
        ),
        (
            lambda: bridge.load_checkpoint(nn.Linear(2, 3), path, sharding=jax.devices()[0]),
            "SingleDeviceSharding",
        ),
    ):
        with pytest.raises(TypeError, match=re.escape(text)):
            call()


def test_checksums_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    bridge.save({"weight": np.ones((3, 2), np.float32), "bias": np.zeros(3, np.float32)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(np.ones(6, np.float32).tobytes()) + 3] ^= 1
    path.write_bytes(data)
    bridge.load_checkpoint(nn.Linear(2, 3), path)
    with pytest.raises(Damaged, match="crc32"):
        bridge.load_checkpoint(nn.Linear(2, 3), path, verify=True)
