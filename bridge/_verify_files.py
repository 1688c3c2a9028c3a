"""Whether checkpoint files are whole and unchanged: the ``purestate verify`` command.

Three things are checked: that the structure can be read and fits the file (names, shapes, places), that
the records' checksums agree, and that the tensors' digests do, where a file has them. A file without
either is not found intact, only not found damaged, and it is said what has nothing to check by. Of a
folder each file is checked, and if it has an index, the folder as a whole: the files that it names.
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
from bridge.checkpoint._files import evidence_of, read_content
from bridge.checkpoint.errors import CheckpointError


_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pth.tar", ".pt2")
_INDEXES = (".index.json", ".metadata")


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
    """

    file: str
    format: str = ""
    tensors: int = 0
    agree: dict[str, str] = field(default_factory=dict)
    disagree: dict[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def intact(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not self.disagree and not self.error


@dataclass
class Verdicts:
    """What was found of all files that were looked at."""

    files: list[Verdict]

    @property
    def intact(self) -> bool:
        """Whether nothing was found to be wrong with any."""
        return all(verdict.intact for verdict in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the verdicts as JSON values."""
        return {
            "intact": self.intact,
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
        names = sorted(e.name for e in entries if e.name.endswith(_SUFFIXES) and e.is_file())
    whole = not names or any(name.endswith(_INDEXES) for name in os.listdir(path))
    verdicts = [_verdict(os.path.join(path, name)) for name in names]
    # Without an index, files in one folder need not belong together.
    if is_dcp(path):
        return Verdicts([*verdicts, _verdict(path)])
    return Verdicts([*verdicts, _structure(path)] if whole else verdicts)


def _verdict(path: str) -> Verdict:
    verdict = _structure(path)
    try:
        found = evidence_of(path)
    except CheckpointError as error:
        verdict.error = verdict.error or str(error)
        return verdict
    verdict.agree, verdict.disagree, verdict.unchecked = found.agree, found.disagree, found.unchecked
    return verdict


def _structure(path: str) -> Verdict:
    try:
        content = read_content(path, skim=True)
    except CheckpointError as error:
        return Verdict(path, error=str(error))
    leaves = entries_of(content.value).leaves
    tensors = sum(isinstance(entry.value, TENSORS) for entry in leaves)
    return Verdict(path, content.format, tensors)


def print_verdicts(verdicts: Verdicts) -> None:
    """Print verdicts for people."""
    changed = [(v.file, name, means) for v in verdicts.files for name, means in v.disagree.items()]
    for verdict in verdicts.files:
        kind = verdict.format or "structure not readable"
        line(f"{verdict.file}: {kind}, {count(verdict.tensors, 'tensor')}: {_summary(verdict)}")
        if verdict.error:
            line(f"damaged: {' '.join(verdict.error.split())}")
    if changed:
        several = len(verdicts.files) > 1
        rows = [row if several else row[1:] for row in changed]
        table(["file", "changed", "by its"] if several else ["changed", "by its"], rows)
    line("nothing wrong was found" if verdicts.intact else "damaged")


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
