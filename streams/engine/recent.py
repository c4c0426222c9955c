"""How often something happened lately, and how often it may."""

from __future__ import annotations

from collections import deque
from threading import Lock

WINDOW_MS = 60_000


class RecentCount:
    """Counts events of the last minute, by a clock that only goes forward. Thread-safe."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, int]] = deque()
        self._lock = Lock()

    def add(self, count: int, now_ms: int) -> None:
        """Record `count` (0 or more) events at this moment."""
        if count:
            with self._lock:
                self._events.append((now_ms, count))

    def in_window(self, now_ms: int) -> int:
        """Return how many events there were in the minute before `now_ms`."""
        with self._lock:
            while self._events and self._events[0][0] <= now_ms - WINDOW_MS:
                self._events.popleft()
            return sum(count for _, count in self._events)


class MinuteLimit:
    """Admits at most `most` (1 or more) events within a minute, by a clock that goes forward."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._admitted_ms: deque[int] = deque(maxlen=most)

    def admits(self, now_ms: int) -> bool:
        """Return whether an event may happen at this moment; if so, it counts."""
        admitted = self._admitted_ms
        if len(admitted) == self.most and admitted[0] > now_ms - WINDOW_MS:
            return False
        admitted.append(now_ms)
        return True
