"""Finds windows in the order in which they close, without a scan of the store for each record."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from streams.serdes import Serde
from streams.stores import Windowed

Scan = Callable[[int, int], list[Windowed[Any]]]
"""Returns the windows in the store that end between two times, both included, in any order."""

_Entry = tuple[int, int, bytes, Windowed[Any]]


class Closing:
    """The windows that end soon, in memory; all others are only in the store.

    Each time that runs out, a scan of the store fetches the windows that end in the next `ahead_ms`
    of stream time. So a window is in memory only for that long. It may have been removed from the
    store since.
    """

    def __init__(self, scan: Scan, key_serde: Serde[Any], ahead_ms: int) -> None:
        """`key_serde` orders windows that end and begin at the same time, as stores do."""
        self._scan = scan
        self._write_key = key_serde.serialize
        self._ahead_ms = ahead_ms
        self._heap: list[_Entry] = []
        self._until: int | None = None
        """All windows that end before this time are in the heap; `None` before the first scan."""

    def forget(self) -> None:
        """Scan again the next time: the store is not what it was."""
        self._heap = []
        self._until = None

    def add(self, windowed: Windowed[Any]) -> None:
        """Take in a window that was put into the store."""
        if self._until is not None and windowed.window.end < self._until:
            heappush(self._heap, self._entry(windowed))

    def due(self, first: int, last: int) -> list[Windowed[Any]]:
        """Take out the windows that end between two times, both included, the first ones first."""
        if last < 0:
            return []
        if self._until is None:
            self._fetch(max(0, first), last)
        elif last >= self._until:
            self._fetch(self._until, last)
        heap = self._heap
        found: list[Windowed[Any]] = []
        while heap and heap[0][0] <= last:
            windowed = heappop(heap)[3]
            # A window that was put twice is there twice, one after the other.
            if not found or windowed != found[-1]:
                found.append(windowed)
        return found

    def _fetch(self, first: int, last: int) -> None:
        last += self._ahead_ms
        self._heap += map(self._entry, self._scan(first, last))
        heapify(self._heap)
        self._until = last + 1

    def _entry(self, windowed: Windowed[Any]) -> _Entry:
        key, window = windowed
        return window.end, window.start, self._write_key(key), windowed
