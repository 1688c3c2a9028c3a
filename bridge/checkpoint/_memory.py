"""Memory that numbers are read into.

Every array starts at a multiple of 64 bytes, where JAX can take it over without another copy.

What reading costs is mostly not the copying: memory that is new to a process is handed out page by
page as it is touched, with an interruption for each of 4 KiB. Linux hands out all pages of a map at
once for those who ask (``MAP_POPULATE``), which takes a quarter off the time of reading; and it has
pages of 2 MiB, which NumPy asks for where an array is large enough to be made of them.
"""

from __future__ import annotations

import mmap

import numpy as np


ALIGNMENT = 64
#: From here on the pages of an array are asked for at once; a map has whole pages to itself.
_POPULATED = 256 << 10
#: From here on NumPy asks for large pages.
_LARGE_PAGES = 4 << 20


def aligned_empty(nbytes: int) -> np.ndarray:
    """Return an uninitialised ``uint8`` array whose memory starts at a multiple of 64.

    It is meant to be filled at once: its memory may be resident before it is touched.
    """
    if _POPULATED <= nbytes < _LARGE_PAGES and hasattr(mmap, "MAP_POPULATE"):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        try:
            return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)
        except OSError:  # No map is to be had: malloc may still have room, or says what is wrong.
            pass
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes]
