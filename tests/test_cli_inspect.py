"""The command line: ``purestate inspect`` lists a file fast, exactly and harmlessly."""

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from bridge import cli
from bridge.checkpoint import _source, _tensors, save
from bridge.checkpoint._source import FileBytes


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    model.head(model.norm(model.embed(torch.arange(5)))).sum().backward()
    optimizer.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(content, tmp_path / "run.pt")
    return tmp_path / "run.pt"


def test_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(checkpoint), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in listing["tensors"]}
    assert list(rows)[:2] == ["model.embed.weight", "model.norm.weight"]
    assert rows["model.embed.weight"] == {
        "name": "model.embed.weight",
        "shape": [5, 4],
        "dtype": "float32",
        "bytes": 80,
        "role": "parameter",
        "tied_to": None,
    }
    assert rows["model.head.weight"]["tied_to"] == "model.embed.weight"
    assert rows["model.norm.running_var"]["role"] == "buffer"
    assert rows["model.norm.num_batches_tracked"]["role"] == "counter"
    assert rows["optimizer.state.0.exp_avg"]["role"] == "optimizer"
    assert listing["format"] == "torch zip"
    assert listing["file_bytes"] == checkpoint.stat().st_size
    assert listing["others"]["epoch"] == "3"
    assert listing["others"]["optimizer.param_groups.0.params"] == "[0, 1, 2]"
    assert listing["metadata"]["model"]["norm"] == {"version": 2}
    assert listing["totals"]["parameter"] == {"tensors": 3, "numbers": 28, "bytes": 112}
    assert listing["totals"]["buffer"] == {"tensors": 2, "numbers": 8, "bytes": 32}
    assert listing["totals"]["counter"] == {"tensors": 1, "numbers": 1, "bytes": 8}


def test_table(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(checkpoint)]) == 0
    text = capsys.readouterr().out
    assert f"{checkpoint}: torch zip" in text
    assert "parameter: 3 tensors, 28 numbers, 112 B" in text
    assert "versions of model: 1 (3 modules), 2 (1 module)" in text
    assert "tied to" in text


def test_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    save({"w": np.ones((2, 3)), "ids": np.arange(4)}, path, metadata={"made by": "a test"})
    assert cli.main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "made by" in text
    assert "a test" in text
    assert "parameter: 1 tensors, 6 numbers, 48 B" in text
    assert "buffer: 1 tensors, 4 numbers, 32 B" in text


def test_a_bare_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(torch.ones(3), tmp_path / "m.pt")
    assert cli.main(["inspect", str(tmp_path / "m.pt")]) == 0
    assert "parameter: 1 tensors, 3 numbers" in capsys.readouterr().out


def test_names_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"\x1b[31mred": torch.ones(1), "[bold]x[/bold]": torch.ones(1), "\x1b]0;t\x07": 1}
    torch.save(names, tmp_path / "m.pt")
    assert cli.main(["inspect", str(tmp_path / "m.pt")]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text
    assert "[bold]x[/bold]" in text


def test_shared_containers_are_listed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value: list[object] = [torch.ones(1)]
    for _ in range(60):
        value = [value, value]
    value.append(value)
    torch.save(OrderedDict(root=value), tmp_path / "m.pt")
    assert cli.main(["inspect", str(tmp_path / "m.pt"), "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert len(listing["tensors"]) == 1
    assert listing["others"]["root.1"] == "the same as root.0"
    assert listing["others"]["root.2"] == "the same as root"


def test_the_numbers_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pt"
    torch.save({"x": torch.ones(1 << 20, dtype=torch.complex64).conj()}, path)
    counts: list[int] = []
    read = FileBytes.read

    def counting(self: FileBytes, offset: int, count: int) -> bytes:
        counts.append(count)
        return read(self, offset, count)

    def fail(*args: object) -> None:
        pytest.fail("numbers are read")

    monkeypatch.setattr(FileBytes, "read", counting)
    monkeypatch.setattr(_source, "pread_into", fail)
    monkeypatch.setattr(_tensors, "resolve_marks", fail)
    assert cli.main(["inspect", str(path), "--json"]) == 0
    assert 0 < sum(counts) < 100_000


ERRORS = {
    "missing": (None, "no checkpoint file here"),
    "empty": (b"", "the file is empty"),
    "words": (b"some words and more words", "no checkpoint"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data, text = ERRORS[name]
    path = tmp_path / "m.pt"
    if data is not None:
        path.write_bytes(data)
    assert cli.main(["inspect", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("purestate: ")
    assert text in captured.err
    assert str(path) in captured.err


@pytest.mark.parametrize("arguments", [[], ["inspect"], ["frobnicate"], ["demo", "--epochs", "0"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: purestate" in capsys.readouterr().err


def modules_after(code: str) -> set[str]:
    """The top-level modules that are loaded after running ``code`` in a new process."""
    code = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


def test_inspect_starts_without_jax(checkpoint: Path) -> None:
    code = f"from bridge.cli import main; main(['inspect', {str(checkpoint)!r}])"
    heavy = {"jax", "jaxlib", "torch", "purestate", "equinox", "optax"}
    assert not heavy & modules_after(code)


def test_the_import_test_can_fail() -> None:
    assert "jax" in modules_after("import jax")
