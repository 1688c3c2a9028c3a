"""A file is replaced all at once or not at all, and nothing else is left behind."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bridge.checkpoint import _atomic, save
from bridge.checkpoint._atomic import write_atomically


fcntl = pytest.importorskip("fcntl")

NAMES = ["m.pt", "m.safetensors"]


def write(file: Any) -> None:
    file.write(b"new")


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    """The kernel refuses to let the file grow, as it does when the disk is full."""
    path = tmp_path / name
    save({"x": np.zeros(10)}, path)
    before = path.read_bytes()
    code = (
        "import resource, signal, sys, numpy\n"
        "from bridge.checkpoint import save\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    save({'x': numpy.ones(10**6)}, sys.argv[1], digests=True)\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == (str(errno.EFBIG), "")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("name", NAMES)
def test_a_failed_step_leaves_the_old_file(
    tmp_path: Path, name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    save({"x": np.zeros(10)}, path)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        save({"x": np.ones(10)}, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


def test_the_disk_has_the_bytes_before_the_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    originals = {name: getattr(os, name) for name in ("fsync", "replace")}

    def fsync(descriptor: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        calls.append(("fsync", "folder" if place == tmp_path else place.read_text()))
        originals["fsync"](descriptor)

    def replace(source: Any, target: Any) -> None:
        calls.append(("replace", Path(target).name))
        originals["replace"](source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomically(tmp_path / "m.pt", write)
    assert calls == [("fsync", "new"), ("replace", "m.pt"), ("fsync", "folder")]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444 | 0o200])
def test_an_old_file_keeps_its_mode_as_with_torch(tmp_path: Path, mode: int) -> None:
    ours, theirs = tmp_path / "ours.pt", tmp_path / "theirs.pt"
    for path in (ours, theirs):
        path.write_text("old")
        path.chmod(mode)
    save({}, ours)
    torch.save({}, theirs)
    assert ours.stat().st_mode == theirs.stat().st_mode


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    for umask, mode in [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)]:
        old = os.umask(umask)
        try:
            save({}, tmp_path / f"{umask}.pt")
        finally:
            os.umask(old)
        assert (tmp_path / f"{umask}.pt").stat().st_mode & 0o777 == mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/m.pt").write_text("old")
    (tmp_path / "link").symlink_to("real/m.pt")
    (tmp_path / "m.pt").symlink_to("link")
    write_atomically(tmp_path / "m.pt", write)
    assert (tmp_path / "m.pt").is_symlink()
    assert (tmp_path / "real/m.pt").read_text() == "new"
    assert not (tmp_path / "real/m.pt").is_symlink()
    assert os.listdir(tmp_path / "real") == ["m.pt"]


def test_only_regular_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(IsADirectoryError):
        save({}, tmp_path / "folder.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(OSError, match="only a regular file can be replaced"):
        save({}, tmp_path / "pipe.pt")
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        save({}, tmp_path / "none" / "m.pt")
    (tmp_path / "m.pt").write_text("old")
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match="may not be written"):
        save({}, tmp_path / "m.pt")
    assert sorted(os.listdir(tmp_path)) == ["folder.pt", "m.pt", "pipe.pt"]


@pytest.mark.parametrize("name", ["m" * 252 + ".pt", "ü" * 126 + ".pt"])
def test_the_longest_names_can_be_saved(tmp_path: Path, name: str) -> None:
    save({}, tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def leftover(target: Path, digits: str = "0" * 16) -> Path:
    path = target.with_name(f".{target.name}.{digits}.tmp")
    path.write_text("unfinished")
    return path


def test_leftovers_of_dead_saves_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "m.pt"
    leftover(target)
    kept = [leftover(tmp_path / "other.pt"), leftover(target, "X" * 16), leftover(target, "0" * 15)]
    save({}, target)
    assert sorted(tmp_path.iterdir()) == sorted([target, *kept])


def test_a_file_that_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    target = tmp_path / "m.pt"

    def write_while_another_saves(file: Any) -> None:
        file.write(b"mine")
        write_atomically(target, write)
        assert target.read_text() == "new"
        assert len(os.listdir(tmp_path)) == 2

    write_atomically(target, write_while_another_saves)
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["m.pt"]


def test_a_file_that_was_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another save looks between the making of the file and its lock."""
    original = _atomic._lock
    stolen = []

    def lock(descriptor: int) -> bool | None:
        if not stolen:
            place = os.readlink(f"/proc/self/fd/{descriptor}")
            stolen.append(place)
            os.unlink(place)
        return original(descriptor)

    monkeypatch.setattr(_atomic, "_lock", lock)
    write_atomically(tmp_path / "m.pt", write)
    assert len(stolen) == 1
    assert os.listdir(tmp_path) == ["m.pt"]


def test_without_locks_leftovers_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    old = leftover(tmp_path / "m.pt")
    monkeypatch.setattr(fcntl, "flock", refuse)
    save({}, tmp_path / "m.pt")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "m.pt", old])
