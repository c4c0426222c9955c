"""The parts that views share: figures of processors and tasks, and waits of event time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka_pipeline.common.cluster.cluster_status import HELD, TaskInfo
from kafka_pipeline.common.cluster.figures import NOT_REPORTED, together
from kafka_pipeline.common.cluster.waits import waits
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.console.views.snapshot import Snapshot

_WORST_FIRST = (
    TaskState.FAILED,
    NOT_REPORTED,
    TaskState.RESTARTING,
    TaskState.RESTORING,
    TaskState.STARTING,
    HELD,
    TaskState.RUNNING,
)


def tasks_of(snapshot: Snapshot, processor: str) -> list[TaskInfo]:
    """Return the tasks of a processor, without standbys."""
    return [info for info in snapshot.status.tasks if info.task.processor == processor]


def figures_of(snapshot: Snapshot, tasks: Collection[TaskInfo]) -> dict[str, Any]:
    """Return the combined figures of tasks as JSON, with the worst of their states."""
    status = snapshot.status
    processors = {info.task.processor for info in tasks}
    unread = sum(n for id_, n in status.job_manager.unread.items() if id_ in processors)
    found = together(tasks, status.newest_record_ms, snapshot.rates, unread)
    return {
        "state": worst_state(found.states),
        "states": dict(found.states),
        "tasks": found.tasks,
        "rate_in": rounded(found.rate_in),
        "rate_out": rounded(found.rate_out),
        "lag": found.lag,
        "oldest_waiting_ms": found.oldest_ms,
        "event_time_ms": found.event_time_ms,
        "event_time_lag_ms": found.behind_ms,
        **found.counts,
        "dropped": sum(each.records for each in found.left_out),
        "left_out": [
            {"reason": each.reason, "records": each.records, "per_minute": each.per_minute}
            for each in found.left_out
        ],
        "key_warnings": [{**as_json(each), "text": each.text} for each in found.key_warnings],
    }


def worst_state(states: Mapping[str, int]) -> str:
    """Return the worst of the states that tasks are in."""
    return next((str(state) for state in _WORST_FIRST if state in states), NOT_REPORTED)


def rounded(rate: float | None, digits: int = 2) -> float | None:
    """Return a rate, rounded to `digits` decimals."""
    return None if rate is None else round(rate, digits)


def waits_of(snapshot: Snapshot, processor: str | None = None) -> list[dict[str, Any]]:
    """Return the waits of event time, of one processor or of all."""
    return [
        {
            "processor": wait.tasks[0].processor,
            "tasks": [str(task) for task in wait.tasks],
            "is_whole": wait.is_whole,
            "event_time_ms": wait.time_ms,
            "holder": str(wait.holder),
            "holder_processor": wait.holder.processor,
            "holder_state": wait.state,
            "unread": wait.unread,
        }
        for wait in waits(snapshot.status)
        if processor is None or wait.tasks[0].processor == processor
    ]
