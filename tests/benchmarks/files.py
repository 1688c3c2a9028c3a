"""Reading and writing checkpoint files against PyTorch and safetensors, in fresh interleaved processes.

``python -m tests.benchmarks files`` makes the files (1 GB of 300 float32 tensors, and 20,000 small
tensors) in a temporary folder, and reads each in every round once with every reader, the page cache
warm. A process imports its libraries, then loads, then uses every tensor for the first time: it
touches one byte of each page, without which a reader that maps the file would have done nothing.
CPU seconds and the growth of memory are of loading and that use together. Ratios are medians of
pairs from one round. The last column is the time to add up all numbers afterwards.

Memory is told in two ways: what the process owns at most (anonymous memory), and everything that is
resident, which counts the pages of a mapped file too; those are the page cache's and are given back
when memory is short.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


MAKE = """
import sys, torch
from safetensors.torch import save_file
folder = sys.argv[1]
torch.manual_seed(0)
large = {f"{i}.weight": torch.randn(920, 970) for i in range(int(sys.argv[2]))}
small = {f"{i}.weight": torch.randn(8, 8) for i in range(int(sys.argv[3]))}
for name, tensors in {"large": large, "small": small}.items():
    torch.save(tensors, f"{folder}/{name}.pt")
    save_file(tensors, f"{folder}/{name}.safetensors")
"""

PROGRAM = """
import gc, resource, sys, time
import numpy as np
path = sys.argv[1]
{imports}

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def as_numpy(array):
    return array.numpy() if hasattr(array, "numpy") else np.asarray(array)

owned, resident = anonymous(), peak()
start = time.process_time()
loaded = {load}
arrays = [as_numpy(array).reshape(-1).view(np.uint8) for array in loaded]
for array in arrays:
    array[::4096].max()
seconds = time.process_time() - start
owned, resident = anonymous() - owned, peak() - resident
start = time.process_time()
for array in arrays:
    array.view(np.float32).sum()
print(seconds, owned, resident, time.process_time() - start)
"""

MODEL = """
import jax, bridge, purestate as ps
from purestate import nn
shapes = [array.shape for array in bridge.load(path).values()]
model = nn.ModuleList([nn.Linear(*reversed(shape), bias=False) for shape in shapes])
jax.device_put(0)
load_checkpoint = bridge.load_checkpoint  # bridge imports what it needs when it is asked
"""
JAX = "import jax, bridge; jax.device_put(0); load = bridge.load"

READERS: dict[str, tuple[str, str, str]] = {
    "torch.load": (".pt", "import torch", "torch.load(path, weights_only=True).values()"),
    "torch.load, mmap": (".pt", "import torch", "torch.load(path, mmap=True).values()"),
    "bridge.load to NumPy": (".pt", "from bridge import checkpoint", "checkpoint.load(path).values()"),
    "bridge.load to JAX": (".pt", JAX, "jax.device_put(list(load(path).values()))"),
    "bridge.load_checkpoint": (
        ".pt",
        MODEL,
        "jax.tree.leaves(load_checkpoint(model, path)[0])",
    ),
    "safetensors.torch": (
        ".safetensors",
        "from safetensors.torch import load_file",
        "load_file(path).values()",
    ),
    "safetensors.numpy": (
        ".safetensors",
        "from safetensors.numpy import load_file",
        "load_file(path).values()",
    ),
    "safetensors.flax": (
        ".safetensors",
        "import jax; from safetensors.flax import load_file; jax.device_put(0)",
        "load_file(path).values()",
    ),
    "bridge.load to NumPy, safetensors": (
        ".safetensors",
        "from bridge import checkpoint",
        "checkpoint.load(path).values()",
    ),
    "bridge.load_checkpoint, safetensors": (
        ".safetensors",
        MODEL,
        "jax.tree.leaves(load_checkpoint(model, path)[0])",
    ),
}

REFERENCES = {".pt": "torch.load", ".safetensors": "safetensors.flax"}


class Sample(NamedTuple):
    """One process: CPU seconds to load, owned and resident MB, CPU seconds to add all numbers."""

    seconds: float
    owned: float
    resident: float
    adding: float


def sample(reader: str, folder: Path, size: str) -> Sample:
    """Read one file in a fresh process."""
    suffix, imports, load = READERS[reader]
    program = PROGRAM.format(imports=imports, load=load)
    command = [sys.executable, "-W", "ignore", "-c", program, str(folder / (size + suffix))]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Sample(*map(float, result.stdout.split()))


def main(arguments: list[str]) -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks files", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--readers", default="", help="those whose names contain this, and the references"
    )
    parser.add_argument("--large", type=int, default=300, help="how many tensors of 3.6 MB")
    parser.add_argument("--small", type=int, default=20_000, help="how many tensors of 256 bytes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = [str(options.large), str(options.small)]
        subprocess.run([sys.executable, "-c", MAKE, name, *counts], check=True)
        for size in ("large", "small"):
            samples = _samples(folder, size, options.rounds, options.readers)
            Console(width=120).print(_table(size, samples))


def _samples(folder: Path, size: str, rounds: int, wanted: str) -> dict[str, list[Sample]]:
    order = [name for name in READERS if wanted in name or name in REFERENCES.values()]
    if size == "small":
        # A model of 20,000 layers takes longer to build than anything here.
        order = [name for name in order if "load_checkpoint" not in name]
    result: dict[str, list[Sample]] = {reader: [] for reader in order}
    for _ in range(rounds):
        random.shuffle(order)
        for reader in order:
            result[reader].append(sample(reader, folder, size))
    return result


def _table(size: str, samples: dict[str, list[Sample]]) -> Table:
    table = Table(f"{size} file", "CPU s", "ratio", "to", "owned MB", "resident MB", "adding, CPU s")
    for reader, found in samples.items():
        reference = REFERENCES[READERS[reader][0]]
        pairs = zip(found, samples[reference], strict=True)
        ratio = statistics.median(ours.seconds / theirs.seconds for ours, theirs in pairs)
        middle = Sample(*(statistics.median(column) for column in zip(*found, strict=True)))
        table.add_row(
            reader,
            f"{middle.seconds:.3f}",
            f"{ratio:.2f}",
            reference,
            f"{middle.owned:.0f}",
            f"{middle.resident:.0f}",
            f"{middle.adding:.3f}",
        )
    return table
