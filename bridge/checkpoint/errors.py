"""What can be wrong with a checkpoint file, and where.

A reader of files from strangers has to fail well: every failure is one of the classes below, and
its text says the file, the record or entry and the byte where known, what was expected, what came
instead, and what to do. Code deep inside a reader knows the byte but not the file; it raises with
what it knows, and the callers add the rest through :meth:`CheckpointError.locate`.
"""

from __future__ import annotations

from typing import TypeVar


_Error = TypeVar("_Error", bound="CheckpointError")


class CheckpointError(Exception):
    """A checkpoint could not be read or written.

    Attributes:
        problem: What was expected and what came.
        advice: What to do about it, or "".
        file: The file, where known, else "".
        record: The part of the file (an archive record, a header), where known, else "".
        entry: The name or path of the value the problem belongs to, where known, else "".
        offset: The byte at which reading stopped, where known. It counts from the start of the
            file, or of the record when that is stored compressed.
    """

    def __init__(
        self,
        problem: str,
        *,
        advice: str = "",
        file: str = "",
        record: str = "",
        entry: str = "",
        offset: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.file = file
        self.record = record
        self.entry = entry
        self.offset = offset

    def locate(
        self: _Error,
        *,
        file: str = "",
        record: str = "",
        entry: str = "",
        offset: int | None = None,
    ) -> _Error:
        """Fill in the places that are not known yet; return the error itself."""
        self.file = self.file or file
        self.record = self.record or record
        self.entry = self.entry or entry
        self.offset = offset if self.offset is None else self.offset
        return self

    def __str__(self) -> str:
        place = [repr(self.file)] if self.file else []
        if self.record:
            place.append(f"record {self.record!r}")
        if self.entry:
            place.append(f"entry {self.entry!r}")
        if self.offset is not None:
            place.append(f"byte {self.offset}")
        text = f"{', '.join(place)}: {self.problem}" if place else self.problem
        return f"{text}. {self.advice}." if self.advice else f"{text}."


class BadFormat(CheckpointError):
    """The bytes do not follow the format they claim to be."""


class NotACheckpoint(BadFormat):
    """The file is something else: a text, a picture, an archive of other things."""


class Truncated(BadFormat):
    """The file ends before its content does."""


class Damaged(CheckpointError):
    """The bytes are not those that were written: a checksum or digest in the file disagrees."""


class Unsafe(CheckpointError):
    """The file asks for something that a file of numbers never needs, such as running code."""


class Unsupported(CheckpointError):
    """The file is well formed, but holds something that this reader does not read."""


class Unwritable(CheckpointError, TypeError):
    """The object holds something that the file format has no place for."""


def brief(value: object) -> str:
    """Describe a value from a file for a message, in bounded time and space."""
    if isinstance(value, str | bytes):
        return repr(value[:60])
    if isinstance(value, int) and value.bit_length() <= 64:
        return repr(value)
    return f"a value of type {type(value).__name__}"
