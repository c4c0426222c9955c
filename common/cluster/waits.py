"""The event time of processors, and which tasks hold others back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, TaskInfo
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId


@dataclass(frozen=True, slots=True)
class Wait:
    """Tasks of one processor whose event time waits for a task that writes their input.

    `is_whole` means that these are all tasks of the processor. `time_ms` is their event time,
    `None` if unknown. `state` describes the holder's state in words; `unread` is the number of its
    unread offsets, `None` if unknown.
    """

    tasks: tuple[TaskId, ...]
    is_whole: bool
    time_ms: int | None
    holder: TaskId
    state: str
    unread: int | None


def waits(status: ClusterStatus) -> list[Wait]:
    """Return the waits of all tasks, in the order of the tasks."""
    infos = {info.task: info for info in status.tasks}
    sizes = Counter(task.processor for task in infos)
    waiting: dict[tuple[str, TaskId], list[TaskStatus]] = {}
    for info in status.tasks:
        found = info.status
        if found is not None and found.held_by is not None:
            waiting.setdefault((info.task.processor, found.held_by), []).append(found)
    return [
        Wait(
            tuple(found.task for found in held),
            len(held) == sizes[processor],
            min(_known(held, "event_time_ms"), default=None),
            holder,
            _state(infos.get(holder)),
            max(_known(held, "held_unread"), default=None),
        )
        for (processor, holder), held in waiting.items()
    ]


def time_together(statuses: Iterable[TaskStatus]) -> int | None:
    """Return the earliest event time of the tasks that are not idle, `None` if unknown.

    If all are idle, return the latest one.
    """
    statuses = list(statuses)
    live = _known([each for each in statuses if not each.count("is_idle")], "event_time_ms")
    return min(live) if live else max(_known(statuses, "event_time_ms"), default=None)


def lag_together(statuses: Iterable[TaskStatus], newest_ms: int | None) -> int | None:
    """Return the largest event-time lag of the tasks behind a timestamp, `None` if unknown."""
    found = [each.event_time_lag_ms(newest_ms) for each in statuses]
    return max((lag for lag in found if lag is not None), default=None)


def _known(statuses: Iterable[TaskStatus], name: str) -> list[int]:
    values = [each.gauge(name) for each in statuses]
    return [value for value in values if value is not None]


def _state(info: TaskInfo | None) -> str:
    """Return the state, in words, of a task that holds others back."""
    if info is None:
        return "not known"
    if info.status is not None:
        return str(info.status.state)
    return "paused" if info.is_held else info.reason
