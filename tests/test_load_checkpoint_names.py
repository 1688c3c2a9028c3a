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
from tests.command_line import failed, json_of
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


@pytest.mark.parametrize("rules", [{"module": ""}, {"module.": ""}, {"module": "", "x": "y"}], ids=str)
def test_a_path_is_taken_away_with_its_dot(tmp_path: Path, rules: dict[str, str]) -> None:
    sd = torch_net().state_dict()
    path = as_zip({f"module.{name}": value for name, value in sd.items()}, tmp_path)
    loaded, report = bridge.load_checkpoint(Net(), path, rename=rules)
    assert_equal(loaded, sd)
    assert report.renamed["module.body.0.bias"] == "body.0.bias"


def test_a_name_with_an_empty_part_is_refused(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    path = as_zip({f"module.{name}": value for name, value in sd.items()}, tmp_path)
    rules: list[Any] = [{"module.": "."}, [(re.compile("^module"), "")], lambda name: name[6:]]
    for rename in [*rules, {"module.embed.weight": ""}]:
        with pytest.raises(ValueError, match=r"which has an empty part\n    write: \{'module': ''\}"):
            bridge.load_checkpoint(Net(), path, rename=rename)


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


CASES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "": lambda sd, optimizer: sd,
    "state_dict": lambda sd, optimizer: {
        "epoch": 1,
        "state_dict": sd,
        "optimizer_states": [optimizer],
        "callbacks": {"best": {"score": torch.tensor(1.0)}},
    },
    "model": lambda sd, optimizer: {
        "model": sd,
        "optimizer": optimizer,
        "loss": torch.tensor(0.5),
    },
    "app.model": lambda sd, optimizer: {
        "app": {"step": torch.tensor(3), "model": sd, "optim": {"state": {}, "param_groups": []}}
    },
    "models.0": lambda sd, optimizer: {"models": [sd], "args": {"lr": 0.1, "sizes": [1, 2]}},
    "0": lambda sd, optimizer: (sd, optimizer, 3),
    "7.net": lambda sd, optimizer: {7: {"net": sd}, "step": 7},
    "a.b.c.d.e": lambda sd, optimizer: {"a": {"b": {"c": {"d": {"e": sd}}}}},
    "one": lambda sd, optimizer: {"one": sd, "best": sd},
    "module": lambda sd, optimizer: {"module": torch.nn.ModuleDict(dict(torch_net().named_children()))},
}


@pytest.mark.parametrize("key", CASES)
def test_the_state_dict_in_a_checkpoint_is_the_one_that_convert_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    sd = torch_net().state_dict()
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]).state_dict()
    optimizer["state"][0] = {"step": torch.ones(1), "exp_avg": torch.ones(2)}
    path = as_zip(CASES[key](sd, optimizer), tmp_path)
    loaded, report = bridge.load_checkpoint(Net(), path)
    assert_equal(loaded, sd)
    assert report.inside == tuple(key.split(".") if key else ())
    assert ("found at: ['" in str(report)) == bool(key)
    taken = json_of(capsys, "convert", path, tmp_path / "o.safetensors")["state_dict"]
    assert taken == (key or None)


REFUSED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "'model', 'ema'": lambda sd: {"model": sd, "ema": copies(sd)},
    "'model', 'callbacks.ema.model'": lambda sd: {
        "model": sd,
        "callbacks": {"ema": {"model": copies(sd)}},
    },
    "'0', '1'": lambda sd: [sd, copies(sd), 3],
}


def copies(sd: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() for name, value in sd.items()}


@pytest.mark.parametrize("keys", REFUSED)
def test_several_state_dicts_are_refused_by_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str
) -> None:
    sd = torch_net().state_dict()
    path = as_zip(REFUSED[keys](sd), tmp_path)
    with pytest.raises(Unsupported, match=re.escape(f"holds 2 state dicts: {keys}")) as caught:
        bridge.load_checkpoint(Net(), path)
    line = re.search(r"Write: (.*?) or ", str(caught.value))
    assert line is not None
    scope = {"bridge": bridge, "model": Net()}
    exec(line[1], scope)
    assert_equal(scope["model"], sd)
    text = failed(capsys, "convert", path, tmp_path / "o.safetensors")
    assert f"holds 2 state dicts ({keys})" in text


def test_extra_state_is_a_part_of_its_state_dict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sd = dict(torch_net().state_dict(), **{"body._extra_state": {"scale": torch.ones(2)}})
    path = as_zip(sd, tmp_path)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "body._extra_state"'):
        bridge.load_checkpoint(Net(), path)
    out = tmp_path / "o.safetensors"
    assert json_of(capsys, "convert", path, out, "--drop-others")["state_dict"] is None
    assert list(bridge.load(out)) == list(torch_net().state_dict())


