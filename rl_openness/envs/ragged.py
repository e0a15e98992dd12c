"""Index arithmetic for ragged (CSR) arrays: rows of segment b are `ptr[b] : ptr[b + 1]`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


def segment_of_row(ptr: Int) -> Int:
    """Segment number of every row: [0, 0, 2] for ptr [0, 2, 2, 3]."""
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))


def pointer(counts: Int) -> Int:
    """CSR offsets [n + 1] for segment sizes [n]."""
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def gather_segments(ptr: Int, segments: Int) -> tuple[Int, Int]:
    """Rows of the chosen segments one after another, and their new CSR offsets."""
    starts = ptr[segments]
    new_ptr = pointer(ptr[segments + 1] - starts)
    shift = np.repeat(starts - new_ptr[:-1], np.diff(new_ptr))
    return np.arange(new_ptr[-1], dtype=np.int64) + shift, new_ptr
