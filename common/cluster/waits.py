"""How far processors are in event time, and which tasks hold which others back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, TaskInfo
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId


@dataclass(frozen=True, slots=True)
class Wait:
    """Tasks of a processor that wait in event time for a task that writes their input.

    `is_whole` says that they are all tasks of the processor. They are at `time_ms`, as far as that
    is known. `state` says in words how the holder does; `unread` is how many offsets it has not
    read yet, `None` if nobody knows.
    """

    tasks: tuple[TaskId, ...]
    is_whole: bool
    time_ms: int | None
    holder: TaskId
    state: str
    unread: int | None


def waits(status: ClusterStatus) -> list[Wait]:
    """Return who waits for whom, in the order of the tasks."""
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
    """Return how far tasks are in event time: as the last of those for which something is to come.

    If nothing is to come for any of them, they are as far as the first.
    """
    statuses = list(statuses)
    live = _known([each for each in statuses if not each.count("is_idle")], "event_time_ms")
    return min(live) if live else max(_known(statuses, "event_time_ms"), default=None)


def lag_together(statuses: Iterable[TaskStatus], newest_ms: int | None) -> int | None:
    """Return how far the last of some tasks is behind a timestamp, `None` if that is unknown."""
    found = [each.event_time_lag_ms(newest_ms) for each in statuses]
    return max((lag for lag in found if lag is not None), default=None)


def _known(statuses: Iterable[TaskStatus], name: str) -> list[int]:
    values = [each.gauge(name) for each in statuses]
    return [value for value in values if value is not None]


def _state(info: TaskInfo | None) -> str:
    """Return in words how a task does that holds others back."""
    if info is None:
        return "not known"
    if info.status is not None:
        return str(info.status.state)
    return "paused" if info.is_held else info.reason
