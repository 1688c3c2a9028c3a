"""``python -m tests.hostile NAME``: damage files, forge them, or kill a save, on a large scale."""

import argparse
import importlib


COMMANDS = ("fuzz", "pickles", "killed_saves")


def main() -> None:
    """Run the named command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the command takes itself")
    options = parser.parse_args()
    importlib.import_module(f"tests.hostile.{options.name}").main(options.arguments)


if __name__ == "__main__":
    main()
