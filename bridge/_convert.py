"""From one checkpoint format to another: the ``purestate convert`` command.

What was read is fitted to what is to be written before a byte is: which state dict is meant, what
the target has no place for, the new dtype, the new names. Arrays stay maps of the file they came
from until they are written, and the target is replaced in one step, so a file can be converted onto
itself.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bridge._cast import cast_all
from bridge._entries import TENSORS, dtype_name, entries_of
from bridge._fit import LEFT_OUT, fit
from bridge._names import rename
from bridge._state_dict_type import StateDict
from bridge._state_dicts import Path, at, dotted, find, listed, meant, replaced, state_dicts
from bridge._tables import count, line, size, table
from bridge._text_table import texts_of
from bridge.checkpoint._files import read_content
from bridge.checkpoint._save import save
from bridge.checkpoint.errors import BadFormat, Unwritable


SAFETENSORS = ".safetensors"
SUFFIXES = (SAFETENSORS, ".pt", ".pth", ".bin", ".ckpt", ".pth.tar")


@dataclass(frozen=True)
class Options:
    """What a conversion changes.

    Attributes:
        dtype: The new dtype of floating-point tensors, but for those of optimizers, or None.
        rename: Pairs of an old and a new name, as :func:`bridge.rename` takes them.
        shard_size: How many bytes of arrays a file may hold, or None for one file.
        key: Which state dict in the file is meant; None if there is one or all is wanted.
        ties: How a safetensors file has names of one tensor.
        digests: Whether to write digests.
        drop_others: Whether to leave out what the target has no place for.
    """

    dtype: np.dtype | None = None
    rename: Sequence[tuple[str, str]] = ()
    shard_size: int | str | None = None
    key: str | None = None
    ties: Literal["all", "canonical"] = "all"
    digests: bool = False
    drop_others: bool = False


@dataclass
class Report:
    """What a conversion did.

    Attributes:
        source: Path and format of what was read.
        target: The path of what was written.
        state_dict: The place of the state dict that was taken; None if all was.
        tensors: How many tensors were written, and their bytes; ties count once.
        cast: Names of the tensors that were cast, to their earlier dtype.
        overflowed: Names of tensors to how many of their numbers are beyond the new dtype: they became
            infinite, NaN, or its largest number.
        renamed: Old name to new name.
        dropped: What was left out, and what it is.
        notes: Sentences about what is odd in the source and does no harm.
    """

    source: tuple[str, str]
    target: str
    state_dict: str | None = None
    tensors: tuple[int, int] = (0, 0)
    cast: dict[str, str] = field(default_factory=dict)
    overflowed: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        source, tensors = self.source, self.tensors
        return vars(self) | {
            "source": {"file": source[0], "format": source[1]},
            "tensors": {"count": tensors[0], "bytes": tensors[1]},
        }


def convert(source: str, target: str, options: Options) -> Report:
    """Read a checkpoint and write it again.

    Args:
        source: A file or folder in any format that is read.
        target: A path with a suffix of ``SUFFIXES``; with a shard size, also a folder.
        options: What to change.

    Raises:
        CheckpointError: If the source cannot be read, or the target has no place for something.
        OSError: Likewise.
    """
    if options.shard_size is None and not target.endswith(SUFFIXES):
        raise Unwritable(
            f"{target!r} does not say a format",
            advice=f"Give it one of the suffixes {', '.join(SUFFIXES)}, or a --shard-size",
        )
    flat = options.shard_size is not None or target.endswith(SAFETENSORS)
    in_table = target.endswith(SAFETENSORS) or not target.endswith(SUFFIXES)
    content = read_content(source, copy=False)
    report = Report((source, content.format), target, notes=content.notes)
    value = content.value
    path = _chosen(value, source, target, options, flat)
    if flat or options.key is not None:
        report.state_dict = dotted(path) if path else None
        value, path = at(value, path), ()
    if flat and isinstance(value, TENSORS):
        raise Unwritable(
            f"{options.key or source!r} is one tensor, and {target!r} holds tensors by their names",
            advice="Take the state dict around it with --key, or write a .pt file",
        )
    fitted = fit(value, table=in_table, dtype=options.dtype)
    if fitted.unfit and not options.drop_others:
        raise _no_place(fitted.unfit, source, target)
    report.dropped = fitted.unfit
    if fitted.value is LEFT_OUT or (flat and not fitted.value):
        raise Unwritable("nothing is left to write", file=source)
    new = _cast(fitted.value, options.dtype, report)
    value = fit(value, table=in_table, dtype=options.dtype, new=new).value
    if options.rename:
        value = replaced(value, path, _renamed(at(value, path), options.rename, report))
    written = {id(entry.value): entry.value for entry in entries_of(value).leaves}
    sizes = [found.nbytes for found in written.values() if isinstance(found, np.ndarray)]
    report.tensors = len(sizes), sum(sizes)
    save(
        value,
        target,
        metadata=texts_of(content) if in_table else None,
        digests=options.digests,
        ties=options.ties,
        shard_size=options.shard_size,
    )
    return report


def _no_place(unfit: dict[str, str], source: str, target: str) -> Unwritable:
    names = "; ".join(f"{name!r} is {what}" for name, what in unfit.items())
    return Unwritable(
        f"{target!r} has no place for {count(len(unfit), 'value')}: {names}",
        advice="Add --drop-others to leave them out, or take a state dict with --key",
        file=source,
    )


def _cast(value: Any, dtype: np.dtype | None, report: Report) -> dict[int, np.ndarray]:
    """Return the arrays that are to be put in the place of others, by the ``id`` of those.

    What belongs to an optimizer keeps its dtype: PyTorch's optimizers count steps in float32, and
    bfloat16 cannot count to 257.
    """
    if dtype is None:
        return {}
    first: dict[int, tuple[str, np.ndarray]] = {}
    for entry in entries_of(value).leaves:
        if isinstance(entry.value, np.ndarray) and not entry.in_optimizer:
            first.setdefault(id(entry.value), (entry.name, entry.value))
    casts = cast_all([array for _, array in first.values()], dtype)
    for key, found in casts.items():
        name, array = first[key]
        report.cast[name] = dtype_name(array.dtype)
        if found.overflowed:
            report.overflowed[name] = found.overflowed
    return {key: found.array for key, found in casts.items()}


def _chosen(value: Any, source: str, target: str, options: Options, flat: bool) -> Path:
    """Return the way to the state dict that is to be written or renamed."""
    if options.key is not None:
        path = find(value, options.key)
        if path is None:
            known = state_dicts(value)
            raise BadFormat(
                f"there is no {options.key!r} in the file",
                advice=f"It has state dicts under {listed(known)}" if known else "",
                file=source,
            )
        return path
    if not flat and not options.rename:
        return ()
    found = meant(value)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        if isinstance(value, dict) and value and not flat:
            return ()
        raise Unwritable(
            "the file holds no state dict, a dictionary from names to tensors",
            advice="purestate inspect lists what it holds",
            file=source,
        )
    name = next(dotted(path) for path in found if path)
    command = shlex.join(["purestate", "convert", source, target, "--key", name])
    raise Unwritable(
        f"the file holds {len(found)} state dicts ({listed(found)})",
        advice=f"Say which one, as in: {command}",
        file=source,
    )


def _renamed(value: Any, rules: Sequence[tuple[str, str]], report: Report) -> Any:
    if not isinstance(value, dict) or any(type(name) is not str for name in value):
        raise Unwritable("only the names of a state dict can be changed", advice="Name it with --key")
    try:
        result, done = rename(value, rules)
    except ValueError as error:
        raise Unwritable(str(error)) from error
    if done.unused_rules:
        raise Unwritable(
            f"no name is matched by --rename {', '.join(map(repr, done.unused_rules))}",
            advice="purestate inspect lists the names",
        )
    report.renamed = done.renamed
    if isinstance(value, StateDict):
        return result
    return dict(result)


def print_report(report: Report) -> None:
    """Print a report for people."""
    if report.state_dict is not None:
        line(f"took the state dict {report.state_dict!r}")
    if report.cast:
        earlier = ", ".join(f"{found} {name}" for name, found in Counter(report.cast.values()).items())
        line(f"cast {count(len(report.cast), 'tensor')} (of {earlier})")
    if report.renamed:
        line(f"renamed {count(len(report.renamed), 'name')}")
    if report.overflowed:
        worst = sorted(report.overflowed.items(), key=lambda item: -item[1])
        total = sum(report.overflowed.values())
        line(f"{count(total, 'number')} beyond the new dtype: infinite, NaN or its largest number now")
        table(("tensor", "numbers"), [(name, f"{found:,}") for name, found in worst], right=["numbers"])
    if report.dropped:
        line(f"left out {count(len(report.dropped), 'value')}")
        table(("entry", "what it is"), list(report.dropped.items()))
    for note in report.notes:
        line(note)
    tensors, nbytes = report.tensors
    source, kind = report.source
    line(f"{source} ({kind}) -> {report.target}: {count(tensors, 'tensor')}, {size(nbytes)}")
