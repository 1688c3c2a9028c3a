"""What ``import purestate`` costs over ``import jax``, in fresh interleaved processes."""

import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table


PROGRAM = """
import time
start = time.process_time()
{statement}
print(time.process_time() - start)
"""

STATEMENTS = {
    "jax": "import jax",
    "jax, then purestate": "import jax, purestate",
    "jax, then purestate and bridge": "import jax, purestate, bridge",
    "jax, then equinox": "import jax, equinox",
}


def seconds(statement: str) -> float:
    """CPU seconds of an import statement in a fresh interpreter."""
    program = PROGRAM.format(statement=statement)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(result.stdout)


ROUNDS = 7


def main(arguments: list[str]) -> None:
    """Print the table; there are no arguments."""
    del arguments
    samples: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(ROUNDS):
        for name, statement in STATEMENTS.items():
            samples[name].append(seconds(statement))
    table = Table("import", "CPU s (median)", "over jax (median of pairs)")
    for name, values in samples.items():
        over = statistics.median(a - b for a, b in zip(values, samples["jax"], strict=True))
        table.add_row(name, f"{statistics.median(values):.3f}", f"{over:+.3f}")
    Console().print(table)
