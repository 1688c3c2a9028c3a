"""The command line: ``purestate inspect`` lists a file fast, exactly and harmlessly."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from bridge import cli
from bridge.checkpoint import _source, _tensors, save
from bridge.checkpoint._source import FileBytes
from tests.command_line import HEAVY, done, json_of, modules_after, modules_after_command


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
        "numbers": 20,
        "bytes": 80,
        "kind": "dense",
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
    assert "parameter: 1 tensor, 6 numbers, 48 B" in text
    assert "buffer: 1 tensor, 4 numbers, 32 B" in text


def test_a_bare_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(torch.ones(3), tmp_path / "m.pt")
    assert cli.main(["inspect", str(tmp_path / "m.pt")]) == 0
    assert "parameter: 1 tensor, 3 numbers" in capsys.readouterr().out


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


def test_inspect_starts_without_jax(checkpoint: Path) -> None:
    loaded = modules_after_command("inspect", checkpoint)
    assert not HEAVY & loaded
    # Nothing that only a terminal or a writer needs, either: a listing is there at once.
    assert not {"rich", "secrets", "tarfile", "tempfile"} & loaded


def test_the_import_test_can_fail() -> None:
    assert "jax" in modules_after("import jax")
    assert "rich" in modules_after("import rich")


class Scripted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(2, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) + self.mean


class Tagged(torch.nn.Linear):
    """A class that is no module of PyTorch's own, with an attribute of another class."""

    tag: object


class Tag:
    pass


def rows_of(listing: Any) -> dict[str, tuple[int, ...]]:
    return {row["name"]: tuple(row["shape"]) for row in listing["tensors"]}


def shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_are_listed_by_their_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Scripted().eval()
    torch.jit.save(torch.jit.script(model), tmp_path / "script.pt")
    program = torch.export.export(model, (torch.ones(1, 2),))
    torch.export.save(program, tmp_path / "program.pt2")
    for name, kind in (("script.pt", "TorchScript"), ("program.pt2", "exported program")):
        listing = json_of(capsys, "inspect", tmp_path / name)
        assert listing["format"] == kind
        assert rows_of(listing) == shapes(model)


def test_classes_that_are_not_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"model": Tagged(2, 2), "tag": Tag(), "lr": np.float64(0.5)}, tmp_path / "m.pt")
    listing = json_of(capsys, "inspect", tmp_path / "m.pt")
    assert rows_of(listing) == {"model.weight": (2, 2), "model.bias": (2,)}
    assert [name.rpartition(".")[2] for name in listing["not_read"]] == ["Tag", "Tagged"]
    assert listing["others"]["lr"] == repr(np.float64(0.5))
    text = done(capsys, "inspect", tmp_path / "m.pt")
    assert re.search(r"^classes that were not read: .*\.Tag, .*\.Tagged$", text, re.MULTILINE)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_that_are_not_dense_have_a_row_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        "q": torch.quantize_per_tensor(torch.zeros(3, 4), 0.1, 2, torch.qint8),
        "s": torch.eye(3).to_sparse(),
        "m": torch.empty(2, 3, device="meta", dtype=torch.bfloat16),
        "n": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "h": torch.zeros(2, dtype=torch.complex32),
    }
    torch.save(content, tmp_path / "m.pt")
    listing = json_of(capsys, "inspect", tmp_path / "m.pt")
    assert [(row["name"], row["shape"], row["dtype"], row["kind"]) for row in listing["tensors"]] == [
        ("q", [3, 4], "qint8", "quantized"),
        ("s", [3, 3], "float32", "sparse"),
        ("m", [2, 3], "bfloat16", "meta"),
        ("n", [5], "float32", "nested"),
        ("h", [2], "complex32", "dense"),
    ]
    assert [row["numbers"] for row in listing["tensors"]] == [12, 3, 0, 5, 2]
    assert re.search(
        r"^q +\(3, 4\) +qint8 .* quantized$", done(capsys, "inspect", tmp_path / "m.pt"), re.M
    )


def test_counters_cannot_hold_the_listing_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value: list[object] = [1]
    for _ in range(60):
        value = [value, value]
    content = {"counts": Counter(a=cast("int", value)), "plain": Counter("aab")}
    torch.save(content, tmp_path / "m.pt")
    others = json_of(capsys, "inspect", tmp_path / "m.pt")["others"]
    assert others["plain"] == "Counter({'a': 2, 'b': 1})"


def test_names_that_two_places_have_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"a.b": 1, "a": {"b": 2}}, tmp_path / "m.pt")
    others = json_of(capsys, "inspect", tmp_path / "m.pt")["others"]
    assert others == {"a.b": "1", "a.b (2)": "2"}


def test_lines_stay_whole_unless_a_terminal_is_narrow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a.very.long.name." * 10 + "[bold]end[/bold]\x1b[31m"
    torch.save({name: torch.ones(1)}, tmp_path / "m.pt")
    assert name[:-6] in done(capsys, "inspect", tmp_path / "m.pt")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # A terminal without colours, of which rich takes 80 columns.
    monkeypatch.setenv("TERM", "dumb")
    text = done(capsys, "inspect", tmp_path / "m.pt")
    table = text.splitlines()[1:-1]
    assert max(map(len, table)) <= 80
    assert "\x1b" not in text
    assert "[bold]end[/bold]" in "".join(line.split(" ")[0] for line in table)


def test_a_reader_that_goes_away_is_no_error(checkpoint: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m bridge.cli inspect {shlex.quote(str(checkpoint))}"
    # The pipe is closed before the command writes to it.
    line = f"(sleep 0.2; {command}; echo $? >&2) | true"
    run = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert run.stderr == "1\n"


def test_letters_that_the_output_lacks_are_escaped(tmp_path: Path) -> None:
    torch.save({"größe": torch.ones(1)}, tmp_path / "m.pt")
    command = [sys.executable, "-m", "bridge.cli", "inspect", str(tmp_path / "m.pt")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    run = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert rb"gr\xf6\xdfe " in run.stdout
    assert run.stderr == b""


COMMANDS = ["demo", "inspect", "convert", "diff", "verify"]
NEEDED = {"convert": ["IN", "OUT"], "diff": ["A", "B"], "demo": []}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_says_what_it_takes_and_its_examples_are_taken(command: str) -> None:
    parser = cli._parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    own = commands[command]
    assert own.description
    for action in own._actions:
        assert action.help
        if action.option_strings and action.nargs != 0 and action.choices is None:
            examples = re.findall(r"\bas in ([^\s,;:)]+)", action.help)
            assert examples, action.dest
            for text in examples:
                arguments = NEEDED.get(command, ["FILE"])
                parser.parse_args([command, *arguments, action.option_strings[0], text])
        elif action.choices is not None:
            assert all(choice in action.help for choice in action.choices)
    if example := own.epilog:
        assert example.startswith("Example: purestate ")
        parser.parse_args(shlex.split(example)[2:])
    assert bool(own.epilog) == (command != "demo")


def test_every_command_is_in_the_help_of_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n    {command} " in text for command in COMMANDS)
    assert "exit status" in text
