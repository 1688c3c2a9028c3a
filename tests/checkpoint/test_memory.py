"""Memory that numbers are read into: aligned, whole, given back, and to be had without maps."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from bridge.checkpoint._memory import aligned_empty


SIZES = [0, 1, 63, (256 << 10) - 1, 256 << 10, (1 << 20) + 7, (4 << 20) - 1, 4 << 20, (5 << 20) + 3]


def owned() -> int:
    """The bytes of memory of this process that are of no file."""
    lines = dict(
        line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return int(lines["RssAnon"].split()[0]) * 1024


@pytest.mark.parametrize("maps", [True, False], ids=["maps", "no maps"])
@pytest.mark.parametrize("size", SIZES)
def test_any_size_is_aligned_writable_and_its_own(
    size: int, maps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not maps:

        def refuse(*args: object, **options: object) -> None:
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr(mmap, "mmap", refuse)
    first, second = aligned_empty(size), aligned_empty(size)
    for array in (first, second):
        assert array.dtype == np.uint8
        assert array.shape == (size,)
        assert array.ctypes.data % 64 == 0 or not size
    first[:], second[:] = 1, 2
    assert (first == 1).all()
    assert not np.shares_memory(first, second)


def test_memory_is_given_back_with_its_last_view() -> None:
    before = owned()
    views = [aligned_empty(1 << 20)[5:9] for _ in range(64)]
    assert owned() - before > 60 << 20  # resident before it is touched
    del views
    assert owned() - before < 8 << 20
