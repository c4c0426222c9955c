"""Combines the figures of tasks, for `pipeline status`, `pipeline top` and the console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_pipeline.common.cluster.cluster_status import HELD, ClusterStatus, TaskInfo, unread_of
from kafka_pipeline.common.cluster.rates import Rates
from kafka_pipeline.common.cluster.waits import lag_together, time_together
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId

NOT_REPORTED = "NOT_REPORTED"
"""Shown as the state of a task that no TaskManager reports."""

COUNTS = (
    "records_in",
    "records_out",
    "dead_letters",
    "dead_letters_per_minute",
    "skipped",
    "restarts",
    "late",
    "late_per_minute",
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The records that a processor left out for one reason: in total, and in the last minute."""

    processor: str
    reason: str
    records: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one task, of a processor, or of a job; `None` means unknown.

    `states` counts the tasks by state. Rates are records per second. `lag`, `counts` and `left_out`
    are sums. The lag includes partitions that no task reads, and is unknown if that of any task is.
    `oldest_ms` is the age of the oldest unread record. `event_time_ms` is that of the task that is
    furthest behind: it is `behind_ms` behind the newest record of the job.
    """

    states: Mapping[str, int]
    rate_in: float | None
    rate_out: float | None
    lag: int | None
    oldest_ms: int | None
    event_time_ms: int | None
    behind_ms: int | None
    counts: Mapping[str, int]
    left_out: Collection[LeftOut]
    key_warnings: Collection[KeyWarning]

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(self.states.values())

    @property
    def running(self) -> int:
        """The number of tasks that are RUNNING."""
        return self.states.get(TaskState.RUNNING, 0)

    @property
    def all_run(self) -> bool:
        """Whether each task is RUNNING or held."""
        return self.running + self.states.get(HELD, 0) == self.tasks


def state_of(info: TaskInfo) -> str:
    """Return the state to show for a task."""
    if info.status is not None:
        return str(info.status.state)
    return HELD if info.is_held else NOT_REPORTED


def together(
    infos: Collection[TaskInfo],
    newest_ms: int | None,
    rates: Mapping[TaskId, Rates] = {},
    unread: int = 0,
) -> Figures:
    """Return the figures of tasks together; tasks without `rates` are left out of the rates.

    `newest_ms` is the timestamp of the job's newest record. `unread` is the number of records in
    partitions that these tasks should read, but do not.
    """
    statuses = [info.status for info in infos if info.status is not None]
    known = [rates[info.task] for info in infos if info.task in rates]
    ages = [age for each in statuses if (age := each.gauge("oldest_waiting_ms")) is not None]
    return Figures(
        Counter(map(state_of, infos)),
        _sum(each.records_in for each in known),
        _sum(each.records_out for each in known),
        None if (lag := unread_of(infos)) is None else lag + unread,
        max(ages, default=None),
        time_together(statuses),
        lag_together(statuses, newest_ms),
        {name: sum(status.count(name) for status in statuses) for name in COUNTS},
        _left_out(infos),
        list(_unmet_keys(infos)),
    )


def by_processor(status: ClusterStatus, rates: Mapping[TaskId, Rates] = {}) -> dict[str, Figures]:
    """Return the figures of each processor, in the order of the tasks."""
    infos: dict[str, list[TaskInfo]] = {}
    for info in status.tasks:
        infos.setdefault(info.task.processor, []).append(info)
    newest_ms, unread = status.newest_record_ms, status.job_manager.unread
    return {name: together(of, newest_ms, rates, unread.get(name, 0)) for name, of in infos.items()}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _left_out(tasks: Iterable[TaskInfo]) -> list[LeftOut]:
    """Return the records that each processor left out; its most frequent reason comes first."""
    records: dict[str, Counter[str]] = {}
    lately: Counter[tuple[str, str]] = Counter()
    for info in tasks:
        status, processor = info.status, info.task.processor
        if status is not None:
            records.setdefault(processor, Counter()).update(status.dropped)
            for reason, count in status.dropped_lately.items():
                lately[processor, reason] += count
    return [
        LeftOut(processor, reason, count, lately[processor, reason])
        for processor, counts in records.items()
        for reason, count in counts.most_common()
    ]


def _unmet_keys(tasks: Iterable[TaskInfo]) -> Iterator[KeyWarning]:
    """Yield the key warnings of each processor: one for each topic and problem."""
    found: dict[str, dict[tuple[str, KeyProblem], KeyWarning]] = {}
    for info in tasks:
        for warning in () if info.status is None else info.status.key_warnings:
            of_processor = found.setdefault(info.task.processor, {})
            of_processor.setdefault((warning.topic, warning.problem), warning)
    for of_processor in found.values():
        yield from of_processor.values()
