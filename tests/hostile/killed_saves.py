"""``python -m tests.hostile.killed_saves``: what is on disk when a save is killed.

A process saves one content after another to the same name. At a random moment it is killed with a
signal that it cannot catch. Then PyTorch's or safetensors' own reader opens what is there, and it must
be whole: the content of the last save that the process had announced, or of the next one. The next
process goes on with what is there, leftovers included.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridge.checkpoint import save


#: What is saved where, and how.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "pt": ("model.pt", {}),
    "safetensors": ("model.safetensors", {"digests": True}),
    "set": ("set/model.safetensors", {"shard_size": 700_000}),
}


class Outcome(NamedTuple):
    """What one kill left.

    Attributes:
        kind: One of :data:`KINDS`.
        found: "old", "new", or what else was there.
        within: Whether the process was killed within a save.
    """

    kind: str
    found: str
    within: bool


def content(number: int) -> dict[str, np.ndarray]:
    """About 2 MB that differ everywhere from those of other numbers."""
    arrays = {f"layer.{at}": np.full((4, 30_000), number + at, np.float32) for at in range(4)}
    return {**arrays, "tied": arrays["layer.0"], "number": np.array(number)}


def keep_saving(kind: str, folder: Path, number: int) -> None:
    """Save contents from ``number`` on, for ever, and print the number of each that is done."""
    name, options = KINDS[kind]
    (folder / name).parent.mkdir(exist_ok=True)
    # What was written outlives the process, on the disk or not. Waiting for the disk would take most
    # of the time, so that few kills met a write or a change of names.
    os.fsync = lambda descriptor: None
    while True:
        save(content(number), folder / name, **options)
        print(number, flush=True)
        number += 1


def killed(kind: str, folder: Path, number: int, delay: float) -> int:
    """Start a process, kill it some seconds after its first save, and return the last it announced."""
    saving = ["-m", "tests.hostile.killed_saves", "--save", kind, str(folder), str(number)]
    with subprocess.Popen([sys.executable, *saving], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        announced = process.stdout.readline()
        time.sleep(delay)
        process.kill()
        announced = ([announced, *process.stdout.read().splitlines()])[-1]
    return int(announced)


def on_disk(kind: str, folder: Path) -> dict[str, np.ndarray]:
    """Read what is there with the readers of others."""
    import torch
    from safetensors.numpy import load_file

    path = folder / KINDS[kind][0]
    if kind == "pt":
        theirs = torch.load(path, weights_only=True)
        return {name: tensor.numpy() for name, tensor in theirs.items()}
    if kind == "safetensors":
        return load_file(path)
    index = json.loads((path.parent / "model.safetensors.index.json").read_text())["weight_map"]
    files = {file: load_file(path.parent / file) for file in set(index.values())}
    return {name: files[file][name] for name, file in index.items()}


def judge(kind: str, folder: Path, announced: int) -> str:
    """Return "old" for the save that was announced last, "new" for the next, else what is wrong."""
    try:
        found = on_disk(kind, folder)
        number = int(found["number"])
    except Exception as error:
        return f"unreadable: {error!r}"
    expected = content(number)
    if found.keys() != expected.keys():
        return f"names {sorted(found)}"
    for name, array in expected.items():
        if found[name].tobytes() != array.tobytes():
            return f"{name} is not of save {number}"
    if number not in (announced, announced + 1):
        return f"save {number} after {announced}"
    return "new" if number > announced else "old"


def kills(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Kill ``count`` processes, the kinds by turns."""
    chance = random.Random(seed)
    following = dict.fromkeys(KINDS, 0)
    for at in range(count):
        kind = list(KINDS)[at % len(KINDS)]
        place = folder / kind
        place.mkdir(exist_ok=True)
        announced = killed(kind, place, following[kind], chance.uniform(0, 0.05))
        found = judge(kind, place, announced)
        following[kind] = announced + 2
        yield Outcome(kind, found, bool(leftovers(place)))
    for kind in {list(KINDS)[at % len(KINDS)] for at in range(count)}:
        name, options = KINDS[kind]
        save(content(0), folder / kind / name, **options)
        assert not leftovers(folder / kind), kind


def leftovers(folder: Path) -> list[Path]:
    """Files that a save has not finished or not removed yet."""
    return [*folder.rglob("*.tmp"), *folder.rglob("*-next*")]


def main(arguments: list[str]) -> int:
    """Run the command; return 1 if anything but an old or a new file was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.killed_saves", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.save:
        keep_saving(options.save[0], Path(options.save[1]), int(options.save[2]))
    tally: dict[tuple[str, str], int] = {}
    within = 0
    with tempfile.TemporaryDirectory() as folder:
        for outcome in kills(options.count, options.seed, Path(folder)):
            within += outcome.within
            key = outcome.kind, outcome.found
            tally[key] = tally.get(key, 0) + 1
    for (kind, found), times in sorted(tally.items()):
        print(f"{kind:12} {found:12} {times:4}")
    print(f"{options.count} kills, {within} of them within a save")
    return any(found not in ("old", "new") for _, found in tally)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
