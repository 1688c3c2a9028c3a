"""``purestate convert``: every format into every other, as torch and safetensors read the result."""

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from bridge import cli, load, save
from tests.command_line import (
    HEAVY,
    done,
    failed,
    json_of,
    modules_after_command,
    needs_proc,
    peak_of_command,
)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.z_embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.z_embed.weight


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    model = Net()
    model.norm(torch.randn(6, 4))
    return model


def run_of(model: Net) -> dict[str, Any]:
    """What a training script saves."""
    optimizer = torch.optim.Adam(model.parameters())
    model.head(model.norm(model.z_embed(torch.arange(5)))).sum().backward()
    optimizer.step()
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def write(path: Path, model: Net) -> None:
    """Write a model's state dict in the format that a name stands for."""
    sd = model.state_dict()
    match path.name:
        case "legacy.bin":
            torch.save(sd, path, _use_new_zipfile_serialization=False)
        case "script.pt":
            torch.jit.save(torch.jit.script(model.norm), path)
        case "whole.pt":
            torch.save(model, path)
        case "official.safetensors":
            safetensors.torch.save_model(model, str(path))
        case "run.ckpt":
            torch.save(run_of(model), path)
        case _:
            torch.save(sd, path)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def files_of(path: Path) -> list[Path]:
    index = path.with_name(f"{path.name}.index.json")
    names = set(json.loads(index.read_text())["weight_map"].values())
    return [path.with_name(name) for name in sorted(names)]


