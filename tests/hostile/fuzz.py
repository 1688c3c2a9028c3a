"""``python -m tests.hostile fuzz``: thousands of damaged files, each read in every way.

For each file one of these must come of it:

- *refused*: ``load`` raises a ``CheckpointError``;
- *same*: it is read, and holds what the undamaged file held;
- *honest*: it is read, holds something else, and torch reads the same from it;
- *numbers*: it is read, torch refuses it, and only numbers inside arrays differ.

And always: no other exception, no crash, at most a second of CPU time, and no more memory than the
file's size and 64 MiB; a copying and a verifying read give what the plain read gives or refuse, and
``inspect`` raises nothing else either. Each case is a function of (format, seed, number), so any
finding can be made again: ``--start NUMBER --count 1 --keep FOLDER``.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.hostile.cases import Corpus
from tests.hostile.processes import Died, Helper
from tests.hostile.seeds import FORMATS, make_seeds
from tests.hostile.worker import ALLOWANCE


SECONDS = 1.0
_PATIENCE = 30.0
_SHOWN = 50


class Asked(Protocol):
    """Something that judges a case when asked."""

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the verdict on the case of this key."""
        ...


@dataclass
class Tally:
    """What came of one format's cases.

    Attributes:
        format: The format.
        outcomes: How many were refused, the same, honest, numbers or failed.
        errors: How many of each error class.
        failures: The key of each failed case, and what happened.
        slowest: The most CPU seconds any way of reading took.
        largest: The most bytes any way of reading took beyond the file's size.
    """

    format: str
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0

    def fail(self, key: str, what: str) -> None:
        """Note a failed case."""
        self.outcomes["FAILED"] += 1
        self.failures.append((key, what))


class Fuzzer:
    """Reads damaged files in helper processes.

    Args:
        folder: An empty folder for seeds and work.
    """

    def __init__(self, folder: Path) -> None:
        self._seeds_at, self._work = folder / "seeds", folder / "work"
        self._seeds_at.mkdir()
        self._work.mkdir()
        self._seeds = make_seeds(self._seeds_at)

    def corpus(self, format: str) -> Corpus:
        """The seeds of a format."""
        return Corpus(self._seeds_at, self._rows(format))

    def _rows(self, format: str) -> list[tuple[int, str, dict[str, str]]]:
        return [
            (number, seed.target, seed.kinds)
            for number, seed in enumerate(self._seeds)
            if seed.format == format
        ]

    def run(self, format: str, seed: int, numbers: range) -> Tally:
        """Read the cases ``numbers`` of a format."""
        tally = Tally(format)
        rows = self._rows(format)
        setup = {"folder": str(self._seeds_at), "seeds": rows, "work": str(self._work)}
        with (
            Helper("tests.hostile.worker", setup) as worker,
            Helper("tests.hostile.judge", setup) as judge,
        ):
            try:
                originals = {n: worker.ask(f"original {n}", _PATIENCE) for n, *_ in rows}
            except Died as death:
                tally.fail(f"{format} originals", str(death))
                return tally
            for number, answer in originals.items():
                if problem := _unread(answer):
                    tally.fail(f"original {number}", problem)
            for number in numbers:
                key = f"{format} {seed} {number}"
                try:
                    answer = worker.ask(key, _PATIENCE)
                except Died as death:
                    tally.fail(key, str(death))
                    continue
                self.judge(tally, answer, originals[answer["seed"]], judge)
        return tally

    def judge(self, tally: Tally, answer: dict[str, Any], original: Any, judge: Asked) -> None:
        """Note what came of one case."""
        key, ways = answer["key"], answer["ways"]
        tally.slowest = max([tally.slowest, *(way["seconds"] for way in ways.values())])
        growth = max(way["growth"] for way in ways.values()) - answer["size"]
        tally.largest = max(tally.largest, growth)
        if problem := next(_broken(answer), ""):
            tally.fail(key, problem)
            return
        load = ways["load"]
        if load["outcome"] != "read":
            tally.outcomes["refused"] += 1
            tally.errors[load["outcome"]] += 1
            return
        if load["text"] == original["ways"]["load"]["text"]:
            tally.outcomes["same"] += 1
            return
        try:
            verdict = judge.ask(key, 2 * _PATIENCE)
        except Died as death:
            verdict = {"verdict": "refuses", "why": f"torch: {death}"}
        if verdict["verdict"] == "agrees":
            tally.outcomes["honest"] += 1
        elif verdict["verdict"] == "refuses" and load["shape"] == original["ways"]["load"]["shape"]:
            tally.outcomes["numbers"] += 1
        else:
            tally.fail(key, f"read, but torch {verdict['verdict']}: {verdict['why']}")


