"""The comparison with torch finds every kind of difference: it can fail."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bridge
from bridge import StateDict
from tests.corpora.truth import Stub, assert_agree, read_by_torch


def theirs() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = model.state_dict()
    state["tied"] = state["0.weight"]
    base = torch.arange(6.0)
    return {
        "state": state,
        "base": base,
        "view": base[2:4],
        "n": 1,
        "names": ["a", "b"],
        "list": (1, 2),
    }


def tied_no_more(ours: dict[str, Any]) -> None:
    ours["state"]["tied"] = ours["state"]["tied"].copy()


def one_bit(ours: dict[str, Any]) -> None:
    changed = ours["base"].copy()
    changed.view(np.uint8)[5] ^= 1
    ours["base"] = changed
    ours["view"] = changed[2:4]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no tie": tied_no_more,
    "one bit": one_bit,
    "dtype": lambda ours: ours.update(base=ours["base"].view("i4"), view=ours["view"].view("i4")),
    "shape": lambda ours: ours.update(view=ours["view"].reshape(1, 2)),
    "byte order": lambda ours: ours.update(base=ours["base"].view(">f4")),
    "missing": lambda ours: ours.pop("n"),
    "unexpected": lambda ours: ours.update(m=1),
    "order": lambda ours: ours.update(base=ours.pop("base")),
    "order in a state dict": lambda ours: ours["state"].update({"0.bias": ours["state"].pop("0.bias")}),
    "metadata": lambda ours: ours["state"].metadata.update({"1": {"version": 1}}),
    "plain dictionary": lambda ours: ours.update(state=dict(ours["state"])),
    "tuple": lambda ours: ours.update(list=[1, 2]),
    "truth for one": lambda ours: ours.update(n=True),
    "text": lambda ours: ours["names"].reverse(),
}


def test_what_was_read_agrees(tmp_path: Path) -> None:
    torch.save(theirs(), tmp_path / "m.pt")
    assert_agree(bridge.load(tmp_path / "m.pt"), read_by_torch(tmp_path / "m.pt"))


@pytest.mark.parametrize("change", CHANGES)
def test_every_difference_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "m.pt"
    torch.save(theirs(), path)
    ours = bridge.load(path)
    CHANGES[change](ours)
    with pytest.raises(AssertionError):
        assert_agree(ours, read_by_torch(path))


def test_memory_that_is_shared_without_a_tie_is_found() -> None:
    block = np.arange(6, dtype=np.float32)
    block.flags.writeable = False
    both = {"a": torch.arange(6.0)[:4].clone(), "b": torch.arange(6.0)[2:].clone()}
    with pytest.raises(AssertionError, match="share memory"):
        assert_agree({"a": block[:4], "b": block[2:]}, both)


def test_the_stubs_of_torch_run_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return print, ("the file ran code",)

    torch.save({"x": Runs()}, tmp_path / "m.pt")
    assert isinstance(read_by_torch(tmp_path / "m.pt")["x"], Stub)
    assert capsys.readouterr().out == ""


def test_a_state_dict_is_no_plain_dictionary() -> None:
    state = OrderedDict(a=torch.ones(1))
    array = np.ones(1, np.float32)
    array.flags.writeable = False
    assert_agree(StateDict({"a": array}), state)
    with pytest.raises(AssertionError):
        assert_agree({"a": array}, state)
