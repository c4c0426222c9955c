"""Rates from counters that only grow."""

from __future__ import annotations

from collections import deque

from common.cluster_status import ClusterStatus
from common.tasks import TaskId


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


class TaskRates:
    """How many records each task reads per second, from one report of the task to the next."""

    def __init__(self) -> None:
        self._last: dict[TaskId, tuple[int | None, float, int]] = {}
        self._rates: dict[TaskId, float] = {}

    def update(self, now_s: float, status: ClusterStatus) -> dict[TaskId, float]:
        """Add a status; return the rates of the tasks that one owner has reported twice."""
        for info in status.tasks:
            count = info.status.count("records_in") if info.status else None
            owner, then_s, before = self._last.get(info.task, (None, 0.0, 0))
            if count is None or owner != info.owner or count < before:
                self._rates.pop(info.task, None)
                self._last[info.task] = (info.owner, now_s, count or 0)
            elif count != before or now_s - then_s >= 2:
                self._rates[info.task] = (count - before) / (now_s - then_s)
                self._last[info.task] = (owner, now_s, count)
        return dict(self._rates)