SOURCES = ["zip.pth", "legacy.bin", "script.pt", "whole.pt", "official.safetensors", "run.ckpt"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("target", ["o.pt", "o.safetensors", "o.bin"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_format_becomes_every_other(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: Net,
    source: str,
    target: str,
    sharded: bool,
) -> None:
    write(tmp_path / source, model)
    expected = model.state_dict()
    saved = torch.load(tmp_path / source, weights_only=True) if source == "run.ckpt" else {}
    if source == "script.pt":
        expected = model.norm.state_dict()
    out = tmp_path / target
    options = ["--shard-size", "60"] if sharded else []
    report = json_of(capsys, "convert", tmp_path / source, out, *options)
    files = files_of(out) if sharded else [out]
    assert len(files) > sharded
    found: dict[str, Any] = {}
    for file in files:
        if file.suffix == ".safetensors":
            found.update(safetensors.torch.load_file(file))
        else:
            found.update(torch.load(file, weights_only=True))
    if source == "run.ckpt":
        flat = sharded or target == "o.safetensors"
        assert report["state_dict"] == ("state_dict" if flat else None)
        if not flat:
            assert list(found) == ["state_dict", "optimizer", "epoch"]
            assert found["optimizer"]["param_groups"] == saved["optimizer"]["param_groups"]
            found = found["state_dict"]
    assert_same(found, expected)


def test_order_ties_and_versions_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    torch.save(model.state_dict(), tmp_path / "m.bin", _use_new_zipfile_serialization=False)
    done(capsys, "convert", tmp_path / "m.bin", tmp_path / "m.pt", "--dtype", "f64")
    found = torch.load(tmp_path / "m.pt", weights_only=True)
    assert list(found) == list(model.state_dict())
    assert found._metadata == model.state_dict()._metadata  # pyright: ignore[reportAttributeAccessIssue]
    assert found["head.weight"].data_ptr() == found["z_embed.weight"].data_ptr()
    assert found["head.weight"].dtype == torch.float64


def test_views_of_one_storage_stay_views_in_another_dtype(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    views = {"row": base[1], "all": base, "turned": base.t(), "wide": base[0].expand(1000, 4)}
    torch.save(views, tmp_path / "m.pt")
    done(capsys, "convert", tmp_path / "m.pt", tmp_path / "h.pt", "--dtype", "bf16")
    found = torch.load(tmp_path / "h.pt", weights_only=True)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 1
    for name, view in views.items():
        assert found[name].dtype == torch.bfloat16
        assert found[name].stride() == view.stride()
        assert torch.equal(found[name], view.bfloat16())


def test_ties_of_a_safetensors_file_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    path, out, back = tmp_path / "m.safetensors", tmp_path / "m.pt", tmp_path / "b.safetensors"
    safetensors.torch.save_model(model, str(path), metadata={"format": "pt", "by": "me"})
    done(capsys, "convert", path, out)
    found = torch.load(out, weights_only=True)
    assert_same(found, model.state_dict())
    assert found["head.weight"].data_ptr() == found["z_embed.weight"].data_ptr()
    done(capsys, "convert", path, back, "--ties", "canonical")
    with safetensors.safe_open(back, "pt") as file:
        table = file.metadata()
        kept = set(file.keys())
    with safetensors.safe_open(path, "pt") as file:
        assert len(kept) == len(list(file.keys()))
    assert table["by"] == "me"
    assert {"head.weight", "z_embed.weight"} - kept == table.keys() - {"by", "format"}
    fresh = Net()
    safetensors.torch.load_model(fresh, str(back))
    assert_same(fresh.state_dict(), model.state_dict())
    done(capsys, "convert", path, back)
    with safetensors.safe_open(back, "pt") as file:
        assert file.metadata() == {"format": "pt", "by": "me"}


DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "F32": torch.float32,
    "double": torch.float64,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("name", DTYPES)
def test_floats_are_cast_as_torch_casts_them_and_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, suffix: str
) -> None:
    torch.manual_seed(1)
    content = {
        "f32": torch.randn(700, 500),
        "bf16": torch.randn(33).bfloat16(),
        "f16": torch.randn(3, 5).half().t(),
        "f8": torch.randn(16).to(torch.float8_e5m2),
        "i64": torch.tensor([2**62 + 1]),
        "bool": torch.tensor([True, False]),
        "c64": torch.randn(4, dtype=torch.complex64),
        "odd": torch.tensor([0.0, -0.0, 1e-8, float("inf"), float("-inf"), float("nan")]),
        "none": torch.empty(0, 3),
    }
    torch.save(content, tmp_path / "m.pt")
    out = tmp_path / f"o.{suffix}"
    report = json_of(capsys, "convert", tmp_path / "m.pt", out, "--dtype", name)
    dtype = DTYPES[name]
    ours: Any = load(out)
    floats = {key for key, tensor in content.items() if tensor.is_floating_point()}
    assert report["cast"].keys() == {key for key in floats if content[key].dtype != dtype}
    for key, tensor in content.items():
        expected = tensor.to(dtype) if key in floats else tensor
        plain = expected.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        if key != "odd" or dtype.itemsize == 1:
            assert ours[key].tobytes() == plain, key
        assert ours[key].shape == tuple(tensor.shape)
    odd, expected = ours["odd"].astype(np.float64), content["odd"].to(dtype).double().numpy()
    np.testing.assert_array_equal(odd, expected)
    if name != "float8_e5m2fnuz":
        assert np.array_equal(np.signbit(odd[:2]), [False, True])
    if suffix == "safetensors":
        theirs = safetensors.torch.load_file(out)
        assert {key: t.dtype for key, t in theirs.items()} == {
            key: dtype if key in floats else t.dtype for key, t in content.items()
        }


def test_numbers_beyond_the_new_dtype_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = torch.full((1000, 700), 1e5)
    large[0, :3] = torch.tensor([1.0, float("inf"), float("nan")])
    torch.save({"a": large, "tied": large, "b": torch.tensor([65504.0, 7e4, -7e4])}, tmp_path / "m.pt")
    out = tmp_path / "m.safetensors"
    report = json_of(capsys, "convert", tmp_path / "m.pt", out, "--dtype", "f16")
    lost = int(torch.isfinite(large).sum() - torch.isfinite(large.half()).sum())
    assert report["overflowed"] == {"a": lost, "b": 2}
    text = done(capsys, "convert", tmp_path / "m.pt", out, "--dtype", "f16")
    assert f"{lost + 2:,} numbers beyond the new dtype" in text
    assert "numbers beyond" not in done(capsys, "convert", tmp_path / "m.pt", out, "--dtype", "bf16")
    e4m3 = json_of(capsys, "convert", tmp_path / "m.pt", out, "--dtype", "float8_e4m3fn")
    # Infinity as well becomes 448.
    assert e4m3["overflowed"] == {"a": large.numel() - 2, "b": 3}


def test_an_optimizer_keeps_its_dtypes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    run = run_of(model)
    run["optimizer"]["state"][0]["step"] = torch.tensor(1001.0)
    torch.save(run, tmp_path / "m.pt")
    report = json_of(capsys, "convert", tmp_path / "m.pt", tmp_path / "o.pt", "--dtype", "bf16")
    assert all(name.startswith("state_dict.") for name in report["cast"])
    state = torch.load(tmp_path / "o.pt", weights_only=True)
    assert state["optimizer"]["state"][0]["step"] == 1001
    assert state["state_dict"]["norm.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize("target", ["o.pt", "o.safetensors"])
def test_names_change_by_the_rules_of_rename(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net, target: str
) -> None:
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"net": wrapped, "epoch": 1}, tmp_path / "m.pt")
    rules = ["--rename", "module.norm=module.bn", "--rename", "module.head.weight=last", "--rename"]
    source = tmp_path / "m.pt"
    report = json_of(capsys, "convert", source, tmp_path / target, *rules, "module.=")
    found: Any = load(tmp_path / target)
    found = found["net"] if target == "o.pt" else found
    names = ["z_embed.weight", "module.bn.weight", "module.bn.bias", "module.bn.running_mean"]
    names += ["module.bn.running_var", "module.bn.num_batches_tracked", "last"]
    assert list(found) == names
    assert report["renamed"]["module.head.weight"] == "last"
    assert "'modul.'" in failed(capsys, "convert", source, tmp_path / "x.pt", "--rename", "modul.=")
    clash = ["--rename", "module.norm.bias=x", "--rename", "module.norm.weight=x"]
    assert "would both become 'x'" in failed(capsys, "convert", source, tmp_path / "x.pt", *clash)
    empty = failed(capsys, "convert", source, tmp_path / "x.pt", "--rename", "module.head.weight=")
    assert "would become '', which has an empty part" in empty
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize("rule", ["module=", "module.="])
def test_a_path_is_taken_away_with_its_dot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net, rule: str
) -> None:
    wrapped = torch.nn.ModuleDict({"module": model})
    torch.save(wrapped.state_dict(), tmp_path / "m.pt")
    done(capsys, "convert", tmp_path / "m.pt", tmp_path / "o.pt", "--rename", rule)
    found = torch.load(tmp_path / "o.pt", weights_only=True)
    assert list(found) == list(model.state_dict())
    assert found._metadata["norm"] == {"version": 2}


def test_versions_move_with_their_modules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    torch.save(model.state_dict(), tmp_path / "m.pt")
    done(capsys, "convert", tmp_path / "m.pt", tmp_path / "m.pt", "--rename", "norm=bn")
    found = torch.load(tmp_path / "m.pt", weights_only=True)
    assert found._metadata["bn"] == {"version": 2}  # pyright: ignore[reportAttributeAccessIssue]


def test_one_of_several_state_dicts_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    run = run_of(model)
    content = {"nets": [{"g": run["state_dict"]}, {"d.x": {"w": torch.ones(2)}}], **run}
    source, out = tmp_path / "my run.pt", tmp_path / "o.safetensors"
    del content["state_dict"]
    torch.save(content, source)
    text = failed(capsys, "convert", source, out)
    assert "2 state dicts ('nets.0.g', 'nets.1.d.x')" in text
    assert f"purestate convert '{source}' {out} --key nets.0.g" in text
    assert "there is no 'net'" in failed(capsys, "convert", source, out, "--key", "net")
    assert not out.exists()
    text = done(capsys, "convert", source, out, "--key", "nets.1.d.x")
    assert "took the state dict 'nets.1.d.x'" in text
    assert_same(safetensors.torch.load_file(out), {"w": torch.ones(2)})
    done(capsys, "convert", source, tmp_path / "o.pt", "--key", "optimizer")
    found = torch.load(tmp_path / "o.pt", weights_only=True)
    assert found["param_groups"] == run["optimizer"]["param_groups"]


def test_counts_beside_a_state_dict_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Net
) -> None:
    torch.save({"step": torch.tensor(3), "model": model.state_dict()}, tmp_path / "m.pt")
    text = done(capsys, "convert", tmp_path / "m.pt", tmp_path / "o.safetensors")
    assert "took the state dict 'model'" in text