def _unread(answer: dict[str, Any]) -> str:
    for way, seen in answer["ways"].items():
        if seen["outcome"] != "read":
            return f"the undamaged file: {way} gave {seen['outcome']}: {seen['text']}"
    return next(_broken(answer), "")


def _broken(answer: dict[str, Any]) -> Iterator[str]:
    """What no file may do, whatever it holds."""
    ways = answer["ways"]
    for way, seen in ways.items():
        if seen["outcome"].startswith("!"):
            yield f"{way} raised {seen['outcome'][1:]}: {seen['text']}"
        if seen["seconds"] > SECONDS:
            yield f"{way} took {seen['seconds']:.1f} s"
        if seen["growth"] > answer["size"] + ALLOWANCE:
            yield f"{way} took {seen['growth'] >> 20} MiB for a file of {answer['size']} bytes"
    load = ways["load"]
    for way in ("copy", "verify"):
        seen = ways[way]
        if load["outcome"] != "read" and seen["outcome"] == "read":
            yield f"load refuses ({load['text']}), but {way} reads"
        if load["outcome"] == seen["outcome"] == "read" and load["text"] != seen["text"]:
            yield f"load and {way} give different data"
    if load["outcome"] == "read" and ways["copy"]["outcome"] != "read":
        yield f"load reads, but copy refuses: {ways['copy']['text']}"


def print_table(tallies: list[Tally]) -> None:
    """Print a line for each format, then every failure."""
    columns = ("refused", "same", "honest", "numbers", "FAILED")
    print(f"{'format':<12}{'files':>8}" + "".join(f"{name:>9}" for name in columns), end="")
    print(f"{'max CPU s':>11}{'max MiB':>9}  errors")
    for tally in tallies:
        counts = "".join(f"{tally.outcomes[name]:>9}" for name in columns)
        errors = ", ".join(f"{name} {count}" for name, count in tally.errors.most_common())
        total = sum(tally.outcomes.values())
        print(f"{tally.format:<12}{total:>8}{counts}", end="")
        print(f"{tally.slowest:>11.2f}{max(tally.largest, 0) / 2**20:>9.1f}  {errors}")
    for tally in tallies:
        for key, what in tally.failures[:_SHOWN]:
            print(f"FAILED {key}: {what}")
        if len(tally.failures) > _SHOWN:
            print(f"... and {len(tally.failures) - _SHOWN} more of {tally.format}")


def main(arguments: list[str]) -> None:
    """Run the command; exit with 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the number of the first file")
    parser.add_argument("--format", choices=FORMATS, action="append", help="one format; may repeat")
    parser.add_argument("--keep", type=Path, help="an existing folder for the files that failed")
    options = parser.parse_args(arguments)
    tallies = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as work:
        warnings.simplefilter("ignore")
        fuzzer = Fuzzer(Path(work))
        for format in options.format or FORMATS:
            numbers = range(options.start, options.start + options.count)
            tally = fuzzer.run(format, options.seed, numbers)
            tallies.append(tally)
            print(f"{format}: {sum(tally.outcomes.values())} files", file=sys.stderr, flush=True)
            for key, _ in tally.failures if options.keep else ():
                if key.startswith(format):
                    target = options.keep / key.replace(" ", "-")
                    target.mkdir(exist_ok=True)
                    fuzzer.corpus(format).case(key).write(target)
    print_table(tallies)
    sys.exit(any(tally.failures for tally in tallies))
