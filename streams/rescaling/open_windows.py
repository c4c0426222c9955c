"""The windows of tasks that are emitted when they close, where several tasks become one.

The tasks have closed their windows up to different times. The new task goes on from the earliest
one, so what others have emitted since is left out, and what is open must not have expired there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.stores.layout import TIME_OF


class OpenWindows:
    """Watches the entries of a store; `closed` has the times up to which tasks have emitted."""

    def __init__(self, spreading: Spreading, tasks: Tasks, closed: Mapping[int, int]) -> None:
        assert spreading.time is not None
        assert spreading.closes_ms is not None
        assert spreading.kept_ms is not None
        self._time_of = TIME_OF[spreading.time]
        self._closes_ms, self._kept_ms = spreading.closes_ms, spreading.kept_ms
        self._calendar = Calendar(*spreading.calendar) if spreading.calendar else None
        self._tasks = tasks
        self._closed = closed
        self._open: dict[int, dict[bytes, int]] = {}

    def emitted_elsewhere(self, task: int) -> int:
        """Return up to which time of entries a task has emitted what the new task would again."""
        group = [self._closed[n] for n in self._tasks.former(task) if n in self._closed]
        closed = self._closed.get(task, -1)
        return self._emitted(closed) if closed > min(group, default=closed) else -1

    def see(self, task: int, rows: Sequence[SavedRow]) -> None:
        """Take the next records of a task into account."""
        time_of, emitted = self._time_of, self._emitted(self._closed.get(task, -1))
        found = self._open.setdefault(self._tasks.group_of(task), {})
        for row in rows:
            time = time_of(row.key)
            if row.value is None:
                found.pop(row.key, None)
            elif time > emitted:
                found[row.key] = time

    def _emitted(self, closed: int) -> int:
        """Return the last time of entries that were emitted, by a time at which windows closed."""
        ended = closed - self._closes_ms
        return ended if self._calendar is None else self._calendar.span(ended)[0] - 1

    def lost(self, latest: Mapping[int, int]) -> int:
        """Return how many windows would expire before they close.

        `latest` has the stream time of the stores of each group.
        """
        return sum(
            time <= latest[group] - self._kept_ms
            for group, found in self._open.items()
            for time in found.values()
        )