class Settings:
    pass


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_has_no_place_is_named_at_once_and_left_out_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        "w": torch.ones(2, 3),
        "lr": 0.5,
        "args": Settings(),
        "list": [1, Settings(), torch.ones(1)],
        "q": torch.quantize_per_tensor(torch.zeros(3), 0.1, 2, torch.qint8),
        "big": torch.ones(1, dtype=torch.complex128),
        "\x1b[31m": {"set": frozenset([3]), "kept": (1, "two", {3.0})},
    }
    torch.save(content, tmp_path / "m.pt")
    for target, unfit in (
        (
            "o.safetensors",
            ["'lr' is 0.5", "'args' is an object", "'list'", "'q'", "'big'", r"\x1b[31m"],
        ),
        (
            "o.pt",
            ["'args' is an object of class", "'list.1'", "'q' is a QuantizedTensor", "frozenset({3})"],
        ),
    ):
        out = tmp_path / target
        text = failed(capsys, "convert", tmp_path / "m.pt", out)
        for part in [*unfit, f"{len(unfit)} values", "--drop-others"]:
            assert part in text
        assert not out.exists()
        report = json_of(capsys, "convert", tmp_path / "m.pt", out, "--drop-others")
        assert len(report["dropped"]) == len(unfit)
        assert "\x1b" not in done(capsys, "convert", tmp_path / "m.pt", out, "--drop-others")
    assert_same(safetensors.torch.load_file(tmp_path / "o.safetensors"), {"w": content["w"]})
    found = torch.load(tmp_path / "o.pt", weights_only=True)
    assert list(found) == ["w", "lr", "big", "\x1b[31m"]
    assert found["\x1b[31m"] == {"kept": (1, "two", {3.0})}