def test_the_models_names_tell_state_dicts_apart(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    other = {"generator.weight": torch.ones(2)}
    path = as_zip({"net": sd, "generator": other, "history": torch.ones(9)}, tmp_path)
    loaded, report = bridge.load_checkpoint(Net(), path)
    assert_equal(loaded, sd)
    assert report.inside == ("net",)
    # What lies inside of the state dict is a part of it.
    loaded, report = bridge.load_checkpoint(
        Net(), as_zip({**sd, "ema": copies(sd)}, tmp_path), strict=False
    )
    assert report.inside == ()
    assert len(report.unexpected) == 1


def test_a_prefix_is_proposed_for_one_of_several(tmp_path: Path) -> None:
    sd = {f"model.{name}": value for name, value in torch_net().state_dict().items()}
    path = as_zip({"state_dict": sd, "weights": {"of classes": torch.ones(9)}}, tmp_path)
    with pytest.raises(RuntimeError, match=r"rename=\{'model.': ''\}"):
        bridge.load_checkpoint(Net(), path)


def test_prefixes_that_fit_equally_well_are_all_proposed(tmp_path: Path) -> None:
    theirs = {name: torch.nn.Linear(2, 3) for name in ("online_model", "ema_model")}
    sd = {f"{name}.{k}": v for name, net in theirs.items() for k, v in net.state_dict().items()}
    torch.save({**sd, "step": torch.ones(())}, tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match="fit the model equally well") as caught:
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt")
    lines = re.findall(r"^    (model, report = .*)$", str(caught.value), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        (name,) = [name for name in theirs if name in line]
        scope = {"bridge": bridge, "model": nn.Linear(2, 3)}
        exec(line, scope)
        np.testing.assert_array_equal(scope["model"].weight, theirs[name].weight.detach())


def test_places_of_one_dotted_name_have_lines_of_their_own(tmp_path: Path) -> None:
    theirs = [torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)]
    path = tmp_path / "x.pt"
    torch.save({"1": theirs[0].state_dict(), 1: theirs[1].state_dict()}, path)
    with pytest.raises(Unsupported, match="holds 2 state dicts") as caught:
        bridge.load_checkpoint(nn.Linear(2, 3), path)
    lines = str(caught.value).partition("Write: ")[2].rstrip(".").split(" or ")
    for line, net in zip(lines, theirs, strict=True):
        scope = {"bridge": bridge, "model": nn.Linear(2, 3)}
        exec(line, scope)
        np.testing.assert_array_equal(scope["model"].weight, net.weight.detach())


def test_a_renamed_state_dict_among_others(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    prefixed = {f"module.{name}": value for name, value in sd.items()}
    path = as_zip({"net": prefixed, "other": {"x": torch.ones(1)}}, tmp_path)
    loaded, _ = bridge.load_checkpoint(Net(), path, rename={"module.": ""})
    assert_equal(loaded, sd)


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


def test_the_line_for_an_array_works(tmp_path: Path) -> None:
    theirs = torch.nn.Linear(2, 3)
    torch.save(theirs.weight.detach(), tmp_path / "x.pt")
    with pytest.raises(BadFormat, match="holds a ndarray") as caught:
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt")
    line = str(caught.value).partition("its name: ")[2].rstrip(".").replace("...", "weight")
    model, keys = eval(line, {"bridge": bridge, "model": nn.Linear(2, 3)})
    np.testing.assert_array_equal(model.weight, theirs.weight.detach())
    assert keys.missing_keys == ["bias"]


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


RULES: dict[str, Any] = {
    "a text for a pair": ["ab"],
    "half a pair": [("a",)],
    "a number": 3,
    "bytes": b"ab",
    "a number for a name": {"a": 1},
    "a number for an old name": {1: "a"},
    "no answer": lambda name: None,
}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_other_kinds_say_what_to_write(tmp_path: Path, name: str) -> None:
    sd = torch.nn.Linear(2, 3).state_dict()
    torch.save(sd, tmp_path / "x.pt")
    for call in (
        lambda: bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt", rename=RULES[name]),
        lambda: bridge.rename(sd, RULES[name]),
    ):
        with pytest.raises(TypeError, match=r"rule|renames.*\n    write: "):
            call()


@pytest.mark.parametrize(
    "rename", [None, {"x": "y"}, lambda name: name], ids=["none", "rule", "function"]
)
def test_a_key_that_is_no_text_is_named_whatever_the_rules(tmp_path: Path, rename: Any) -> None:
    torch.save({**torch.nn.Linear(2, 3).state_dict(), 7: torch.ones(1)}, tmp_path / "x.pt")
    with pytest.raises(TypeError, match="a state_dict maps names to arrays, got the key 7"):
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt", rename=rename)


@pytest.mark.parametrize(
    ("key", "text"),
    [(0, "'0'"), (1.5, "'1.5'"), (b"a", "'a'"), (("a", "b"), "'a.b'"), (False, "'False'")],
)
def test_a_place_that_is_no_text_says_what_to_write(tmp_path: Path, key: Any, text: str) -> None:
    torch.save(torch.nn.Linear(2, 3).state_dict(), tmp_path / "x.pt")
    with pytest.raises(TypeError, match=rf"dotted name .*\n    write: key={text}$"):
        bridge.load_checkpoint(nn.Linear(2, 3), tmp_path / "x.pt", key=key)


def test_checksums_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    bridge.save({"weight": np.ones((3, 2), np.float32), "bias": np.zeros(3, np.float32)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(np.ones(6, np.float32).tobytes()) + 3] ^= 1
    path.write_bytes(data)
    bridge.load_checkpoint(nn.Linear(2, 3), path)
    with pytest.raises(Damaged, match="crc32"):
        bridge.load_checkpoint(nn.Linear(2, 3), path, verify=True)
