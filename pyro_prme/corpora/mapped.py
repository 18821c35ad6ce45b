"""Counts that are mapped from disk: open this to see how their pages are given back to the system."""

from __future__ import annotations

import mmap
from typing import Any

__all__ = ["Pages", "give_back", "is_mapped"]

_ENTRIES = 1 << 22  # read before pages are given back: 32 MB of words and counts


def _mapping(array: Any) -> mmap.mmap | None:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array


def is_mapped(counts: Any) -> bool:
    """Whether the entries of a CSR matrix lie in a file."""
    return _mapping(counts.indices) is not None


def give_back(*arrays: Any) -> None:
    """Lets the system have the pages of mapped arrays: they are read again from the file when they are needed."""
    for found in map(_mapping, arrays):
        if found is not None and hasattr(mmap, "MADV_DONTNEED"):
            found.madvise(mmap.MADV_DONTNEED)


class Pages:
    """Gives the pages of mapped counts back now and then, so that reading all of them does not fill the memory.

    Args:
        counts: CSR, mapped or not.
    """

    def __init__(self, counts: Any) -> None:
        self._arrays = (counts.indices, counts.data) if is_mapped(counts) else ()
        self._read = 0

    def read(self, entries: int) -> None:
        """To be called when so many entries have been read."""
        self._read += entries
        if self._arrays and self._read > _ENTRIES:
            give_back(*self._arrays)
            self._read = 0
