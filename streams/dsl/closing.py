"""A queue of windows by closing time, which avoids a scan of the store for each record."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import Windowed

Scan = Callable[[int, int], list[Windowed[Any]]]
"""Returns the windows in the store that end between two times, both included, in any order."""

_Place = tuple[int, int, bytes]
"""The end and the start of a window, and the bytes of its key."""


class Closing:
    """The windows that end soon, in memory; all others are only in the store.

    When stream time passes the fetched range, a scan of the store fetches the windows of the next
    `ahead_ms`, so a window is in memory no longer than that. It may have left the store since.
    """

    def __init__(self, scan: Scan, key_serde: Serde[Any], ahead_ms: int) -> None:
        """`key_serde` writes keys: their bytes order them and tell them apart, as in stores."""
        self._scan = scan
        self._write_key = key_serde.serialize
        self._ahead_ms = ahead_ms
        self._heap: list[_Place] = []
        self._windows: dict[_Place, Windowed[Any]] = {}
        """The windows in the heap, by place."""
        self._until: int | None = None
        """All windows that end before this time are in the heap; `None` before the first scan."""

    def forget(self) -> None:
        """Scan again at the next call: the store has changed."""
        self._heap = []
        self._windows = {}
        self._until = None

    def add(self, windowed: Windowed[Any]) -> None:
        """Take in a window that was put into the store."""
        if self._until is not None and windowed.window.end < self._until:
            place = self._place(windowed)
            if place not in self._windows:
                heappush(self._heap, place)
                self._windows[place] = windowed

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
            found.append(self._windows.pop(heappop(heap)))
        return found

    def _fetch(self, first: int, last: int) -> None:
        last += self._ahead_ms
        for windowed in self._scan(first, last):
            self._windows[self._place(windowed)] = windowed
        self._heap = list(self._windows)
        heapify(self._heap)
        self._until = last + 1

    def _place(self, windowed: Windowed[Any]) -> _Place:
        key, window = windowed
        return window.end, window.start, self._write_key(key)
