"""``purestate diff``: structure and values, exactly, with the exit statuses of diff(1)."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from bridge import cli, save
from bridge._diff_numbers import Tolerance, compare
from bridge.checkpoint._dtypes import TORCH_DTYPES
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
        self.z = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.a = torch.nn.Linear(3, 3, bias=False)
        self.a.weight = self.z.weight


def pair(tmp_path: Path, a: Any, b: Any) -> tuple[Path, Path]:
    torch.save(a, tmp_path / "a.pt")
    torch.save(b, tmp_path / "b.pt")
    return tmp_path / "a.pt", tmp_path / "b.pt"


# The numbers, against NumPy and PyTorch.

KINDS = [dtype for dtype in TORCH_DTYPES if dtype not in ("bool", "float4_e2m1fn_x2")]


def values(name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = TORCH_DTYPES[name]
    if name == "complex32":
        array = np.empty(4099, dtype)
        array["real"], array["imag"] = rng.normal(size=(2, 4099))
        return array
    if dtype.kind == "c":
        return (rng.normal(size=4099) + 1j * rng.normal(size=4099)).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 100, 4099).astype(dtype)
    return np.abs(rng.normal(size=4099)).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.names:
        return array["real"].astype(float) + 1j * array["imag"].astype(float)
    return array.astype(complex if array.dtype.kind == "c" else float)


@pytest.mark.parametrize("name", KINDS)
def test_deltas_are_those_of_numpy_for_every_dtype(name: str) -> None:
    a, b = values(name, 1), values(name, 2)
    b[::3] = a[::3]
    found = compare(a, b, Tolerance(0.5, 0.25))
    x, y = wide(a), wide(b)
    delta = np.abs(x - y)
    assert found.max_delta == delta.max()
    larger = np.maximum(np.abs(x), np.abs(y))
    assert found.max_relative == (delta[delta > 0] / larger[delta > 0]).max()
    assert found.differ == np.count_nonzero(delta)
    assert found.beyond == np.count_nonzero(~np.isclose(x, y, rtol=0.5, atol=0.25))
    assert found.nan_differ == 0
    assert compare(a, a.copy()).differ == 0


def test_integers_are_compared_as_integers() -> None:
    def delta(a: Any, b: Any, one: type, other: type) -> int | float:
        return compare(np.array([a, 0], one), np.array([b, 0], other)).max_delta

    i64, u64 = np.int64, np.uint64
    assert delta(2**53, 2**53 + 1, i64, i64) == 1
    assert delta(-(2**63), 2**63 - 1, i64, i64) == 2**64 - 1
    assert delta(0, 2**64 - 1, u64, u64) == 2**64 - 1
    assert delta(-(2**63), 2**64 - 1, i64, u64) == 2**64 + 2**63 - 1
    assert delta(2**62 + 1, 2**62, i64, u64) == 1
    assert delta(2**53 + 1, 2.0**53, i64, np.float64) == 1
    assert delta(2**60, 0.5, i64, np.float32) == 2**60
    assert delta(7, 9, np.int8, i64) == 2
    assert delta(True, False, np.bool_, np.bool_) == 1
    assert delta(200, 100, np.uint8, np.int8) == 100
    assert type(delta(7, 9, np.int8, i64)) is int
    assert compare(np.array([2**53 + 1]), np.array([2.0**53])).differ == 1
    assert delta(2**60, np.inf, i64, np.float64) == np.inf


def test_nan_zero_and_infinity() -> None:
    nan, inf = np.nan, np.inf
    a = np.array([nan, nan, 1, inf, inf, -inf, 0.0, 5], np.float32)
    b = np.array([nan, 1, nan, inf, 1, inf, -0.0, 5], np.float32)
    found = compare(a, b, Tolerance(1e9, 1e9))
    assert found.nan_differ == 2
    assert found.max_delta == inf
    assert found.differ == 5
    # As numpy.isclose has it, no tolerance makes a NaN or an infinity close to a number.
    assert found.beyond == np.count_nonzero(~np.isclose(a, b, rtol=1e9, atol=1e9, equal_nan=True)) == 4
    zeros = compare(np.array([0.0]), np.array([-0.0]))
    assert (zeros.differ, zeros.max_delta, zeros.beyond) == (1, 0, 0)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    bits = compare(np.array([nan], np.float32), other)
    assert (bits.differ, bits.nan_differ, bits.beyond) == (1, 0, 0)
    part = compare(np.array([complex(nan, 1)]), np.array([complex(1, 1)]))
    assert (part.nan_differ, part.beyond) == (1, 1)


def test_layouts_and_broadcasts_are_seen_through() -> None:
    base = np.arange(600_000, dtype=np.float64).reshape(600, 1000)
    assert compare(base.T, np.ascontiguousarray(base.T)).differ == 0
    turned = base.T[::-1, ::2]
    other = np.array(turned)
    other[7, 5] += 3
    found = compare(turned, other)
    assert (found.differ, found.max_delta, found.numbers) == (1, 3, turned.size)
    huge = np.broadcast_to(np.float32(1), (1 << 30, 1 << 20))
    found = compare(huge, np.broadcast_to(np.float32(3), huge.shape))
    assert (found.differ, found.max_delta) == (1 << 50, 2)


def test_texts_are_compared_by_their_bits() -> None:
    found = compare(np.array(["a", "b"]), np.array(["a", "c"]))
    assert (found.differ, found.beyond, found.max_delta) == (1, 1, 0)
    assert compare(np.array(["a"]), np.array([1.0])).differ == 1


# The structure.


def test_equal_files_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sd = Net().state_dict()
    torch.save(sd, tmp_path / "legacy.bin", _use_new_zipfile_serialization=False)
    a, _ = pair(tmp_path, sd, sd)
    found = json_of(capsys, "diff", a, tmp_path / "legacy.bin")
    assert found["equal"]
    assert found["equal_tensors"] == 8
    assert found["not_compared"] == []
    assert done(capsys, "diff", a, a).endswith("8 tensors equal bit by bit\nequal\n")


@pytest.mark.parametrize("writer", ["save_file", "save_model", "ours"])
def test_a_safetensors_file_of_the_same_weights_is_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], writer: str
) -> None:
    model, path = Net(), tmp_path / "m.safetensors"
    sd = model.state_dict()
    if writer == "save_file":
        safetensors.torch.save_file({name: tensor.clone() for name, tensor in sd.items()}, path)
    elif writer == "save_model":
        safetensors.torch.save_model(model, str(path))
    else:
        save({name: tensor.numpy() for name, tensor in sd.items()}, path, ties="canonical")
    a, _ = pair(tmp_path, sd, sd)
    found = json_of(capsys, "diff", a, path)
    assert found["equal"], found
    assert found["not_compared"] == ["order", "ties", "versions"]
    assert found["equal_tensors"] == 8
    assert "not compared" in done(capsys, "diff", path, a)


def changed(**entries: Any) -> Any:
    sd = Net().state_dict()
    torch.nn.init.ones_(sd["z.weight"])
    torch.nn.init.zeros_(sd["z.bias"])
    sd.update(entries)
    return sd


def without(name: str) -> Any:
    sd = changed()
    del sd[name]
    return sd


def untied() -> Any:
    return changed(**{"a.weight": torch.ones(3, 3)})


def reordered() -> Any:
    sd = changed()
    sd.move_to_end("z.weight")
    return sd


def other_version() -> Any:
    sd = changed()
    sd._metadata["norm"] = {"version": 1}
    return sd


STRUCTURE: dict[str, tuple[Any, str, Any, str, str]] = {
    "only in a": (without("z.bias"), "only_a", ["z.bias"], "z.bias", ""),
    "only in b": (changed(x=torch.ones(1)), "only_b", ["x"], "only in", ""),
    "shape": (
        changed(**{"z.bias": torch.zeros(1, 3)}),
        "shapes",
        {"z.bias": [[3], [1, 3]]},
        "(1, 3)",
        "",
    ),
    "dtype": (
        changed(**{"z.bias": torch.zeros(3).double()}),
        "dtypes",
        {"z.bias": ["float32", "float64"]},
        "float64",
        "dtypes",
    ),
    "order": (reordered(), "order", True, "another order", "order"),
    "ties": (untied(), "ties", [["a", ["a.weight", "z.weight"]]], "tied in A only", "ties"),
    "versions": (other_version(), "versions", {"norm": ["2", "1"]}, "norm", "versions"),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_each_difference_in_structure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    other, field, expected, text, ignorable = STRUCTURE[case]
    a, b = pair(tmp_path, changed(), other)
    found = json_of(capsys, "diff", a, b, status=1)
    assert found[field] == expected
    assert not found["equal"]
    empty = {"only_a", "only_b", "shapes", "dtypes", "ties", "versions", "others", "numbers"} - {field}
    assert not any(found[other] for other in empty)
    shown = done(capsys, "diff", a, b, status=1)
    assert text in shown
    assert shown.endswith("\ndifferent\n")
    if ignorable:
        assert "ignored" in done(capsys, "diff", a, b, "--ignore", ignorable)


def test_other_values_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = {"epoch": 3, "lr": 0.1, "nan": float("nan"), "betas": (0.9, 0.99), "name": "x", "one": 1}
    b = a | {"epoch": 4, "betas": [0.9, 0.99], "one": True, "nan": float("nan")}
    found = json_of(capsys, "diff", *pair(tmp_path, a, b), status=1)
    assert found["others"] == {
        "epoch": ["3", "4"],
        "betas": ["(0.9, 0.99)", "[0.9, 0.99]"],
        "one": ["1", "True"],
    }
    done(capsys, "diff", tmp_path / "a.pt", tmp_path / "b.pt", "--ignore", "others")


def test_text_tables_are_compared_as_other_values_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors, long = {"w": torch.ones(1)}, "x" * 1000
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    safetensors.torch.save_file(tensors, a, {"step": "1", "by": "me", "same": long})
    safetensors.torch.save_file(tensors, b, {"step": "2", "format": "pt", "same": long, "\x1b": "\x1b"})
    found = json_of(capsys, "diff", a, b, status=1)
    assert found["file_metadata"] == {
        "step": ["'1'", "'2'"],
        "by": ["'me'", "none"],
        "\x1b": ["none", r"'\x1b'"],
    }
    assert found["equal_tensors"] == 1
    shown = done(capsys, "diff", a, b, status=1)
    assert "\nstep          '1'  '2'\n" in shown
    assert "\x1b" not in shown
    done(capsys, "diff", a, b, "--ignore", "others")
    # A .pt file has none.
    torch.save(tensors, tmp_path / "c.pt")
    found = json_of(capsys, "diff", a, tmp_path / "c.pt")
    assert found["not_compared"] == ["order", "ties", "versions", "file metadata"]


def test_what_a_text_table_says_of_its_tensors_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = np.ones((2, 2), np.float32)
    a, b, c = (tmp_path / f"{name}.safetensors" for name in "abc")
    save({"a.weight": weight, "b.weight": weight}, a, ties="canonical", digests=True)
    safetensors.torch.save_file({f"{k}.weight": torch.ones(2, 2) for k in "ab"}, b)
    assert json_of(capsys, "diff", a, b)["equal"]
    done(capsys, "convert", b, c)
    done(capsys, "diff", b, c)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_records_are_compared_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def content(value: float, scale: float) -> Any:
        sparse = (torch.eye(3) * value).to_sparse()
        return {"s": sparse, "q": torch.quantize_per_tensor(torch.zeros(2), scale, 0, torch.quint8)}

    a, b = pair(tmp_path, content(1, 0.5), content(4, 0.25))
    found = json_of(capsys, "diff", a, b, status=1)
    assert found["numbers"]["s.values"]["max_delta"] == 3
    assert found["others"] == {"q.scale": ["0.5", "0.25"]}
    assert json_of(capsys, "diff", a, a)["equal"]


def test_the_worst_tensor_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = {"small": torch.zeros(4), "nan": torch.zeros(4), "large": torch.zeros(4), "same": torch.ones(1)}
    b = {
        "small": a["small"] + 0.5,
        "nan": torch.tensor([float("nan"), 0, 0, 0]),
        "large": a["small"] + 7,
    }
    found = json_of(capsys, "diff", *pair(tmp_path, a, b | {"same": a["same"]}), status=1)
    assert list(found["numbers"]) == ["nan", "large", "small"]
    assert found["numbers"]["large"] == {
        "numbers": 4,
        "differ": 4,
        "beyond": 4,
        "nan_differ": 0,
        "max_delta": 7.0,
        "max_relative": 1.0,
    }
    text = done(capsys, "diff", tmp_path / "a.pt", tmp_path / "b.pt", status=1)
    assert text.index("nan ") < text.index("large ") < text.index("small ")
    assert "1 tensor equal bit by bit, 3 tensors not" in text


def test_infinity_is_text_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = pair(tmp_path, {"x": torch.tensor([float("inf")])}, {"x": torch.ones(1)})
    assert json_of(capsys, "diff", a, b, status=1)["numbers"]["x"]["max_delta"] == "inf"


def test_tolerances_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.rand(1000, generator=torch.Generator().manual_seed(0)) + 0.5
    files = pair(tmp_path, {"w": a}, {"w": a.bfloat16().float()})
    done(capsys, "diff", *files, status=1)
    for rtol, atol in ((0.004, 0.0), (0.0, 0.004), (1e-4, 1e-4), (0.002, 0.001)):
        close = torch.allclose(a, a.bfloat16().float(), rtol=rtol, atol=atol)
        done(capsys, "diff", *files, "--rtol", rtol, "--atol", atol, status=0 if close else 1)
    # A zero tolerance is of values, not of bits.
    zeros = pair(tmp_path, {"w": torch.zeros(1)}, {"w": -torch.zeros(1)})
    done(capsys, "diff", *zeros, status=1)
    done(capsys, "diff", *zeros, "--atol", 0)


def test_a_part_can_be_compared_with_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sd = Net().state_dict()
    a, b = pair(tmp_path, {"state_dict": sd, "epoch": 1}, sd)
    done(capsys, "diff", a, b, status=1)
    done(capsys, "diff", a, b, "--key", "state_dict")
    assert "neither file has" in failed(capsys, "diff", a, b, "--key", "nothing", status=2)


def test_trouble_is_not_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({}, tmp_path / "m.pt")
    (tmp_path / "bad.pt").write_bytes(b"some words and more words")
    assert "no checkpoint file" in failed(capsys, "diff", tmp_path / "m.pt", tmp_path / "x", status=2)
    assert "no checkpoint" in failed(capsys, "diff", tmp_path / "bad.pt", tmp_path / "m.pt", status=2)
    for options in (["--rtol", "-1"], ["--atol", "nan"], ["--ignore", "all"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(["diff", "a", "b", *options])
        assert caught.value.code == 2
    capsys.readouterr()


def test_names_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m\x07[bold]\n"
    a = {evil: torch.ones(1), "v": evil, f"a{evil}": 1, f"t{evil}": torch.ones(2), "d": {evil: 1}}
    b = {evil: torch.zeros(1), "v": evil + "x", f"t{evil}": torch.ones(3, dtype=torch.float64), "d": {}}
    versions = OrderedDict({f"m{evil}": {"version": 1}})
    sd: Any = OrderedDict(x=torch.ones(1))
    sd._metadata = versions
    text = done(capsys, "diff", *pair(tmp_path, a | {"sd": sd}, b), status=1)
    assert text.replace("\n", "").isprintable()
    assert r"\x1b[31m\x07[bold]\n" in text


def test_shared_containers_do_not_multiply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value: list[Any] = [torch.ones(1)]
    for _ in range(60):
        value = [value, value]
    value.append(value)
    done(capsys, "diff", *pair(tmp_path, value, value))


def test_an_empty_dictionary_has_no_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json_of(capsys, "diff", *pair(tmp_path, {}, {"w": torch.ones(1)}), status=1)
    assert (found["only_a"], found["only_b"]) == ([], ["w"])
    done(capsys, "diff", *pair(tmp_path, {}, {}))
    done(capsys, "diff", *pair(tmp_path, {}, []), status=1)
    done(capsys, "diff", *pair(tmp_path, {"a": {}}, {"a": []}), status=1)


def test_places_of_one_dotted_name_are_told_apart_in_any_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"a.b": 1, "a": {"b": 2}, "1": 3, 1: 4}, tmp_path / "a.pt")
    torch.save({1: 4, "1": 3, "a": {"b": 2}, "a.b": 1}, tmp_path / "b.pt")
    done(capsys, "diff", tmp_path / "a.pt", tmp_path / "b.pt")
    torch.save({1: 3, "1": 4, "a": {"b": 2}, "a.b": 1}, tmp_path / "b.pt")
    done(capsys, "diff", tmp_path / "a.pt", tmp_path / "b.pt", status=1)


def test_a_few_bytes_that_look_like_many_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = torch.zeros(1 << 21).as_strided((1 << 20, 1 << 20), (1, 1))
    files = pair(tmp_path, {"w": forged}, {"w": forged})
    assert "bytes of storage" in failed(capsys, "diff", *files, status=2)


@needs_proc
def test_large_files_take_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = np.ones(24 << 20, np.float32)
    save({"w": big}, tmp_path / "a.pt")
    big[5] = 2
    save({"w": big}, tmp_path / "b.safetensors")
    files = tmp_path / "a.pt", tmp_path / "b.safetensors"
    assert json_of(capsys, "diff", *files, status=1)["numbers"]["w"]["differ"] == 1
    # Python and NumPy take some 40 MB; each of the tensors has 100.
    assert peak_of_command("diff", *files) < 80 << 20


def test_diff_starts_without_jax(tmp_path: Path) -> None:
    a, b = pair(tmp_path, {"w": torch.ones(1)}, {"w": torch.zeros(1)})
    assert not HEAVY & modules_after_command("diff", a, b)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_is_compared_with_a_state_dict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Net()
    torch.jit.save(torch.jit.script(model.norm), tmp_path / "script.pt")
    torch.save(model.norm.state_dict(), tmp_path / "m.pt")
    found = json_of(capsys, "diff", tmp_path / "script.pt", tmp_path / "m.pt")
    assert found["not_compared"] == ["versions"]
    assert found["equal_tensors"] == 5


def test_numpy_arrays_of_another_byte_order_are_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    array = np.arange(5, dtype=">f4")
    a, b = pair(
        tmp_path, {"w": array, "x": np.float64(2)}, {"w": torch.arange(5.0), "x": np.float64(2)}
    )
    assert json_of(capsys, "diff", a, b)["equal_tensors"] == 2
    done(capsys, "convert", a, tmp_path / "o.pt", "--dtype", "f16")
    found = torch.load(tmp_path / "o.pt", weights_only=True)
    assert torch.equal(found["w"], torch.arange(5.0).half())
    assert found["x"] == 2
    done(capsys, "convert", a, tmp_path / "o.safetensors")
    assert safetensors.torch.load_file(tmp_path / "o.safetensors")["w"].tolist() == [0, 1, 2, 3, 4]
