"""Replacing a file all at once.

A save that fails half way (a full disk, a killed process) must leave the old file as it was. The
new content goes to a file beside the target, is forced to disk, and takes the target's name in one
step.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Call ``write`` on a new file that then replaces ``path``; a symlink's target is replaced."""
    target = Path(os.path.realpath(os.fspath(path)))
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    # 0o666 less the umask is what open() would give a new file.
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
