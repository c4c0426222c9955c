"""The rate of a counter that only grows."""

from __future__ import annotations

from collections import deque


class Rate:
    """Records per second over the last few seconds."""

    def __init__(self, window_s: float = 2.0) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def update(self, now_s: float, count: int) -> float:
        """Add a counter's value; return its growth per second over the window."""
        self._samples.append((now_s, count))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        then_s, before = self._samples[0]
        return (count - before) / (now_s - then_s) if now_s > then_s else 0.0
