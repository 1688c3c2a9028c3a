"""The ``purestate`` command.

Each subcommand imports what it needs when it runs, so that ``purestate inspect`` answers without
waiting for JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_FILE = "a file of any format, a folder of shards, or an index of one; its content tells which"


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
    except (CheckpointError, OSError, MemoryError) as error:
        print(f"purestate: {_one_line(error)}", file=sys.stderr)
        return arguments.failed


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.strerror}: {error.filename!r}"
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory. {error}"
    else:
        text = str(error)
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return shown.encode("ascii", "backslashreplace").decode("ascii")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="purestate",
        description="PyTorch's nn.Module system rebuilt the functional way in JAX. These commands "
        "read and write checkpoint files of PyTorch and safetensors, without torch and without "
        "running anything that is in them.",
        epilog="What a command takes: purestate convert --help. The exit status is 0 when done, 1 "
        "when something failed (diff: when the files differ), and 2 for wrong usage (diff: for "
        "failures, too).",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_demo(commands)
    _add_inspect(commands)
    _add_convert(commands)
    _add_diff(commands)
    _add_verify(commands)
    return parser


def _add_demo(commands: _Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="train a small model and carry it to PyTorch's files",
        description="Read a checkpoint that torch wrote, train on it, write it back, and show where "
        "each tensor of the model belongs. Needs JAX.",
    )
    demo.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="the folder for digits.pt and digits.safetensors, as in /tmp/demo; else the current one",
    )
    demo.add_argument(
        "--epochs", metavar="N", type=_positive, help="how often to go through the data, as in 2"
    )
    demo.set_defaults(command=_demo, failed=1)


def _add_inspect(commands: _Commands) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="list what a checkpoint file holds",
        description="List names, shapes, dtypes, ties and versions, and what is no tensor. The "
        "numbers are not read.",
        epilog="Example: purestate inspect model.safetensors",
    )
    inspect.add_argument("file", metavar="FILE", help=_FILE)
    _add_json(inspect)
    inspect.set_defaults(command=_inspect, failed=1)


def _add_convert(commands: _Commands) -> None:
    convert = commands.add_parser(
        "convert",
        help="write a checkpoint in another format, dtype or under other names",
        description="Write a checkpoint again, in one step. Order, ties and versions are kept where "
        "the format has a place for them; what OUT has no place for is an error that names it.",
        epilog="Example: purestate convert run.ckpt model.safetensors --key state_dict --rename "
        "model= --dtype bf16",
    )
    convert.add_argument("source", metavar="IN", help=_FILE)
    convert.add_argument(
        "target",
        metavar="OUT",
        help="the file to write, which may be IN; .safetensors is that format; .pt, .pth, .bin, .ckpt "
        "and .pth.tar are PyTorch's; with --shard-size also a folder",
    )
    convert.add_argument(
        "--dtype",
        metavar="DTYPE",
        type=_dtype,
        help="cast floating-point tensors, but for an optimizer's, as in bf16: float64, float32, "
        "float16, bfloat16, float8_e4m3fn, float8_e5m2 and others, or short (double, fp32, half, "
        "fp8_e4m3)",
    )
    convert.add_argument(
        "--rename",
        metavar="OLD=NEW",
        type=_pair,
        action="append",
        default=[],
        help="change names; OLD is a name (as in fc.weight=head.weight), a module's path (as in "
        "model.encoder=encoder, or as in module= to take it away), or a prefix that ends in a dot (as "
        "in layer.=layer_); may be given more than once, and the first that fits a name applies",
    )
    convert.add_argument(
        "--shard-size",
        metavar="SIZE",
        type=_size,
        help="write several files with an index, each with at most so many bytes of tensors, as in "
        "5GB, as in 500MiB or as in 1000000",
    )
    convert.add_argument(
        "--key",
        metavar="KEY",
        help="write this part of IN only, by the dotted name that inspect shows, as in state_dict or "
        "as in models.0; needed where a file has several state dicts and OUT holds one",
    )
    convert.add_argument(
        "--ties",
        choices=["all", "canonical"],
        default="all",
        help="in .safetensors, write a tied tensor under all its names (all, which is the default), "
        "or under the first, with a note of the others, as safetensors' save_model does (canonical)",
    )
    convert.add_argument(
        "--digests",
        action="store_true",
        help="write the SHA-256 of each tensor into OUT, for verify to check",
    )
    convert.add_argument(
        "--drop-others",
        action="store_true",
        help="leave out what OUT has no place for, and list it, where it would be an error",
    )
    _add_json(convert)
    convert.set_defaults(command=_convert, failed=1)


def _add_diff(commands: _Commands) -> None:
    diff = commands.add_parser(
        "diff",
        help="compare two checkpoints in structure and values",
        description="Compare names, shapes, dtypes, order, ties, versions, numbers, and what is no "
        "tensor: the other values of a .pt file, and the text table (__metadata__) of a .safetensors "
        "file, both of which count as differences. What one of the two formats has no place for is "
        "not compared, and that is said. The exit status is 0 if they are equal, bit by bit or within "
        "the tolerances, 1 if they differ, and 2 if they could not be compared.",
        epilog="Example: purestate diff a.pt b.safetensors --rtol 0.01 --ignore dtypes",
    )
    diff.add_argument("a", metavar="A", help=_FILE)
    diff.add_argument("b", metavar="B", help="another, in the same format or in another one")
    diff.add_argument(
        "--key",
        metavar="KEY",
        help="compare this part only, of each that has it, by its dotted name, as in state_dict; text "
        "tables are then not compared",
    )
    diff.add_argument(
        "--rtol",
        metavar="R",
        type=_tolerance,
        help="numbers may differ by R times the size of B's number, as in 0.01; with --atol by the "
        "sum of both; without either, bits are compared",
    )
    diff.add_argument(
        "--atol", metavar="A", type=_tolerance, help="numbers may differ by A, as in 1e-6"
    )
    diff.add_argument(
        "--ignore",
        metavar="WHAT",
        action="append",
        choices=["dtypes", "order", "ties", "versions", "others"],
        default=[],
        help="what does not count as a difference, as in dtypes: one of dtypes, order (of the "
        "tensors), ties, versions (of modules) and others (what is no tensor, text tables too); may "
        "be given more than once",
    )
    _add_json(diff)
    diff.set_defaults(command=_diff, failed=2)


def _add_verify(commands: _Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="check a checkpoint's structure, checksums and digests",
        description="Check that the structure can be read and fits the file, and that its bytes agree "
        "with the checksums and digests in it, where it has any. The exit status is 0 if nothing "
        "wrong was found, and 1 if a file is damaged, unsafe, not supported or not a checkpoint, or "
        "cannot be read.",
        epilog="Example: purestate verify model.pt",
    )
    verify.add_argument("file", metavar="FILE", help=f"{_FILE}; of a folder, every file is checked")
    _add_json(verify)
    verify.set_defaults(command=_verify, failed=1)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print one JSON object, for programs, in place of tables"
    )


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
