"""Saving is measured as it says, and the exit status tells whether the goals are met."""

import pytest

from tests.benchmarks import files_save


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """Three small tensors, and the two writers of PyTorch files."""
    monkeypatch.setattr(files_save, "WRITERS", files_save.WRITERS[:2])

    def put(goal: float) -> None:
        monkeypatch.setattr(files_save, "TASKS", {"small": (3, (4, 8), goal)})

    return put


def test_a_goal_is_met_or_missed(small, capsys: pytest.CaptureFixture[str]) -> None:
    small(1e9)
    files_save.main(["--rounds", "1"])
    assert "missed" not in capsys.readouterr().out
    small(-1.0)
    with pytest.raises(SystemExit) as error:
        files_save.main(["--rounds", "1"])
    assert error.value.code == 1
    assert "the goal is -1.0" in capsys.readouterr().out


def test_a_figure_is_the_median_of_paired_ratios() -> None:
    def samples(*seconds: float) -> list[files_save.Sample]:
        return [files_save.Sample(cpu, 0, 0, 0) for cpu in seconds]

    found = {"torch.save": samples(1, 10, 2), "bridge .pt": samples(2, 5, 3)}
    assert files_save.ratio(found, files_save.WRITERS[1]) == 1.5
