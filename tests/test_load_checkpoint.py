"""load_checkpoint: torch's files into a model, and torch's texts when they do not fit."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

import bridge
import purestate as ps
from bridge import _load_progress, _streaming, cli
from bridge._load_report import LoadReport
from bridge.checkpoint import Truncated
from purestate import nn
from tests.checkpoint.test_parts import read_so_far
from tests.command_line import done
from tests.loading import WRITERS, Net, as_folder, as_safetensors, as_zip, assert_equal, torch_net


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("write", WRITERS)
def test_values_are_torchs(tmp_path: Path, write: str, drawn: bool, copy: bool) -> None:
    sd = torch_net().state_dict()
    path = WRITERS[write](sd, tmp_path)
    model = ps.init(Net(), jax.random.key(0)) if drawn else Net()
    before = jax.tree.leaves(model)
    loaded, report = bridge.load_checkpoint(model, path, copy=copy)
    assert_equal(loaded, sd)
    assert loaded.head.weight is loaded.embed.weight
    assert set(report.loaded) == set(sd)
    assert report.tied == (("embed.weight", "head.weight"),)
    assert report.inside == (("state_dict",) if write == "as_trainer" else ())
    assert report.missing == report.unexpected == ()
    assert report.cast == {}
    distinct = {id(v.untyped_storage()): v.nbytes for v in torch_net().parameters()}
    assert report.bytes == sum(distinct.values()) + 2 * 8 * 4 + 8  # And the statistics.
    assert all(a is b for a, b in zip(before, jax.tree.leaves(model), strict=True))


def test_the_same_as_load_state_dict(tmp_path: Path) -> None:
    path = as_zip(torch_net().state_dict(), tmp_path)
    loaded, _ = bridge.load_checkpoint(Net(), path)
    expected, _ = bridge.load_state_dict(Net(), bridge.load(path))
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda sd: None,
    "missing": lambda sd: sd.pop("body.0.bias"),
    "unexpected": lambda sd: sd.update({"more.x": torch.ones(1)}),
    "both": lambda sd: sd.update({"more.x": sd.pop("body.0.bias"), "y": torch.ones(1)}),
    "a shape": lambda sd: sd.update({"body.0.weight": torch.ones(3, 8)}),
    "everything": lambda sd: sd.update(
        {"body.0.weight": torch.ones(3, 8), "z": torch.ones(2), "body.1.weight": torch.ones(())}
    ),
    "empty": lambda sd: sd.clear(),
    "no tensor": lambda sd: sd.update({"body.0.bias": "text"}),
    "a scalar of old": lambda sd: sd.update({"body.1.num_batches_tracked": torch.tensor([4])}),
}


def torch_outcome(sd: dict[str, Any], strict: bool) -> tuple[str, Any]:
    try:
        keys = torch_net(seed=1).load_state_dict(sd, strict=strict)
    except RuntimeError as error:
        return "error", str(error)
    return "loaded", (keys.missing_keys, keys.unexpected_keys)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_texts_are_torchs(tmp_path: Path, change: str, strict: bool) -> None:
    sd = torch_net().state_dict()
    CHANGES[change](sd)
    expected = torch_outcome(sd, strict)
    try:
        _, report = bridge.load_checkpoint(Net(), as_zip(sd, tmp_path), strict=strict)
        ours = ("loaded", (list(report.missing), list(report.unexpected)))
    except RuntimeError as error:
        ours = ("error", str(error))
    assert ours == expected


def test_a_name_left_out_because_it_is_tied_is_not_missing(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    expected = dict(sd)
    del sd["head.weight"]
    loaded, report = bridge.load_checkpoint(Net(), as_zip(sd, tmp_path))
    assert_equal(loaded, expected)
    assert report.missing == ()


def test_a_file_of_save_model_into_a_model_without_ties(tmp_path: Path) -> None:
    theirs = torch_net()
    safetensors.torch.save_model(theirs, str(tmp_path / "x.safetensors"))
    model = bridge.untie(Net(), "head.weight")
    loaded, report = bridge.load_checkpoint(model, tmp_path / "x.safetensors")
    assert_equal(loaded, theirs.state_dict())
    assert report.tied == ()


def test_nothing_is_read_before_the_names_fit(tmp_path: Path) -> None:
    sd = torch_net(width=4096).state_dict()
    sd["wrong"] = sd.pop("body.0.bias")
    path = as_safetensors(sd, tmp_path)
    before = read_so_far()
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "wrong"'):
        bridge.load_checkpoint(Net(width=4096), path)
    assert read_so_far() - before < 1 << 20
    assert path.stat().st_size > 60 << 20


def place(array: jax.Array) -> int:
    return array.addressable_data(0).unsafe_buffer_pointer()


def overwrite(path: Path) -> None:
    """Zero the numbers of a file in place."""
    data = bytearray(path.read_bytes())
    start = data.find(np.float32(1.25).tobytes() * 100)
    data[start : start + 40_000] = bytes(40_000)
    with open(path, "r+b") as file:
        file.write(data)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(jnp.zeros((100, 100)))


def test_an_aligned_array_is_used_where_it_lies(tmp_path: Path) -> None:
    torch.save({"x": torch.full((100, 100), 1.25)}, tmp_path / "x.pt")
    model, _ = bridge.load_checkpoint(Wide(), tmp_path / "x.pt")
    before = float(model.x[0, 0])
    overwrite(tmp_path / "x.pt")
    assert before == 1.25
    assert float(model.x[0, 0]) == 0.0  # What copy=True is for.


@pytest.mark.parametrize("write", ["pt", "safetensors"])
def test_copies_are_on_their_own(tmp_path: Path, write: str) -> None:
    path = tmp_path / f"x.{write}"
    tensor = torch.full((100, 100), 1.25)
    torch.save({"x": tensor}, path) if write == "pt" else safetensors.torch.save_file(
        {"x": tensor}, path
    )
    model, _ = bridge.load_checkpoint(Wide(), path, copy=True)
    overwrite(path)
    assert bridge.load(path)["x"].sum() == 0
    assert np.all(np.asarray(model.x) == 1.25)


def test_replacing_the_file_is_safe(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.full((100, 100), 1.25)}, path)
    model, _ = bridge.load_checkpoint(Wide(), path)
    bridge.save({"x": np.zeros((100, 100), np.float32)}, path)
    assert bridge.load(path)["x"].sum() == 0
    assert np.all(np.asarray(model.x) == 1.25)
    path.unlink()
    assert np.all(np.asarray(model.x) == 1.25)


def test_a_file_that_is_cut_short_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = as_safetensors(torch_net().state_dict(), tmp_path)
    settle = _streaming.Streams.settle

    def cut(self, leaves):
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 4)
        return settle(self, leaves)

    monkeypatch.setattr(_streaming.Streams, "settle", cut)
    with pytest.raises(Truncated, match="became shorter") as caught:
        bridge.load_checkpoint(Net(), path)
    assert caught.value.file == str(path)


def test_a_loaded_model_outlives_a_step_that_donates_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"x": torch.full((100, 100), 1.25)}, path)
    model, _ = bridge.load_checkpoint(Wide(), path)
    step = jax.jit(lambda model: jax.tree.map(lambda a: a * 2, model), donate_argnums=0)
    assert np.all(np.asarray(step(model).x) == 2.5)
    assert np.all(bridge.load(path)["x"] == 1.25)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, "float32"])
@pytest.mark.parametrize("drawn", [False, True])
def test_dtype_casts_what_is_floating(tmp_path: Path, dtype: Any, drawn: bool) -> None:
    theirs = torch_net()
    path = as_safetensors(theirs.state_dict(), tmp_path)
    model = ps.init(Net(), jax.random.key(0)) if drawn else Net()
    loaded, report = bridge.load_checkpoint(model, path, dtype=dtype)
    dtype = jnp.dtype(dtype)
    assert loaded.scratch.dtype == dtype  # As ``to`` casts, saved or not.
    expected = theirs.to(getattr(torch, dtype.name)).state_dict()
    ours = bridge.state_dict(loaded)
    for name, tensor in expected.items():
        bits = tensor.view(torch.uint8) if tensor.ndim else tensor.reshape(1).view(torch.uint8)
        assert np.asarray(ours[name]).tobytes() == bits.contiguous().numpy().tobytes()
    if dtype != np.float32:
        assert report.cast["body.0.bias"] == ("float32", dtype.name)
        assert "body.1.num_batches_tracked" not in report.cast


def test_without_dtype_the_models_is_kept(tmp_path: Path) -> None:
    path = as_zip(torch_net().half().state_dict(), tmp_path)
    loaded, report = bridge.load_checkpoint(Net(), path)
    assert loaded.embed.weight.dtype == jnp.float32
    assert report.cast["embed.weight"] == ("float16", "float32")
    assert_equal(loaded, torch_net().half().float().state_dict())


def test_dtypes_that_are_refused(tmp_path: Path) -> None:
    path = as_zip(torch_net().state_dict(), tmp_path)
    with pytest.raises(TypeError, match="floating point dtypes, got dtype=int32"):
        bridge.load_checkpoint(Net(), path, dtype=jnp.int32)
    with pytest.raises(ValueError, match="cannot hold float64"):
        bridge.load_checkpoint(Net(), path, dtype="float64")


OTHERS = [ml_dtypes.float6_e2m3fn, np.dtype(">f4"), np.longdouble, b"f16", b"x", "f9", 3.5]


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
def test_dtypes_that_jax_lacks_are_refused(tmp_path: Path, dtype: Any) -> None:
    path = as_zip(torch_net().state_dict(), tmp_path)
    with pytest.raises(TypeError, match=r"dtype.*\n    write: float64, .*\bbf16,"):
        bridge.load_checkpoint(Net(), path, dtype=dtype)


NAMES: dict[Any, torch.dtype] = {
    "bf16": torch.bfloat16,
    "BF16": torch.bfloat16,
    "torch.bfloat16": torch.bfloat16,
    torch.bfloat16: torch.bfloat16,
    "fp16": torch.float16,
    "half": torch.float16,
    "float": torch.float32,
    "fp32": torch.float32,
    "fp8_e4m3": torch.float8_e4m3fn,
    "F8_E4M3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_of_dtypes_mean_to_a_load_what_they_mean_to_convert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: Any
) -> None:
    path = as_zip({"x": torch.full((100, 100), 1.25)}, tmp_path)
    model, _ = bridge.load_checkpoint(Wide(), path, dtype=name)
    done(capsys, "convert", path, tmp_path / "o.pt", "--dtype", name)
    found = torch.load(tmp_path / "o.pt", weights_only=True)["x"]
    assert found.dtype == NAMES[name]
    assert str(model.x.dtype) == str(found.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", ["bf", "f8", "float8_e4m3", "int32", "fp8", ""])
def test_names_of_no_dtype_are_refused_by_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = as_zip({"x": torch.ones(100, 100)}, tmp_path)
    text = f"{name!r} names no floating-point dtype"
    with pytest.raises(TypeError, match=rf"{text}\n    write: .*\bbfloat16, .*\bbf16,"):
        bridge.load_checkpoint(Wide(), path, dtype=name)
    with pytest.raises(SystemExit):
        cli.main(["convert", str(path), str(tmp_path / "o.pt"), "--dtype", name])
    assert f"{text}; write: float64," in capsys.readouterr().err


def test_integers_that_do_not_fit(tmp_path: Path) -> None:
    sd = torch_net().state_dict()
    sd["body.1.num_batches_tracked"] = torch.tensor(2**40)
    path = as_zip(sd, tmp_path)
    with pytest.raises(RuntimeError) as caught:
        bridge.load_checkpoint(Net(), path)
    with pytest.raises(RuntimeError) as expected:
        bridge.load_state_dict(Net(), bridge.load(path))
    assert str(caught.value) == str(expected.value)
    assert "jax_enable_x64" in str(caught.value)


def test_hooks_see_values_and_arrays(tmp_path: Path) -> None:
    path = as_safetensors(torch_net().state_dict(), tmp_path)
    seen = []

    def before(module, sd, prefix, local, strict, missing, unexpected, errors):
        sd[prefix + "0.bias"] = sd[prefix + "0.bias"] * 2
        sd[prefix + "1.weight"] = jnp.full(8, 3.0)

    def after(module, keys):
        seen.append((float(module.get_submodule("0").bias[0]), module.get_submodule("1").weight))

    model, _ = bridge.register_load_state_dict_pre_hook(Net(), before, at="body")
    model, _ = bridge.register_load_state_dict_post_hook(model, after, at="body")
    loaded, _ = bridge.load_checkpoint(model, path)
    double = torch_net().state_dict()["body.0.bias"][0].item() * 2
    assert float(loaded.body.get_submodule("0").bias[0]) == double
    assert seen[0][0] == double
    assert np.all(np.asarray(seen[0][1]) == 3.0)


def test_lazy_layers_take_the_files_shapes(tmp_path: Path) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4))
    loaded, _ = bridge.load_checkpoint(
        nn.Sequential(nn.LazyLinear(4)), as_zip(theirs.state_dict(), tmp_path)
    )
    assert_equal(loaded, theirs.state_dict())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_the_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, wanted: bool, patience: float
) -> None:
    path = as_zip(torch_net().state_dict(), tmp_path)
    output = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    monkeypatch.setattr(_load_progress, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    bridge.load_checkpoint(Net(), path, progress=wanted)
    assert ("loading" in output.getvalue()) == (terminal and wanted and patience == 0.0)


def test_the_report_reads_well(tmp_path: Path) -> None:
    report = LoadReport(
        loaded=("a", "b"),
        cast={"a": ("float16", "float32")},
        missing=("c",),
        tied=(("a", "d"),),
        unexpected=tuple("efghij"),
        files=("x.pt",),
        bytes=1_234_000,
        seconds=0.5,
        notes=("Odd.",),
        replicated=("b",),
        renamed={"z": "b"},
        unused_rules=("r",),
        inside=("net",),
    )
    assert report.summary() == "2 arrays from 1 file, 1.23 MB in 0.50 s; 1 missing, 6 unexpected"
    assert str(report).splitlines() == [
        "2 arrays from 1 file, 1.23 MB in 0.50 s; 1 missing, 6 unexpected",
        "    found at: ['net']",
        "    missing: c",
        "    unexpected: e, f, g, h, i, and 1 more",
        "    renamed: z -> b",
        "    rules that matched nothing: r",
        "    cast: a (float16 -> float32)",
        "    tied: a = d",
        "    replicated where asked to be sharded: b",
        "    Odd.",
    ]
    _, report = bridge.load_checkpoint(Net(), as_folder(torch_net().state_dict(), tmp_path))
    assert len(report.files) == 9
    assert "The index says 1 bytes" in str(report)
    assert str(report).startswith("9 arrays from 9 files, ")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        bridge.load_checkpoint(Net(), tmp_path / os.urandom(4).hex())
