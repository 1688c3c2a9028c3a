"""Files from strangers: every command does its work or says in one line why not, harmlessly."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bridge import cli
from bridge._entries import entries_of
from bridge._state_dicts import find
from tests.command_line import done, failed, json_of


FILES = 30


class Odd:
    pass


def original(kind: str) -> bytes:
    """A file with a bit of everything, in one of the formats."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(2, 3)
    model = torch.nn.Sequential(linear, torch.nn.BatchNorm1d(3))
    content = {
        "model": model.state_dict(),
        "tied": [linear.weight, linear.weight.t()],
        "half": torch.ones(2, 2).half(),
        "sparse": torch.eye(2).to_sparse(),
        "odd": Odd(),
        "plain": {1: (2.5, None, True), "text": "\x1b[31m", (1, 2): {3}},
    }
    path = Path(f"{kind}.pt")
    torch.save(
        model if kind == "module" else content, path, _use_new_zipfile_serialization=kind != "legacy"
    )
    return path.read_bytes()


def mutated(data: bytes, rng: random.Random) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(result))
        match rng.randrange(4):
            case 0:
                del result[at : at + rng.randrange(1, 40)]
            case 1:
                result[at:at] = result[rng.randrange(len(result)) :][:30]
            case _:
                result[at] = rng.randrange(256)
    return bytes(result)


@pytest.mark.parametrize("kind", ["zip", "legacy", "module"])
def test_every_command_survives_damaged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    data = original(kind)
    rng = random.Random(kind)
    commands = [
        ["inspect", "bad"],
        ["verify", "bad"],
        ["diff", "bad", f"{kind}.pt"],
        ["convert", "bad", "out.pt", "--drop-others", "--dtype", "f16"],
        ["convert", "bad", "out.safetensors", "--key", "model", "--drop-others"],
    ]
    seen = set()
    for _ in range(FILES):
        Path("bad").write_bytes(mutated(data, rng))
        for command in commands:
            status = cli.main(command)
            captured = capsys.readouterr()
            seen.add((command[0], status))
            assert captured.out.replace("\n", "").isprintable()
            assert captured.err.count("\n") == (0 if captured.out else 1)
            assert captured.err.rstrip("\n").isprintable()
    assert {("inspect", 1), ("verify", 1), ("diff", 2), ("convert", 1)} <= seen
    assert cli.main(["inspect", f"{kind}.pt"]) == 0


def test_a_module_with_anything_for_its_set_of_buffers_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.BatchNorm1d(2)
    object.__setattr__(model, "_non_persistent_buffers_set", Odd())
    torch.save(model, tmp_path / "m.pt")
    listing = json_of(capsys, "inspect", tmp_path / "m.pt")
    assert [row["name"] for row in listing["tensors"]] == list(torch.nn.BatchNorm1d(2).state_dict())


def around_itself() -> dict[str, Any]:
    value: dict[str, Any] = {"w": torch.ones(2)}
    value[""] = value
    return value


def twice_under_one_name(levels: int) -> dict[Any, Any]:
    """A few bytes a level, and each level twice the places of the one below."""
    value: dict[Any, Any] = {"w": torch.ones(2)}
    for _ in range(levels):
        value = {"1": value, 1: value}
    return value


@pytest.mark.parametrize("value", [around_itself(), twice_under_one_name(40)], ids=["cycle", "doubled"])
def test_a_container_is_walked_once_whatever_its_places_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(value, "e.pt")
    start = time.monotonic()
    listing = json_of(capsys, "inspect", "e.pt")
    assert [row["shape"] for row in listing["tensors"]] == [[2]]
    done(capsys, "verify", "e.pt")
    done(capsys, "convert", "e.pt", "out.pt")
    done(capsys, "diff", "e.pt", "out.pt")
    assert "there is no" in failed(capsys, "convert", "e.pt", "x.pt", "--key", "1." * 40 + "x")
    assert time.monotonic() - start < 5


def test_many_places_of_one_name_are_numbered_in_time() -> None:
    value = [{"x.y": 1, "x": {"y": 2}} for _ in range(3)]
    assert [entry.name for entry in entries_of(value).leaves][:2] == ["0.x.y", "0.x.y (2)"]
    # Keys whose short texts are the same.
    alike = {b"k" * 100 + str(index).encode(): index for index in range(20_000)}
    start = time.monotonic()
    names = [entry.name for entry in entries_of(alike).leaves]
    assert len(set(names)) == 20_000
    assert time.monotonic() - start < 5


def test_a_long_list_that_is_met_often_is_looked_through_once() -> None:
    start = time.monotonic()
    assert len(entries_of([list(range(20_000))] * 20_000).leaves) == 20_000
    assert time.monotonic() - start < 5


def test_a_key_is_looked_up_in_time() -> None:
    start = time.monotonic()
    assert find(twice_under_one_name(40), "1." * 40 + "x") is None
    assert time.monotonic() - start < 5
