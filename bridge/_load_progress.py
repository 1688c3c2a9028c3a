"""A bar for loads that take a while; nothing for others, and nothing where no one looks."""

import sys
import time
from types import TracebackType
from typing import Any


#: A load that is over by then shows no bar.
PATIENCE = 1.0


class Progress:
    """Counts bytes, and shows a bar on a terminal once the load has taken a second.

    Args:
        total: How many bytes there are to load.
        wanted: Whether to show anything at all.
    """

    def __init__(self, total: int, wanted: bool = True):
        self._total = total
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._start = time.monotonic()
        self._done = 0
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        """Count bytes that were loaded."""
        self._done += count
        if self._bar is None and self._wanted and time.monotonic() - self._start > PATIENCE:
            self._bar = _bar(self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)


def _bar(total: int) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress as Bars,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Bars(
        TextColumn("loading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("loading", total=total)
    bar.start()
    return bar
