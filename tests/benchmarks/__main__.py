"""``python -m tests.benchmarks NAME``: run one of the measurements."""

import argparse
import importlib


BENCHMARKS = ("dispatch", "eager", "files", "files_save", "files_sharded", "imports", "throughput")


def main() -> None:
    """Run the named benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the benchmark takes itself")
    options = parser.parse_args()
    importlib.import_module(f"tests.benchmarks.{options.name}").main(options.arguments)


if __name__ == "__main__":
    main()
