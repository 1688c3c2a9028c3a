"""Sharded loads on eight virtual devices, and on two processes: each reads its own bytes only."""

from pathlib import Path

import pytest

from tests.benchmarks import files_sharded


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning:torch")

ROWS = 512
KINDS = files_sharded.KINDS


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sharded")
    return [files_sharded.write(kind, folder, ROWS) for kind in KINDS]


@pytest.mark.parametrize("processes", [1, 2])
def test_each_process_reads_its_own_bytes(
    paths: list[Path], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_sharded, "ROOM", 4 << 20)
    figures = files_sharded.run(processes, ROWS, paths, timeout=120)
    assert len(figures) == processes * len(KINDS) * len(files_sharded.LAYOUTS)
    total = files_sharded.LAYERS * ROWS * files_sharded.COLUMNS * 4
    for line in figures:
        assert files_sharded.faults(line) == [], line
        assert line["reported"] == line["own"]
        if line["layout"] in ("rows", "columns"):
            # So a limit on what is read is one: the share is well below the whole.
            assert line["own"] < total / processes + 200_000
        if line["layout"] == "one device" and line["file"] == "pt":
            # Aligned arrays are used where they lie.
            assert line["read"] < 200_000
            assert line["grown"] < 4 << 20
