"""What saving costs, against ``torch.save`` and safetensors' own writer.

Each save is a process of its own: it makes the arrays, notes its CPU time and peak memory, saves over
the file that the last one left, and notes them again. In every round all writers save the same arrays,
in a shuffled order, and a figure is the median of the rounds' ratios. CPU seconds count user and
system time; what is written is forced to disk by our writer and not by the others.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


ROUNDS = 7

#: Task to the arrays' count and shape, and the most that our CPU time may be over the reference's.
TASKS: dict[str, tuple[int, tuple[int, ...], float | None]] = {
    "1 GB in 291 tensors": (291, (920, 1000), 1.0),
    "20,000 small tensors": (20_000, (4, 8), 1.0),
}

_MAKE = """
import os, resource, sys, time
import numpy as np
rng = np.random.default_rng(0)
names = [f"layers.{{at // 6}}.block.{{at % 6}}.weight" for at in range({count})]
arrays = {{name: rng.random({shape}, np.float32) for name in names}}
{prepare}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, wall = os.times(), time.perf_counter()
{save}
stop = os.times()
cpu = stop.user + stop.system - start.user - start.system
usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(cpu, time.perf_counter() - wall, usage / 1024, (usage - peak) / 1024)
"""


class Writer(NamedTuple):
    """A way to save.

    Attributes:
        name: What the table calls it.
        suffix: Of the file.
        prepare: Statements that are not measured.
        save: The statement that is, with ``arrays`` and ``path``.
        reference: The name of the writer that it is compared with.
    """

    name: str
    suffix: str
    prepare: str
    save: str
    reference: str


_TORCH = "import torch; arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}"
_OURS = "from bridge.checkpoint import save"

WRITERS = [
    Writer("torch.save", ".pt", _TORCH, "torch.save(arrays, path)", "torch.save"),
    Writer("bridge .pt", ".pt", _OURS, "save(arrays, path)", "torch.save"),
    Writer("bridge .pt, digests", ".pt", _OURS, "save(arrays, path, digests=True)", "torch.save"),
    Writer(
        "safetensors.torch",
        ".safetensors",
        _TORCH + "; from safetensors.torch import save_file",
        "save_file(arrays, path)",
        "safetensors.torch",
    ),
    Writer("bridge .safetensors", ".safetensors", _OURS, "save(arrays, path)", "safetensors.torch"),
]


class Sample(NamedTuple):
    """One save.

    Attributes:
        cpu: CPU seconds, user and system.
        wall: Seconds.
        peak: The most memory the process had, in MiB.
        more: How much of it the save added.
    """

    cpu: float
    wall: float
    peak: float
    more: float


def sample(writer: Writer, count: int, shape: tuple[int, ...], folder: Path) -> Sample:
    """Save once, in a fresh interpreter."""
    program = f"path = {str(folder / ('m' + writer.suffix))!r}" + _MAKE.format(
        shape=shape, count=count, prepare=writer.prepare, save=writer.save
    )
    # Else a save would pay for what the one before has left to be written.
    os.sync()
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return Sample(*map(float, run.stdout.split()))


def measure(
    count: int, shape: tuple[int, ...], *, rounds: int = ROUNDS, folder: Path, seed: int = 0
) -> dict[str, list[Sample]]:
    """Return each writer's samples, one a round."""
    shuffler = random.Random(seed)
    order = list(WRITERS)
    samples: dict[str, list[Sample]] = {writer.name: [] for writer in WRITERS}
    for _ in range(rounds):
        shuffler.shuffle(order)
        for writer in order:
            samples[writer.name].append(sample(writer, count, shape, folder))
    return samples


def ratio(samples: dict[str, list[Sample]], writer: Writer) -> float:
    """Return the median over rounds of a writer's CPU time over its reference's."""
    pairs = zip(samples[writer.name], samples[writer.reference], strict=True)
    return statistics.median(ours.cpu / theirs.cpu for ours, theirs in pairs)


def rows(samples: dict[str, list[Sample]]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of a table."""
    for writer in WRITERS:
        mine = samples[writer.name]
        cpu, wall, peak, more = (statistics.median(column) for column in zip(*mine, strict=True))
        low, high = min(one.cpu for one in mine), max(one.cpu for one in mine)
        over = f"{ratio(samples, writer):.2f}"
        seconds = f"{cpu:.2f} ({low:.2f} to {high:.2f})"
        yield writer.name, seconds, f"{wall:.2f}", f"{peak:.0f}", f"{more:+.0f}", over


def main(arguments: list[str]) -> None:
    """Print the tables; exit with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks files_save", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, help="on which disk; the system's temporary folder")
    options = parser.parse_args(arguments)
    missed = []
    for task, (count, shape, goal) in TASKS.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            samples = measure(count, shape, rounds=options.rounds, folder=Path(folder))
        table = Table("writer", "CPU s", "wall s", "peak MiB", "of it the save", "CPU over", title=task)
        for row in rows(samples):
            table.add_row(*row)
        Console().print(table)
        found = ratio(samples, WRITERS[1])
        if goal is not None and found > goal:
            missed.append(f"{task}: {found:.2f} of torch.save's CPU time; the goal is {goal}")
    if missed:
        print(*missed, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