def test_a_cast_can_make_a_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = np.array([0.5, -6, 3, 0], ml_dtypes.float4_e2m1fn)
    packed = torch.tensor(numbers.view(np.uint8)[::2] | (numbers.view(np.uint8)[1::2] << 4))
    torch.save({"w": packed.view(torch.float4_e2m1fn_x2)}, tmp_path / "m.pt")
    out = tmp_path / "o.safetensors"
    assert "'w' is a tensor of float4" in failed(capsys, "convert", tmp_path / "m.pt", out)
    done(capsys, "convert", tmp_path / "m.pt", out, "--dtype", "f32")
    assert safetensors.numpy.load_file(out)["w"].tolist() == [0.5, -6, 3, 0]


@pytest.mark.parametrize("name", ["m.pt", "m.safetensors"])
def test_a_file_can_be_converted_onto_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, model: Net
) -> None:
    path = tmp_path / name
    save({key: value.numpy() for key, value in model.state_dict().items()}, path)
    before = path.stat().st_ino
    done(capsys, "convert", path, path, "--dtype", "f64")
    assert path.stat().st_ino != before
    found: Any = load(path)
    expected = model.z_embed.weight.detach().double().numpy()
    assert np.array_equal(found["z_embed.weight"], expected)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    text = path.read_bytes()
    assert "no place" not in failed(capsys, "convert", path, path, "--key", "absent")
    assert path.read_bytes() == text


def test_digests_are_written_and_old_ones_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    torch.save({"w": torch.ones(3)}, tmp_path / "m.pt")
    done(capsys, "convert", tmp_path / "m.pt", first, "--digests")
    with safetensors.safe_open(first, "np") as file:
        assert set(json.loads(file.metadata()["sha256"])) == {"w"}
    done(capsys, "convert", first, second, "--dtype", "f16")
    with safetensors.safe_open(second, "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert np.asarray(load(second, verify=True)["w"]).tolist() == [1, 1, 1]


def test_a_forged_broadcast_is_not_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"w": torch.ones(1).expand(1 << 20, 1 << 20)}, tmp_path / "m.pt")
    assert "bytes over a storage" in failed(
        capsys, "convert", tmp_path / "m.pt", tmp_path / "o.safetensors"
    )
    done(capsys, "convert", tmp_path / "m.pt", tmp_path / "o.pt", "--dtype", "bf16")
    found = torch.load(tmp_path / "o.pt", weights_only=True)["w"]
    assert found.shape == (1 << 20, 1 << 20)
    assert found.untyped_storage().nbytes() == 2


