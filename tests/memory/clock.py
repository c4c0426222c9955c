"""A clock whose time passes only while a caller waits."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

_EPOCH_S = 1_700_000_000.0


class Clock:
    """A clock with scheduled actions; it replaces the module `time`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return self.now_s

    def monotonic_ms(self) -> int:
        """Return whole milliseconds since that moment."""
        return int(self.now_s * 1000)

    def perf_counter(self) -> float:
        """Return seconds since an arbitrary moment."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self.advance(seconds)

    def wall_clock_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int((_EPOCH_S + self.now_s) * 1000)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Schedule an action after a delay; the action itself must not wait."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._numbers), action))

    def advance(self, seconds: float) -> None:
        """Let time pass, and run the actions that fall due on the way."""
        end_s = self.now_s + seconds
        while self._events and self._events[0][0] <= end_s:
            at_s, _, action = heapq.heappop(self._events)
            self.now_s = max(self.now_s, at_s)
            action()
        self.now_s = max(self.now_s, end_s)
