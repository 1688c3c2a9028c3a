"""Replacing a file all at once.

A save that fails half way (a full disk, a killed process, a power cut) must leave the old file as it
was. The new content goes to a file beside the target, is forced to disk, and takes the target's name
in one step; then the folder is forced to disk, too.

What becomes of the rest:

- *Mode.* A new file has what the umask leaves. A file that is replaced keeps its permission bits, as
  it does when PyTorch writes over it, and one that may not be written is not replaced. Its owner,
  its access lists and its other hard links are not kept: the new file is another file.
- *Links.* A symbolic link stays, and what it points to is replaced. Only regular files are: a save
  to a folder or a device is refused.
- *Leftovers.* A save that is killed leaves its unfinished file, ``.NAME.<16 digits>.tmp``. Its
  writer held a lock on it, which ends with the process; so the next save of the same name knows
  which of these files nobody is writing, in any process or container of the machine, and removes
  them. On a file system without locks they are left alone.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None


# Less than the pieces in which numbers come, which then go to the system without another copy.
_BUFFER = 64 << 10


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Call ``write`` on a new file that then replaces ``path``.

    Args:
        path: The file to write or replace; of a symbolic link, what it points to.
        write: Writes the content to a file that starts empty.

    Raises:
        OSError: If there is no room, no permission, or no regular file at ``path``. The old file is
            then as it was, and so it is when ``write`` raises.
    """
    target = Path(os.path.realpath(os.fspath(path)))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
    mode = _mode(target)
    remove_leftovers(target.parent, re.escape(_short(target.name)))
    if mode is not None:
        _make_room(target)
    descriptor, beside = _open_beside(target)
    try:
        with os.fdopen(descriptor, "wb", buffering=_BUFFER) as file:
            write(file)
            file.flush()
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            if os.name != "nt":
                # Under the lock, which ends when the file is closed.
                os.replace(beside, target)
        if os.name == "nt":
            os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def link_atomically(source: Path, target: Path) -> None:
    """Give a file a second name, in place of what has that name.

    Raises:
        OSError: If the file system has no hard links, among other reasons.
    """
    beside = _beside(target)
    os.link(source, beside)
    os.replace(beside, target)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine that call this from the folder, where locks exist."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove the unfinished files of saves whose process has ended.

    Args:
        folder: Where to look.
        names: A regular expression of the names that were to be saved.
    """
    if fcntl is None:
        return
    pattern = re.compile(rf"\.(?:{names})\.[0-9a-f]{{16}}\.tmp")
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:
        return  # A folder that may be written but not listed.
    for path in found:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if _lock(descriptor):
                os.unlink(path)
        except OSError:
            pass
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Force a folder's list of names to disk."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not know this call for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _mode(target: Path) -> int | None:
    """Return the permission bits of a file that may be replaced, None if there is no file."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder cannot be replaced by a file", str(target))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "only a regular file can be replaced", str(target))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file may not be written", str(target))
    return status.st_mode & 0o777


def _make_room(target: Path) -> None:
    """Let the system forget its copy in memory of a file that is about to be replaced.

    The new content then goes where the old was, as when a file is written over in place. To find new
    memory, in large pieces, can cost Linux several times what writing does. The file stays whole.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _open_beside(target: Path) -> tuple[int, Path]:
    """Create and lock a new file in the target's folder."""
    while True:
        beside = _beside(target)
        # 0o666 less the umask is what open() would give a new file.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        # Another save may have taken the file for a leftover before the lock was on it.
        if fcntl is None or (_lock(descriptor) is not False and os.fstat(descriptor).st_nlink):
            return descriptor, beside
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a file for this process; return False if another has it, None if there are no locks."""
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _beside(target: Path) -> Path:
    return target.with_name(f".{_short(target.name)}.{secrets.token_hex(8)}.tmp")


def _short(name: str) -> str:
    # A file's name may have 255 bytes, of which our ending needs some.
    return os.fsdecode(os.fsencode(name)[:200])
