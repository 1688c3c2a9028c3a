"""Whether checkpoint files are whole and unchanged: the ``purestate verify`` command.

Three things are checked: that the structure can be read and fits the file (names, shapes, places), that
the records' checksums agree, and that the tensors' digests do, where a file has them. A file without
either is not found intact, only not found damaged, and it is said what has nothing to check by. A file
that is no checkpoint, or one that is not supported, is not called damaged. Of a folder each file is
checked, and what they are together: the files that an index names (a folder may have one for each
format), the sets whose names count, and links to nothing.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bridge._entries import TENSORS, entries_of
from bridge._tables import count, line, table
from bridge.checkpoint._dcp import is_dcp
from bridge.checkpoint._files import evidence_of, is_too_short, read_content
from bridge.checkpoint._folders import incomplete, indices_in
from bridge.checkpoint.errors import CheckpointError, NotACheckpoint, Unsafe, Unsupported


_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pth.tar", ".pt2")
_INDICES = (".index.json",)

# The worst first.
_FAULTS = ("damaged", "unsafe", "not supported", "not a checkpoint")


@dataclass
class Verdict:
    """What was found of one file, or of a folder as a whole.

    Attributes:
        file: Its path.
        format: Its format; "" if its structure could not be read.
        tensors: How many tensors it holds.
        agree: Records or tensors to the means that found them unchanged: "crc32" or "sha256".
        disagree: Records or tensors to the means that found them changed.
        unchecked: Records or tensors that have neither checksum nor digest.
        error: What is wrong with the structure, or "".
        fault: What that makes of the file: one of "damaged", "unsafe", "not supported" and "not a
            checkpoint", or "".
    """

    file: str
    format: str = ""
    tensors: int = 0
    agree: dict[str, str] = field(default_factory=dict)
    disagree: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    error: str = ""
    fault: str = ""

    @property
    def intact(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not self.fault


@dataclass
class Verdicts:
    """What was found of all files that were looked at."""

    files: list[Verdict]

    @property
    def intact(self) -> bool:
        """Whether nothing was found to be wrong with any."""
        return all(verdict.intact for verdict in self.files)

    @property
    def fault(self) -> str:
        """The worst that was found of any, or ""."""
        found = {verdict.fault for verdict in self.files}
        return next((fault for fault in _FAULTS if fault in found), "")

    def to_json(self) -> dict[str, Any]:
        """Return the verdicts as JSON values."""
        return {
            "intact": self.intact,
            "fault": self.fault,
            "files": [vars(verdict) | {"intact": verdict.intact} for verdict in self.files],
        }


def verify(path: str) -> Verdicts:
    """Check a checkpoint file, or each file of a folder and the folder.

    Raises:
        OSError: If there is no such file, or it cannot be read.
    """
    if not stat.S_ISDIR(os.stat(path).st_mode):
        return Verdicts([_verdict(path)])
    with os.scandir(path) as entries:
        found = sorted((e.name, e.is_file()) for e in entries if e.name.endswith(_SUFFIXES + _INDICES))
    # What is neither a file nor a link to one may be a folder, which is nothing of ours.
    gone = [name for name, _ in found if not os.path.exists(os.path.join(path, name))]
    names = [name for name, is_file in found if is_file and name.endswith(_SUFFIXES)]
    verdicts = [_verdict(os.path.join(path, name)) for name in names]
    verdicts += [_gone(os.path.join(path, name)) for name in gone]
    if is_dcp(path):
        return Verdicts([*verdicts, _verdict(path)])
    indices = indices_in(path)
    verdicts += [_structure(os.path.join(path, name)) for name in indices]
    # Without an index, files in one folder need not belong together, unless their names say so.
    for error in incomplete(names, indices):
        verdicts.append(Verdict(path, error=str(error.locate(file=path)), fault="damaged"))
    return Verdicts(verdicts or [_structure(path)])


def _gone(path: str) -> Verdict:
    error = f"this is a link to nothing, in {path!r}. Fetch the file that it shows"
    return Verdict(path, error=error, fault="damaged")


def _verdict(path: str) -> Verdict:
    verdict = _structure(path)
    if verdict.fault == "not a checkpoint":
        return verdict
    try:
        found = evidence_of(path)
    except CheckpointError as error:
        verdict.error = verdict.error or str(error)
        verdict.fault = verdict.fault or _fault(error, path)
        return verdict
    verdict.agree, verdict.disagree, verdict.unchecked = found.agree, found.disagree, found.unchecked
    if found.disagree:
        verdict.fault = "damaged"
    return verdict


def _structure(path: str) -> Verdict:
    try:
        content = read_content(path, skim=True)
    except CheckpointError as error:
        return Verdict(path, error=str(error), fault=_fault(error, path))
    leaves = entries_of(content.value).leaves
    tensors = sum(isinstance(entry.value, TENSORS) for entry in leaves)
    return Verdict(path, content.format, tensors)


def _fault(error: CheckpointError, path: str) -> str:
    match error:
        case NotACheckpoint():
            return "not a checkpoint"
        case Unsupported():
            return "not supported"
        case Unsafe():
            return "unsafe"
    return "not a checkpoint" if os.path.isfile(path) and is_too_short(path) else "damaged"


def print_verdicts(verdicts: Verdicts) -> None:
    """Print verdicts for people."""
    changed = [(v.file, name, means) for v in verdicts.files for name, means in v.disagree.items()]
    for verdict in verdicts.files:
        if verdict.fault != "not a checkpoint":
            kind = verdict.format or "structure not readable"
            line(f"{verdict.file}: {kind}, {count(verdict.tensors, 'tensor')}: {_summary(verdict)}")
        if verdict.error:
            line(f"{verdict.fault}: {' '.join(verdict.error.split())}")
    if changed:
        several = len(verdicts.files) > 1
        rows = [row if several else row[1:] for row in changed]
        table(["file", "changed", "by its"] if several else ["changed", "by its"], rows)
    line(verdicts.fault or "nothing wrong was found")


def _summary(verdict: Verdict) -> str:
    parts = [
        f"{found:,} unchanged by {means}"
        for means, found in sorted(Counter(verdict.agree.values()).items())
    ]
    parts += [f"{len(verdict.disagree):,} changed"] if verdict.disagree else []
    if verdict.unchecked:
        parts.append(
            f"{len(verdict.unchecked):,} with nothing to check by ({_some(verdict.unchecked)})"
        )
    return ", ".join(parts) or "structure only"


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])}, ..."
