"""Figures of a processor, which are those of its tasks together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kafka_pipeline.common.cluster_status import HELD, TaskInfo
from kafka_pipeline.common.left_out import left_out
from kafka_pipeline.common.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.common.unmet_keys import unmet_keys
from kafka_pipeline.common.waits import lag_together, time_together
from kafka_pipeline.console.snapshot import Snapshot

NOT_REPORTED = "NOT_REPORTED"
"""Shown in place of the state of a task that no TaskManager reports."""

_WORST_FIRST = (
    TaskState.FAILED,
    NOT_REPORTED,
    TaskState.RESTARTING,
    TaskState.RESTORING,
    TaskState.STARTING,
    HELD,
    TaskState.RUNNING,
)
_SUMS = (
    "records_in",
    "records_out",
    "dead_letters",
    "dead_letters_per_minute",
    "skipped",
    "restarts",
    "late",
    "late_per_minute",
)


def state_of(info: TaskInfo) -> str:
    """Return what is shown as the state of a task."""
    if info.status is not None:
        return str(info.status.state)
    return HELD if info.is_held else NOT_REPORTED


def tasks_of(snapshot: Snapshot, processor: str) -> list[TaskInfo]:
    """Return the tasks of a processor, without standbys."""
    return [info for info in snapshot.status.tasks if info.task.processor == processor]


def together(snapshot: Snapshot, tasks: Iterable[TaskInfo]) -> dict[str, Any]:
    """Return the figures of tasks together: the worst state, sums, and the oldest record.

    In event time, they are as far as the last of them.
    """
    tasks = list(tasks)
    states = Counter(map(state_of, tasks))
    statuses = [info.status for info in tasks if info.status is not None]
    ids = [info.task for info in tasks]
    return {
        "state": next((str(state) for state in _WORST_FIRST if state in states), NOT_REPORTED),
        "states": dict(states),
        "tasks": len(tasks),
        "rate_in": rate(snapshot, ids, "records_in"),
        "rate_out": rate(snapshot, ids, "records_out"),
        "lag": _sum(status.gauge("lag") for status in statuses),
        "oldest_waiting_ms": _most(status.gauge("oldest_waiting_ms") for status in statuses),
        "event_time_ms": time_together(statuses),
        "event_time_lag_ms": lag_together(statuses, snapshot.status.newest_record_ms),
        **{name: sum(status.count(name) for status in statuses) for name in _SUMS},
        "dropped": sum(sum(status.dropped.values()) for status in statuses),
        "left_out": [
            {"reason": each.reason, "records": each.records, "per_minute": each.per_minute}
            for each in left_out(tasks)
        ],
        "key_warnings": [
            {**as_json(each), "text": each.text}
            for warnings in unmet_keys(tasks).values()
            for each in warnings
        ],
    }


def rate(snapshot: Snapshot, tasks: Iterable[TaskId], name: str) -> float | None:
    """Return a rate of tasks together; None if it is not known of any of them."""
    rates = [snapshot.rates[task] for task in tasks if task in snapshot.rates]
    known = [value for each in rates if (value := getattr(each, name)) is not None]
    return round(sum(known), 2) if known else None


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
