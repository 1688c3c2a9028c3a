"""Files from strangers: every command does its work or says in one line why not, harmlessly."""

import random
from pathlib import Path

import pytest
import torch

from bridge import cli
from tests.command_line import json_of


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
