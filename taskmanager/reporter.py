"""Decides whether a report of the TaskManager contains everything, or only the changes."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.protocol.messages import FULL_BEATS, Report
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId


class Reporter:
    """Numbers the reports, and records what the last ones contained.

    Partial reports add to the last full heartbeat. So a reader needs that heartbeat and the newest
    partial report; it may miss the ones in between.
    """

    def __init__(self, interval_ms: int) -> None:
        self._full_after_ms = FULL_BEATS * interval_ms
        self._full_at_ms = 0
        self._beats = 0
        self._base: int | None = None
        """The last full heartbeat; `None` if the next one must be full."""
        self._sent: dict[TaskId, TaskStatus] = {}
        """The last status that was sent for each task."""
        self._changed: dict[TaskId, None] = {}
        """An ordered set: tasks that arrived, left, or changed state or version since the base."""

    @property
    def beats(self) -> int:
        """The number of reports so far."""
        return self._beats

    def require_full(self) -> None:
        """Make the next heartbeat a full one."""
        self._base = None

    def heartbeat(self, everything: Report, now_ms: int) -> Report:
        """Return the TaskManager's next heartbeat; `everything` is its current full report."""
        self._beats += 1
        tasks = {status.task: status for status in everything.tasks}
        changed = self._changed_statuses(tasks)
        self._sent = tasks
        # With that many changes, a full report is no longer than a partial one.
        if self._base is None or now_ms >= self._full_at_ms or len(self._changed) > len(tasks):
            self._base, self._full_at_ms = self._beats, now_ms + self._full_after_ms
            self._changed = {}
            return replace(everything, beat=self._beats)
        return replace(
            everything,
            beat=self._beats,
            base=self._base,
            tasks=tuple([s for t, s in tasks.items() if t in changed or t in self._changed]),
            closed=tuple([task for task in self._changed if task not in tasks]),
            code={},
        )

    def full(self, everything: Report) -> Report:
        """Return a full report that is not the base of others, because not everybody reads it."""
        self._beats += 1
        self.require_full()
        return replace(everything, beat=self._beats)

    def _changed_statuses(self, tasks: dict[TaskId, TaskStatus]) -> set[TaskId]:
        """Return the tasks with a new status; record the changes that the JobManager acts on."""
        changed = set()
        for task, status in tasks.items():
            before = self._sent.get(task)
            if before is None or before != status:
                changed.add(task)
                if before is None or _acted_on(before) != _acted_on(status):
                    self._changed[task] = None
        for task in self._sent:
            if task not in tasks:
                self._changed[task] = None
        return changed


def _acted_on(status: TaskStatus) -> object:
    return status.state, status.fingerprint, status.suspects
