"""How many records tasks read or send per second, from their heartbeats."""

from __future__ import annotations

from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.tasks import TaskId

LEAST_S = 2.0
"""A count that stays the same for this long shows a rate of 0."""


class TaskRates:
    """How fast a figure of each task grows, from one report of the task to the next."""

    def __init__(self, figure: str = "records_in") -> None:
        self._figure = figure
        self._last: dict[TaskId, tuple[int | None, float, int]] = {}
        self._rates: dict[TaskId, float] = {}

    def update(self, now_s: float, status: ClusterStatus) -> dict[TaskId, float]:
        """Add a status; return the rates of the tasks that one owner has reported twice."""
        for info in status.tasks:
            count = info.status.count(self._figure) if info.status else None
            owner, then_s, before = self._last.get(info.task, (None, 0.0, 0))
            if count is None or owner != info.owner or count < before:
                self._rates.pop(info.task, None)
                self._last[info.task] = (info.owner, now_s, count or 0)
            elif count != before or now_s - then_s >= LEAST_S:
                self._rates[info.task] = (count - before) / (now_s - then_s)
                self._last[info.task] = (owner, now_s, count)
        return dict(self._rates)