USAGE = [
    ["--dtype", "int8"],
    ["--rename", "x"],
    ["--shard-size", "much"],
    ["--ties", "some"],
]


@pytest.mark.parametrize("options", USAGE, ids=lambda options: options[0])
def test_wrong_options_are_wrong_usage(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["convert", "a.pt", "b.pt", *options])
    assert caught.value.code == 2
    assert options[0] in capsys.readouterr().err


def test_a_suffix_has_to_say_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "m.pt")
    assert ".safetensors" in failed(capsys, "convert", tmp_path / "m.pt", tmp_path / "o.safetensor")
    done(capsys, "convert", tmp_path / "m.pt", tmp_path / "folder", "--shard-size", "5GB")
    assert (tmp_path / "folder" / "model.safetensors").exists()


def test_convert_starts_without_jax(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "m.pt")
    rename = ["--rename", "w=v", "--dtype", "bf16"]
    loaded = modules_after_command("convert", tmp_path / "m.pt", tmp_path / "o.safetensors", *rename)
    assert not HEAVY & loaded
    assert list(safetensors.torch.load_file(tmp_path / "o.safetensors")) == ["v"]


@needs_proc
def test_large_files_take_little_memory(tmp_path: Path) -> None:
    source = tmp_path / "m.pt"
    torch.save({name: torch.ones(6 << 20) for name in "abcd"}, source)
    # Python and NumPy take some 40 MB, the tensors 100; only what is cast is held, as it will be.
    assert peak_of_command("convert", source, tmp_path / "o.safetensors") < 80 << 20
    assert (
        peak_of_command("convert", source, tmp_path / "o.safetensors", "--dtype", "f8_e5m2") < 110 << 20
    )


@pytest.mark.parametrize(
    "tensor", [torch.ones(2, 2), torch.eye(2).to_sparse()], ids=["dense", "sparse"]
)
def test_a_single_tensor_has_no_place_among_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tensor: torch.Tensor
) -> None:
    torch.save({"g": {"weight": tensor}}, tmp_path / "m.pt")
    taken = ["convert", tmp_path / "m.pt", tmp_path / "o.safetensors", "--key", "g.weight"]
    assert "'g.weight' is one tensor" in failed(capsys, *taken)
    assert "'g.weight' is one tensor" in failed(capsys, *taken, "--drop-others")
    assert "'g.weight' is one tensor" in failed(capsys, *taken, "--shard-size", "1MB")


def test_too_little_memory_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"w": torch.ones(1000)}, tmp_path / "m.pt")
    for where in ("bridge._convert.cast_all", "bridge.checkpoint._write_safetensors.write_safetensors"):

        def fail(*_: object) -> None:
            np.empty(1 << 58)

        with monkeypatch.context() as patch:
            patch.setattr(where, fail)
            command = ["convert", tmp_path / "m.pt", tmp_path / "o.safetensors", "--dtype", "f64"]
            text = failed(capsys, *command)
        assert "not enough memory. Unable to allocate" in text
        assert os.listdir(tmp_path) == ["m.pt"]


def test_texts_that_differ_between_files_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for step, name in enumerate("ab", start=1):
        file = folder / f"model-{step:05}-of-00002.safetensors"
        save({name: np.ones(2)}, file, metadata={"step": str(step), "same": "x"}, digests=True)
    text = done(capsys, "convert", folder, tmp_path / "o.safetensors")
    assert "text tables differ in 'step'; the first file's text is taken" in text
    assert json_of(capsys, "convert", folder, tmp_path / "o.safetensors")["notes"] == [
        "The files' text tables differ in 'step'; the first file's text is taken."
    ]
