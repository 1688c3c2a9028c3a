"""What a reader does with one file, watched from inside its process.

``observe`` reads a file in every way there is, touches every byte that the arrays claim, and says
what came of it: the error's class, or a digest of the value; the CPU time; and by how much the
process grew. This file imports neither torch nor jax, so the process is small to begin with.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridge._inspect import inspect_file
from bridge.checkpoint import CheckpointError, load


_SMALL = 1 << 20
#: How many values a digest looks at: more would cost more than reading them did.
_ENOUGH = 200_000


@dataclass(frozen=True)
class Observation:
    """What one way of reading one file did.

    Attributes:
        outcome: "read", the name of a ``CheckpointError`` class, or "!" and any other exception.
        text: The error's text, or the value's digest.
        shape: A digest of the value without the numbers of its arrays.
        seconds: CPU time.
        growth: Bytes by which the resident memory peaked above what it was before.
    """

    outcome: str
    text: str
    shape: str
    seconds: float
    growth: int


WAYS: dict[str, Callable[[Path], Any]] = {
    "load": load,
    "copy": lambda path: load(path, copy=True),
    "verify": lambda path: load(path, verify=True),
    "inspect": lambda path: inspect_file(path).to_json(),
}


def observe(path: Path, way: str) -> Observation:
    """Read ``path`` in one of ``WAYS`` and touch all of it."""
    before = _reset_peak()
    start = time.process_time()
    shape = ""
    try:
        value = WAYS[way](path)
        outcome, text, shape = "read", digest(value), digest(value, numbers=False)
    except CheckpointError as error:
        outcome, text = type(error).__name__, str(error)
    except Exception as error:
        outcome, text = f"!{type(error).__name__}", f"{error} {_last_frame(error)}"
    seconds = time.process_time() - start
    return Observation(outcome, text, shape, seconds, _peak() - before)


def _last_frame(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return f"({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""


def _reset_peak() -> int:
    """Make the kernel forget the peak of resident memory; return what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not report {field}")


def digest(value: Any, *, numbers: bool = True) -> str:
    """A digest of a value: types, order, names, and every number, each read where it lies."""
    state = hashlib.blake2b(digest_size=16)
    _Digest(state, numbers).visit(value)
    return state.hexdigest()


class _Digest:
    def __init__(self, state: Any, numbers: bool) -> None:
        self._state = state
        self._numbers = numbers
        self._visits = 0
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []

    def _put(self, *parts: object) -> None:
        self._state.update(repr(parts).encode("utf-8", "surrogatepass"))

    def visit(self, value: Any) -> None:
        self._visits += 1
        if self._visits > _ENOUGH:
            return
        if isinstance(value, bytes | bytearray) and len(value) > 1000:
            self._put(type(value).__name__, len(value))
            self._state.update(value)
            return
        if isinstance(value, str | int | float | bool | bytes | bytearray | complex | None):
            if isinstance(value, int) and value.bit_length() > 1000:
                value = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self._put(type(value).__name__, value)
            return
        # Containers may be shared exponentially often, or hold themselves.
        if id(value) in self._seen:
            self._put("again", self._seen[id(value)])
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        self._put(type(value).__name__)
        if isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, dict):
            self._put(len(value))
            for key, item in value.items():
                self.visit(key)
                self.visit(item)
            self.visit(getattr(value, "metadata", None))
        elif isinstance(value, list | tuple):
            self._put(len(value))
            for item in value:
                self.visit(item)
        elif isinstance(value, set | frozenset):
            self._put(sorted(map(repr, value)))
        elif isinstance(value, np.dtype | np.generic):
            self._put(str(value.dtype) if isinstance(value, np.generic) else str(value), str(value))
        else:
            self._record(value)

    def _record(self, value: Any) -> None:
        names = getattr(type(value), "__slots__", ()) or getattr(value, "__dict__", {})
        if not names:
            self._put(repr(value)[:200])
        for name in names:
            self._put(name)
            self.visit(getattr(value, name, None))

    def _array(self, array: np.ndarray) -> None:
        self._put(str(array.dtype), array.shape)
        if not array.size or not self._numbers:
            return
        if array.nbytes <= _SMALL:
            self._state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            return
        # A broadcast may claim more than any memory holds: read the bytes behind it, once.
        self._put(array.strides)
        low, high = np.lib.array_utils.byte_bounds(array)
        base = array[tuple(np.s_[:1] for _ in array.shape)]
        span = np.lib.stride_tricks.as_strided(base.view(np.uint8), (high - low,), (1,))
        self._state.update(np.ascontiguousarray(span))
