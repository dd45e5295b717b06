"""Python's garbage collector and C's allocator, set for a process that takes one large body after the other."""

from __future__ import annotations

import ctypes
import gc

# https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_FROM_HEAP = 32 << 20  # as large as glibc allows
_MOST_KEPT = 64 << 20


def set_for_bodies() -> None:
    """To be called once what lives as long as the process has been imported."""
    # A body of millions of empty lists makes millions of objects, none of them garbage: with Python's own thresholds
    # all are looked at again and again, which doubles the time that the worker answers nobody else.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # glibc gives large blocks back to the kernel when they are freed, and has each page of the next one made anew. With
    # bodies of 500 KB this costs more than all that is done with them. So the process keeps some of what it has freed.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other libraries have their own ways
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)
