"""Saving is measured as it says, and the exit status tells whether the goals are met."""

import pytest

from tests.benchmarks import files_save


def samples(*seconds: float) -> list[files_save.Sample]:
    return [files_save.Sample(cpu, 0, 0, 0) for cpu in seconds]


def test_a_goal_is_met_or_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(count: int, shape: object, *, rounds: int, folder: object) -> dict:
        return {
            writer.name: samples(*[1 + at] * rounds) for at, writer in enumerate(files_save.WRITERS)
        }

    monkeypatch.setattr(files_save, "measure", half)
    monkeypatch.setattr(files_save, "TASKS", {"small": (3, (4, 8), 2.0)})
    files_save.main(["--rounds", "1"])
    assert "the goal is" not in capsys.readouterr().out
    monkeypatch.setattr(files_save, "TASKS", {"small": (3, (4, 8), 1.9)})
    with pytest.raises(SystemExit) as error:
        files_save.main(["--rounds", "1"])
    assert error.value.code == 1
    assert "2.00 of torch.save's CPU time; the goal is 1.9" in capsys.readouterr().out


def test_a_figure_is_the_median_of_paired_ratios() -> None:
    found = {"torch.save": samples(1, 10, 2), "bridge .pt": samples(2, 5, 3)}
    assert files_save.ratio(found, files_save.WRITERS[1]) == 1.5
