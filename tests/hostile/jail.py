"""The process that opens hostile files, with a hook that hears what Python does meanwhile.

Python raises an audit event for every import, compilation, execution of a code object, opened file,
started program and connection. While a file is read, the only events that are in order are the
opening, for reading, of that file (or, for a folder, of files inside it), the listing of that
folder, and a private map of memory.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hostile.observe import WAYS, observe
from tests.hostile.seeds_without_torch import good_files
from tests.hostile.worker import ALLOWANCE, cap_address_space


_OWN = ("/proc/self/status", "/proc/self/clear_refs")
_HARMLESS = (
    "builtins.id",
    "object.__getattr__",
    "sys._getframe",
    "mmap.__new__",
    "cpython.PyInterpreterState_Clear",
)


class Listener:
    """Collects audit events that reading a file must not cause."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.allowed: Path | None = None

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.allowed is None or event in _HARMLESS:
            return
        if event == "open" and self._may_open(args):
            return
        if event in ("os.listdir", "os.scandir") and self._inside(args[0]):
            return
        self.events.append(f"{event}{str(args)[:150]}")

    def _may_open(self, args: tuple[Any, ...]) -> bool:
        path, _, flags = args
        if path in _OWN:
            return True
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        return not (flags or 0) & writes and self._inside(path)

    def _inside(self, path: Any) -> bool:
        if not isinstance(path, str | os.PathLike) or self.allowed is None:
            return False
        return Path(os.path.realpath(path)).is_relative_to(self.allowed)


def main() -> None:
    """Read one path a line; answer with what each way of reading did, and the events."""
    setup = json.loads(sys.stdin.readline())
    listener = Listener()
    sys.addaudithook(listener)
    with tempfile.TemporaryDirectory() as work:
        # What is imported late is imported now, before the cap and the watch.
        for name, data in good_files().items():
            path = Path(work) / name
            path.write_bytes(data)
            for way in WAYS:
                observe(path, way)
    os.chdir(setup["folder"])
    # Growth is measured for each file; the cap is for what would take the machine down.
    cap_address_space(16 * ALLOWANCE)
    for line in sys.stdin:
        path = Path(json.loads(line)["path"])
        listener.events = []
        listener.allowed = Path(os.path.realpath(path))
        ways = {}
        for way in WAYS:
            seen = observe(path, way)
            ways[way] = asdict(seen)
            if seen.outcome.startswith("!") or seen.growth > 4 * ALLOWANCE:
                break  # a failure already; the other ways would only take longer
        listener.allowed = None
        print(json.dumps({"ways": ways, "events": listener.events}), flush=True)


if __name__ == "__main__":
    main()
