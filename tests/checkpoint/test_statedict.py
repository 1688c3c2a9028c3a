"""StateDict keeps its order and metadata through every way of copying it."""

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from bridge._state_dict_type import StateDict


METADATA = {"": {"version": 1}, "norm": {"version": 2}}

COPIES: dict[str, Callable[[StateDict], Any]] = {
    "copy method": lambda sd: sd.copy(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda sd: pickle.loads(pickle.dumps(sd)),
    "constructor": StateDict,
    "union": lambda sd: sd | {},
    "reflected union": lambda sd: {} | sd,
}


def make() -> StateDict:
    return StateDict([("b", [1]), ("a", [2])], metadata=METADATA)


@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str) -> None:
    original = make()
    duplicate = COPIES[name](original)
    assert type(duplicate) is StateDict
    assert list(duplicate.items()) == [("b", [1]), ("a", [2])]
    assert duplicate.metadata == METADATA
    duplicate.metadata["norm"]["version"] = 3
    duplicate["c"] = 1
    assert original.metadata == METADATA
    assert "c" not in original
    assert (duplicate["b"] is original["b"]) == (name not in ("deepcopy", "pickle"))


def test_union_joins_metadata() -> None:
    other = StateDict({"c": 3}, metadata={"norm": {"version": 5}, "new": {"version": 1}})
    assert (make() | other).metadata == {**METADATA, **other.metadata}
    updated = make()
    updated |= other
    assert list(updated) == ["b", "a", "c"]
    assert updated.metadata["norm"] == {"version": 5}


def test_plain_construction_and_equality() -> None:
    assert StateDict().metadata == {}
    from_keys: Any = StateDict.fromkeys("ab")
    assert from_keys.metadata == {}
    assert StateDict({"a": 1}) == {"a": 1}
    with pytest.raises(TypeError):
        operator.or_(StateDict(), [1])
