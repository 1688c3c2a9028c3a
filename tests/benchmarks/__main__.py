"""``python -m tests.benchmarks NAME``: run one of the measurements."""

import argparse
import importlib


BENCHMARKS = ("dispatch", "imports")


def main() -> None:
    """Run the named benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    importlib.import_module(f"tests.benchmarks.{parser.parse_args().name}").main()


if __name__ == "__main__":
    main()
