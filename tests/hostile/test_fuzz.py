"""A few hundred damaged files of each format; the command reads thousands."""

import pytest

from tests.hostile.fuzz import Fuzzer, Tally
from tests.hostile.seeds import FORMATS


COUNT = 300


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Fuzzer:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files_are_refused_or_read_right(fuzzer: Fuzzer, format: str) -> None:
    tally = fuzzer.run(format, 0, range(COUNT))
    assert tally.failures == []
    assert sum(tally.outcomes.values()) == COUNT
    # The damage is neither too gentle nor only at the gate.
    assert tally.outcomes["refused"] > COUNT // 4
    assert tally.outcomes["same"] + tally.outcomes["honest"] > 0


def test_a_case_is_a_function_of_its_key(fuzzer: Fuzzer) -> None:
    for format in FORMATS:
        one, other = (fuzzer.corpus(format).case(f"{format} 0 7") for _ in range(2))
        assert one == other
        assert one.files != fuzzer.corpus(format).original(one.seed).files


def test_a_reader_that_returns_other_data_is_found(fuzzer: Fuzzer) -> None:
    """A wrong answer for an undamaged file is a failure: the check can fail."""
    (seed, *_), *_ = fuzzer.corpus("zip").seeds
    ways = {
        way: {"outcome": "read", "text": "a", "shape": "a", "seconds": 0.0, "growth": 0}
        for way in ("load", "copy", "verify", "inspect")
    }
    original = {"key": f"original {seed}", "seed": seed, "size": 1, "ways": ways}
    for way, change in [
        ("copy", {"text": "b"}),
        ("verify", {"outcome": "!KeyError"}),
        ("inspect", {"seconds": 9.0}),
        ("load", {"growth": 1 << 30}),
        ("load", {"outcome": "BadFormat"}),
    ]:
        answer = original | {"key": "zip 0 0", "ways": ways | {way: ways[way] | change}}
        tally = Tally("zip")
        fuzzer.judge(tally, answer, original, _NoJudge())
        assert tally.outcomes["FAILED"] == 1, (way, change)


class _NoJudge:
    def ask(self, question: object, seconds: float) -> dict[str, str]:
        del question, seconds
        return {"verdict": "differs", "why": "it does"}
