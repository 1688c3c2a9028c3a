"""``python -m tests.hostile pickles``: files that were made to hurt, and what came of each.

The classes are those of the attacks that are public: names that run code, by every opcode that can
reach one; the names that got past scanners; bombs of memory, time and stack; tensors that point out
of their storage; archives that show two readers two contents; tables that lie or point elsewhere.

Each file is read in a process with an audit hook. While it is read, Python's own audit events say
what happens: an import, a compiled or executed code object, a started program, a connection, a file
opened other than the one that is read. Any such event fails the case, whatever ``load`` raised. A
hostile file must be *refused*: every way of reading raises a ``CheckpointError``. A file that only
names classes nobody has heard of, or that would grow where it is read carelessly, is *inert*: it may
also be read, as placeholders and as views.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile import forged_archives, forged_bulk, forged_programs, forged_tables
from tests.hostile.forgery import Forgery
from tests.hostile.processes import Died, Helper
from tests.hostile.worker import ALLOWANCE


#: A reader needs about a microsecond for an opcode, and an opcode may be one byte.
SECONDS, SECONDS_PER_BYTE = 1.0, 10e-6

#: What Python's own objects cost: what a file writes as lists and dictionaries comes as them.
BYTES_PER_OBJECT = 600


def forgeries() -> list[Forgery]:
    """Every hostile file."""
    found = [
        *forged_programs.forgeries(),
        *forged_archives.forgeries(),
        *forged_tables.forgeries(),
        *forged_bulk.forgeries(),
    ]
    names = Counter(forgery.id for forgery in found)
    assert max(names.values()) == 1, names.most_common(1)
    return found


@dataclass
class Verdicts:
    """What came of the files.

    Attributes:
        refused: How many of each class were refused.
        inert: How many of each class were read, and held nothing but placeholders.
        failures: Id and reason of each that did anything else.
        errors: How often each error class was raised.
    """

    refused: Counter[str] = field(default_factory=Counter)
    inert: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def read_all(cases: list[Forgery], folder: Path) -> Verdicts:
    """Read each file in a watched process."""
    verdicts = Verdicts()
    with Helper("tests.hostile.jail", {"folder": str(folder)}) as jail:
        for number, forgery in enumerate(cases):
            case = folder / str(number)
            case.mkdir()
            path = forgery.write(case)
            try:
                answer = jail.ask({"path": str(path)}, 30)
            except Died as death:
                verdicts.failures.append((forgery.id, str(death)))
                continue
            if problem := _problem(forgery, answer):
                verdicts.failures.append((forgery.id, problem))
            elif answer["ways"]["load"]["outcome"] == "read":
                verdicts.inert[forgery.kind] += 1
            else:
                verdicts.refused[forgery.kind] += 1
                verdicts.errors[answer["ways"]["load"]["outcome"]] += 1
    if canaries := sorted(str(path) for path in folder.rglob("canary*")):
        verdicts.failures.append(("canary", f"a file ran code: {canaries}"))
    return verdicts


def _problem(forgery: Forgery, answer: dict) -> str:
    if answer["events"]:
        return f"it caused {answer['events'][:3]}"
    for way, seen in answer["ways"].items():
        outcome = seen["outcome"]
        if outcome.startswith("!"):
            return f"{way} raised {outcome[1:]}: {seen['text']}"
        if seen["seconds"] > SECONDS + SECONDS_PER_BYTE * forgery.size:
            return f"{way} took {seen['seconds']:.1f} s"
        if seen["growth"] > forgery.size + ALLOWANCE + BYTES_PER_OBJECT * forgery.objects:
            return f"{way} took {seen['growth'] >> 20} MiB for {forgery.size} bytes"
        # A listing need not look at everything.
        if outcome == "read" and not forgery.inert and way != "inspect":
            return f"{way} reads it"
        if outcome != "read" and not seen["text"].startswith("'"):
            return f"the error of {way} does not name the file: {seen['text']}"
    return ""


def main(arguments: list[str]) -> None:
    """Run the command; exit with 1 if a file was not refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile pickles", description=__doc__)
    parser.add_argument("--only", default="", help="the cases whose id contains this")
    options = parser.parse_args(arguments)
    kinds: dict[str, list[Forgery]] = {}
    for forgery in forgeries():
        if options.only in forgery.id:
            kinds.setdefault(forgery.kind, []).append(forgery)
    print(f"{'class':<36}{'files':>6}{'refused':>9}{'inert':>7}{'FAILED':>8}")
    total, errors, failures = Counter[str](), Counter[str](), []
    for kind, cases in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            verdicts = read_all(cases, Path(folder))
        refused, inert = verdicts.refused.total(), verdicts.inert.total()
        total.update(files=len(cases), refused=refused, inert=inert)
        errors += verdicts.errors
        failures += verdicts.failures
        failed = len(verdicts.failures)
        print(f"{kind:<36}{len(cases):>6}{refused:>9}{inert:>7}{failed:>8}", flush=True)
    print(f"{'all':<36}{total['files']:>6}{total['refused']:>9}{total['inert']:>7}{len(failures):>8}")
    print(", ".join(f"{name} {count}" for name, count in errors.most_common()))
    for name, what in failures:
        print(f"FAILED {name}: {what}")
    sys.exit(bool(failures))
