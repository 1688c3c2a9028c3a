"""The ``purestate`` command.

Each subcommand imports what it needs when it runs, so that ``purestate inspect`` answers without
waiting for JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status.

    It is 0 when done; 1 when something failed, and one line on standard error says what; wrong usage
    exits with 2. ``diff`` is like the commands ``diff`` and ``cmp``: 0 when the files are equal, 1
    when they differ, 2 when something failed. ``verify`` gives 1 for a file that is damaged or no
    checkpoint, too.
    """
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    from bridge.checkpoint.errors import CheckpointError

    try:
        status = command(arguments)
        # Otherwise Python would notice a closed pipe at exit only, and complain.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output, such as ``head``, has seen enough. Python would complain once
        # more when it flushes at exit.
        sys.stdout = None
        return arguments.failed
    except (CheckpointError, OSError) as error:
        print(f"purestate: {_one_line(error)}", file=sys.stderr)
        return arguments.failed


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.strerror}: {error.filename!r}"
    else:
        text = str(error)
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return shown.encode("ascii", "backslashreplace").decode("ascii")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="purestate",
        description="PyTorch's nn.Module system rebuilt the functional way in JAX.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_demo(commands)
    _add_inspect(commands)
    _add_convert(commands)
    _add_diff(commands)
    _add_verify(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser("demo", help="train a small model and carry it to PyTorch's files")
    demo.add_argument("--out", metavar="DIR", type=Path, help="where to put the demo's files (here)")
    demo.add_argument("--epochs", metavar="N", type=_positive, help="how long to train")
    demo.set_defaults(command=_demo, failed=1)


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    inspect = commands.add_parser("inspect", help="list what a checkpoint file holds")
    inspect.add_argument("file", metavar="FILE", help="a checkpoint file, or a folder of them")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of tables")
    inspect.set_defaults(command=_inspect, failed=1)


def _add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser(
        "convert",
        help="write a checkpoint in another format, dtype or under other names",
        description="Write a checkpoint again. The suffix of OUT says how: .safetensors, or "
        "PyTorch's for .pt, .pth, .bin and .ckpt. OUT may be IN.",
    )
    convert.add_argument("source", metavar="IN", help="a checkpoint file, or a folder of them")
    convert.add_argument(
        "target", metavar="OUT", help="the file to write; with --shard-size, or a folder"
    )
    convert.add_argument(
        "--dtype",
        metavar="DTYPE",
        type=_dtype,
        help="cast floating-point tensors: bfloat16 (or bf16), float16 (half), float32, ...",
    )
    convert.add_argument(
        "--rename",
        metavar="OLD=NEW",
        type=_pair,
        action="append",
        default=[],
        help="a name, a module's path, or a prefix that ends in a dot; the first that fits applies",
    )
    convert.add_argument(
        "--shard-size", metavar="SIZE", type=_size, help="bytes of tensors a file may hold, as 5GB"
    )
    convert.add_argument("--key", metavar="KEY", help="which state dict in the file is meant")
    convert.add_argument(
        "--ties",
        choices=["all", "canonical"],
        default="all",
        help="in .safetensors, write a tied tensor under all names, or under the first",
    )
    convert.add_argument("--digests", action="store_true", help="write the SHA-256 of each tensor")
    convert.add_argument(
        "--drop-others", action="store_true", help="leave out what OUT has no place for"
    )
    convert.add_argument("--json", action="store_true", help="print JSON instead of tables")
    convert.set_defaults(command=_convert, failed=1)


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diff = commands.add_parser(
        "diff",
        help="compare two checkpoints in structure and values",
        description="Compare two checkpoints. The exit status is 0 if they are equal, bit by bit or "
        "within the tolerances, 1 if they differ, and 2 if they could not be compared.",
    )
    diff.add_argument("a", metavar="A", help="a checkpoint file, or a folder of them")
    diff.add_argument("b", metavar="B", help="another")
    diff.add_argument("--key", metavar="KEY", help="compare only this part, of each that has it")
    diff.add_argument(
        "--rtol", metavar="R", type=_tolerance, help="numbers may differ by R times B's number"
    )
    diff.add_argument("--atol", metavar="A", type=_tolerance, help="numbers may differ by A")
    diff.add_argument(
        "--ignore",
        metavar="WHAT",
        action="append",
        choices=["dtypes", "order", "ties", "versions", "others"],
        default=[],
        help="what may differ: dtypes, order, ties, versions or others (what is no tensor: the other "
        "values of a .pt file, the text table of a .safetensors file)",
    )
    diff.add_argument("--json", action="store_true", help="print JSON instead of tables")
    diff.set_defaults(command=_diff, failed=2)


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verify = commands.add_parser("verify", help="check a checkpoint's structure, checksums and digests")
    verify.add_argument("file", metavar="FILE", help="a checkpoint file, or a folder of them")
    verify.add_argument("--json", action="store_true", help="print JSON instead of tables")
    verify.set_defaults(command=_verify, failed=1)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _tolerance(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError("must be a number from 0")
    return number


def _dtype(text: str) -> object:
    from bridge._float_names import float_named

    try:
        return float_named(text)
    except TypeError as error:
        raise argparse.ArgumentTypeError(str(error).replace("\n    ", "; ")) from error


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old:
        raise argparse.ArgumentTypeError("must be OLD=NEW, as in module=")
    return old, new


def _size(text: str) -> int:
    from bridge.checkpoint._write_shards import size_in_bytes

    try:
        return size_in_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _demo(arguments: argparse.Namespace) -> int:
    from bridge.demo import run

    options = {"out": arguments.out, "epochs": arguments.epochs}
    return run(**{name: value for name, value in options.items() if value is not None})


def _inspect(arguments: argparse.Namespace) -> int:
    from bridge._inspect import inspect_file, print_listing
    from bridge._tables import json_text

    listing = inspect_file(arguments.file)
    if arguments.json:
        print(json_text(listing.to_json()))
    else:
        print_listing(listing)
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    from bridge._convert import Options, convert, print_report
    from bridge._tables import json_text

    options = Options(
        dtype=arguments.dtype,
        rename=arguments.rename,
        shard_size=arguments.shard_size,
        key=arguments.key,
        ties=arguments.ties,
        digests=arguments.digests,
        drop_others=arguments.drop_others,
    )
    report = convert(arguments.source, arguments.target, options)
    if arguments.json:
        print(json_text(report.to_json()))
    else:
        print_report(report)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    from bridge._diff import diff, print_differences
    from bridge._diff_numbers import Tolerance
    from bridge._tables import json_text

    exact = arguments.rtol is None and arguments.atol is None
    tolerance = None if exact else Tolerance(arguments.rtol or 0.0, arguments.atol or 0.0)
    found = diff(arguments.a, arguments.b, tolerance, key=arguments.key, ignored=arguments.ignore)
    if arguments.json:
        print(json_text(found.to_json()))
    else:
        print_differences(found)
    return 0 if found.equal else 1


def _verify(arguments: argparse.Namespace) -> int:
    from bridge._tables import json_text
    from bridge._verify_files import print_verdicts, verify

    verdicts = verify(arguments.file)
    if arguments.json:
        print(json_text(verdicts.to_json()))
    else:
        print_verdicts(verdicts)
    return 0 if verdicts.intact else 1


if __name__ == "__main__":
    sys.exit(main())
