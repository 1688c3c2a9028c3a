"""A process that is killed while it saves leaves the old file or the new one."""

from pathlib import Path

import numpy as np

from tests.hostile import killed_saves


def test_a_killed_save_leaves_a_whole_file(tmp_path: Path) -> None:
    outcomes = list(killed_saves.kills(12, 1, tmp_path))
    assert {outcome.found for outcome in outcomes} <= {"old", "new"}, outcomes
    assert {outcome.kind for outcome in outcomes} == set(killed_saves.KINDS)


def test_what_is_not_whole_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    killed_saves.save(killed_saves.content(3), path)
    assert killed_saves.judge("pt", tmp_path, 3) == "old"
    assert killed_saves.judge("pt", tmp_path, 2) == "new"
    assert killed_saves.judge("pt", tmp_path, 5) == "save 3 after 5"
    mixed = {**killed_saves.content(3), "layer.2": killed_saves.content(4)["layer.2"]}
    killed_saves.save(mixed, path)
    assert killed_saves.judge("pt", tmp_path, 3) == "layer.2 is not of save 3"
    killed_saves.save({"number": np.array(3)}, path)
    assert killed_saves.judge("pt", tmp_path, 3) == "names ['number']"
    path.write_bytes(path.read_bytes()[:-50])
    assert killed_saves.judge("pt", tmp_path, 3).startswith("unreadable")
