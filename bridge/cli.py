"""The ``purestate`` command.

Each subcommand imports what it needs when it runs, so that ``purestate inspect`` answers without
waiting for JAX.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status (0 done, 1 failed; wrong usage exits with 2)."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    from bridge.checkpoint.errors import CheckpointError

    try:
        return command(arguments)
    except BrokenPipeError:
        # The reader of our output, such as ``head``, has seen enough. Python would complain once
        # more when it flushes at exit.
        sys.stdout = None
        return 1
    except (CheckpointError, OSError) as error:
        print(f"purestate: {_one_line(error)}", file=sys.stderr)
        return 1


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.strerror}: {error.filename!r}"
    else:
        text = str(error)
    return " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="purestate",
        description="PyTorch's nn.Module system rebuilt the functional way in JAX.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser("demo", help="train a small model and carry it to PyTorch's files")
    demo.add_argument("--out", metavar="DIR", type=Path, help="where to put the demo's files (here)")
    demo.add_argument("--epochs", metavar="N", type=_positive, help="how long to train")
    demo.set_defaults(command=_demo)

    inspect = commands.add_parser("inspect", help="list what a checkpoint file holds")
    inspect.add_argument("file", metavar="FILE", help="a .pt, .pth, .bin or .safetensors file")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of tables")
    inspect.set_defaults(command=_inspect)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _demo(arguments: argparse.Namespace) -> int:
    from bridge.demo import run

    options = {"out": arguments.out, "epochs": arguments.epochs}
    return run(**{name: value for name, value in options.items() if value is not None})


def _inspect(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from bridge._inspect import inspect_file, print_listing

    listing = inspect_file(arguments.file)
    if arguments.json:
        print(json.dumps(listing.to_json(), indent=2))
    else:
        print_listing(listing, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
