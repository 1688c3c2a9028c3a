"""Opening: which format a file has is told by its content, never by its name.

The order of the tests is PyTorch's: a zip archive by its first four bytes, then the legacy stream
by its magic number, then a tar archive; safetensors, which PyTorch tells by suffix alone, by its
structure.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bridge.checkpoint._content import Content
from bridge.checkpoint._dcp import archives, is_dcp, read_dcp
from bridge.checkpoint._folders import Shards, looks_like_index, read_folder, read_index
from bridge.checkpoint._legacy import MAGICS, load_legacy
from bridge.checkpoint._safetensors import (
    load_safetensors,
    looks_like_safetensors,
    with_ties,
)
from bridge.checkpoint._source import FileBytes
from bridge.checkpoint._tar import load_tar
from bridge.checkpoint._torch_zip import load_zip
from bridge.checkpoint._verify import Evidence, evidence, require
from bridge.checkpoint._zip import LOCAL
from bridge.checkpoint.errors import (
    BadFormat,
    CheckpointError,
    NotACheckpoint,
    Truncated,
    Unsupported,
)


PathLike = str | os.PathLike[str]

_SAFETENSORS = ".safetensors"
_TAR = b"ustar"
# Of all formats, safetensors has the shortest file without anything in it: a length and {}.
_SHORTEST = 9


def load(path: PathLike, *, copy: bool = False, verify: bool = False) -> Any:
    """Return what a checkpoint file holds, with NumPy arrays for its tensors.

    Reads PyTorch's files of every age (``.pt``, ``.pth``, ``.bin``, ``.ckpt``: zip archives, the
    legacy stream, tar archives, TorchScript, exported programs, distributed checkpoints) and
    safetensors files; the name of the file does not matter. Nothing in the file is run or imported.

    A state dict comes back as a :class:`~bridge.StateDict`, other containers as they are. A whole
    module, a TorchScript program and an exported program come back as their state dicts. Objects of
    classes that are not read come back as :class:`~bridge.checkpoint.Placeholder`, quantized,
    sparse and other special tensors as the records of this package. Arrays are read-only
    and keep their dtype on disk; tied tensors are one array, also where a safetensors file has one of
    the names only and the others in its text table.

    Args:
        path: The file, or a folder of files that are one checkpoint, or its ``.index.json``.
        copy: Whether the arrays have memory of their own. Otherwise they are the file itself, mapped
            into memory: nothing is read before it is used. Replacing the file in one step, as
            :func:`save` does, leaves such arrays as they are; overwriting it in place changes
            them, and shortening it ends the process when they are used.
        verify: Whether to check the numbers against the checksums and digests in the file first.
            Files that have neither pass: the older stream, tar archives, plain safetensors.

    Returns:
        The object in the file; of a folder of shards, one :class:`~bridge.StateDict`.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If the file is damaged, unsafe or not supported; see its subclasses.
    """
    return read_content(path, copy=copy, verify=verify).value


def read_safetensors_metadata(path: PathLike) -> dict[str, str]:
    """Return the ``__metadata__`` table of a safetensors file, without reading its tensors."""
    return read_content(path, skim=True, only=_SAFETENSORS).file_metadata


def read_content(
    path: PathLike,
    *,
    copy: bool = True,
    skim: bool = False,
    verify: bool = False,
    only: str = "",
    together: bool = True,
) -> Content:
    """Return what a file or folder holds, and in which format.

    Args:
        path: The file or folder.
        copy: Whether arrays have memory of their own; see :func:`load`.
        skim: Leave the numbers unread; shapes and dtypes are right, values arbitrary.
        verify: Check the numbers against the checksums and digests in the files first.
        only: "" or ".safetensors", to refuse other formats.
        together: Put the tensors of a distributed checkpoint together (``read_dcp``).
    """
    name = os.fspath(path)
    if not os.path.exists(name) and os.path.isfile(f"{name}.index.json"):
        name = f"{name}.index.json"  # a set of files that was saved under this name

    def read_one(path: str) -> Content | None:
        with _opened(path) as descriptor:
            file = FileBytes(descriptor, path, copy=copy, skim=skim)
            if looks_like_index(file):
                return None
            if verify:
                require(evidence(file))
            return replace(_read(file, only), files=(path,))

    try:
        if not os.path.isdir(name):
            return _tied(read_one(name) or _folder(read_index(name, read_one)))
        if not is_dcp(name):
            return _tied(_folder(read_folder(name, read_one)))
        if verify:
            require(evidence_of(name))
        found = read_dcp(name, together=together, copy=copy, skim=skim)
        return Content(found.format, found.value, files=found.files)
    except CheckpointError as error:
        raise error.locate(file=name) from error.__cause__


def _folder(shards: Shards) -> Content:
    return Content(
        shards.format, shards.value, shards.file_metadata, files=shards.files, notes=shards.notes
    )


def _tied(content: Content) -> Content:
    """Give names back that safetensors files left out; other files have no text table."""
    if not content.file_metadata:
        return content
    return replace(content, value=with_ties(content.value, content.file_metadata))


def evidence_of(path: PathLike) -> Evidence:
    """Return what the checksums and digests say in a file, or in a distributed checkpoint."""
    name = os.fspath(path)
    if not os.path.isdir(name):
        with _opened(name) as descriptor:
            return evidence(FileBytes(descriptor, name))
    result = Evidence()
    for where, archive in archives(name):
        found = evidence(archive)
        result.agree |= {f"{where}, {record}": means for record, means in found.agree.items()}
        result.disagree |= {f"{where}, {record}": means for record, means in found.disagree.items()}
        result.unchecked += [f"{where}, {record}" for record in found.unchecked]
    return result


@contextmanager
def _opened(path: PathLike) -> Iterator[int]:
    """Open a regular file; an error inside is told its name."""
    name = os.fspath(path)
    try:
        # Without O_NONBLOCK, a pipe would wait for somebody to write to it.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "There is no checkpoint file here", name) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unsupported("this is not a regular file", advice="Copy the content to a file first")
        yield descriptor
    except CheckpointError as error:
        raise error.locate(file=name) from error.__cause__
    finally:
        os.close(descriptor)


def _read(file: FileBytes, only: str) -> Content:
    if file.size == 0:
        raise Truncated("the file is empty", advice="Fetch or write it again")
    start = file.read(0, min(512, file.size))
    if only == _SAFETENSORS and not looks_like_safetensors(file):
        raise BadFormat("the file is not a safetensors file")
    if start.startswith(LOCAL):
        return load_zip(file)
    if start.startswith(MAGICS):
        return load_legacy(file)
    if start.startswith(_TAR, 257):
        return load_tar(file)
    if looks_like_safetensors(file):
        value, metadata = load_safetensors(file)
        return Content("safetensors", value, metadata)
    raise _unknown(start)


_OTHERS: list[tuple[int, bytes, str]] = [
    (0, b"\x89HDF\r\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a NumPy .npy file"),
    (0, b"\x1f\x8b", "compressed with gzip"),
    (0, b"GGUF", "a GGUF file"),
]

_NO_CHECKPOINTS: list[tuple[bytes, str, str]] = [
    (b"version https://git-lfs", "a Git LFS pointer", "Run git lfs pull to fetch the file itself"),
    (b"<", "a web page or XML", "Fetch the file itself; the address was probably a page about it"),
    (b"\x80", "a pickle, but not one of torch.save", "Load it with the program that wrote it"),
]


def is_too_short(path: str) -> bool:
    """Whether a file is shorter than any checkpoint, and not the start of one of PyTorch's."""
    with open(path, "rb") as file:
        start = file.read(_SHORTEST)
    return len(start) < _SHORTEST and not (start and _is_cut(start))


def _is_cut(start: bytes) -> bool:
    return any(whole.startswith(start) for whole in (LOCAL, *MAGICS))


def _unknown(start: bytes) -> CheckpointError:
    for at, sign, what in _OTHERS:
        if start.startswith(sign, at):
            return Unsupported(f"the file is {what}", advice="Convert it to .safetensors or .pt")
    if _is_cut(start) or len(start) < _SHORTEST:
        return Truncated(f"the file has only {len(start)} bytes", advice="Fetch the file again")
    for sign, what, advice in _NO_CHECKPOINTS:
        if start.lstrip().startswith(sign):
            return NotACheckpoint(f"the file is {what}", advice=advice)
    return NotACheckpoint(
        f"the file is no checkpoint: it starts with {start[:8]!r}",
        advice="PyTorch files start with PK or a pickle, safetensors files with a length and {",
    )
