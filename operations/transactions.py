"""Transactions that stay open in the topics of a job, and how those of its tasks are aborted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.open_transactions import Held, append_times, held_partitions
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.suggest import did_you_mean, listed
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Deployment
from kafka_pipeline.deployment.job import connected, read_deployment

MARGIN_MS = 10_000
"""How long after its timeout the brokers may take to abort a transaction."""

_LOOK_S = 0.5
_FENCE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A partition in which a transaction is open.

    `hidden` is how many offsets after its first record readers of committed records cannot see. It
    was open for `watched_ms` at least. `since_ms` is when its first record came, by the brokers'
    clock; None in topics whose records have other times. `tasks` are those of the job that write to
    the partition; other programs may do that, too.
    """

    topic: str
    partition: int
    offset: int
    hidden: int
    watched_ms: int
    since_ms: int | None
    tasks: tuple[TaskId, ...]

    def is_late(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether the brokers should have aborted it, if it has this timeout."""
        since_ms = now_ms - self.watched_ms if self.since_ms is None else self.since_ms
        return now_ms - since_ms > timeout_ms + MARGIN_MS

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "hidden": self.hidden,
            "watched_ms": self.watched_ms,
            "since_ms": self.since_ms,
            "tasks": [str(task) for task in self.tasks],
        }


class JobTransactions:
    """The transactions in the topics of a job."""

    def __init__(self, config: Config) -> None:
        """Read what the job runs.

        Raises `UnavailableError` if Kafka does not answer, and `ConfigError` if it has no pipeline.
        """
        self._config = config
        self._admin = connected(config)
        self._deployment = read_deployment(config, self._admin)
        current = self._deployment.current
        if current is None:
            raise ConfigError("this job has no pipeline yet")
        self._pipeline = current.pipeline

    def open(self, watch_s: float, *, also_short: bool) -> list[OpenTransaction]:
        """Return the transactions that stay open for `watch_s`; with `also_short`, all at its end.

        Returns sooner if there are none. Raises as `Admin`.
        """
        existing = self._admin.topics()
        topics = [topic for topic in self._pipeline.all_topics if topic in existing]
        partitions = [(topic, number) for topic in topics for number in range(existing[topic])]
        began_s = time.monotonic()
        seen = watch(
            lambda asked: held_partitions(self._admin, asked),
            partitions,
            watch_s,
            also_short=also_short,
        )
        watched_ms = int((time.monotonic() - began_s) * 1000)
        times = append_times(self._config, {at: each.stable_end for at, (each, _) in seen.items()})
        return [
            OpenTransaction(
                *at,
                offset=held.stable_end,
                hidden=held.end - held.stable_end,
                watched_ms=watched_ms if stayed else 0,
                since_ms=times.get(at),
                tasks=writers(self._pipeline, *at),
            )
            for at, (held, stayed) in seen.items()
        ]

    def tasks(self) -> list[TaskId]:
        """Return the tasks of all versions of the pipeline that the job has had."""
        return tasks_of(self._deployment)

    def fence(self, task: TaskId) -> None:
        """Abort what a task has left open. If somebody runs it, it starts again.

        Raises `UnavailableError` if Kafka does not do it within 30 s.
        """
        id_ = self._config.topic_names.transactional_id(task)
        try:
            with closing(TaskProducer(self._config, id_, {})) as producer:
                producer.fence(_FENCE_TIMEOUT_S)
        except EngineError as error:
            raise UnavailableError(
                f"{task}: Kafka does not abort its transaction: {error}"
            ) from error


def watch(
    look: Callable[[Collection[Partition]], Mapping[Partition, Held]],
    partitions: Collection[Partition],
    watch_s: float,
    *,
    also_short: bool,
) -> dict[Partition, tuple[Held, bool]]:
    """Look at partitions for a time; return those that are held, and whether that stayed so.

    Without `also_short`, only those whose last stable offset did not move.
    """
    deadline_s = time.monotonic() + watch_s
    first = now = look(partitions)
    stayed = {*first}
    while time.monotonic() < deadline_s and (stayed or also_short) and first:
        time.sleep(min(_LOOK_S, max(deadline_s - time.monotonic(), 0)))
        now = look(partitions if also_short else stayed)
        stayed = {at for at in stayed if at in now and now[at].stable_end == first[at].stable_end}
    return {at: (held, at in stayed) for at, held in now.items() if also_short or at in stayed}


def writers(pipeline: Pipeline, topic: str, partition: int) -> tuple[TaskId, ...]:
    """Return the tasks that write to a partition; all of a processor if it may be any of them."""
    found: list[TaskId] = []
    for processor in pipeline.processors:
        tasks = [TaskId(processor.id, number) for number in range(pipeline.task_count(processor))]
        if topic in pipeline.state_topics(processor).values():
            found += [task for task in tasks if task.partition == partition]
        elif topic in (*pipeline.out_topics(processor), pipeline.dead_letter_topic(processor)):
            found += tasks
    return tuple(found)


def tasks_of(deployment: Deployment) -> list[TaskId]:
    """Return the tasks of all versions of a pipeline. Raises as `Deployment.version`."""
    return sorted({task for pipeline in deployment.pipelines for task in pipeline.tasks})


def running(status: ClusterStatus) -> set[TaskId]:
    """Return the tasks that a TaskManager which is up runs, or was asked to; no FAILED ones."""
    up = {info.id for info in status.managers_up}
    return {
        info.task
        for info in status.tasks
        if info.owner in up and (info.status is None or info.status.state is not TaskState.FAILED)
    }


def chosen(
    given: Sequence[str] | None, known: Sequence[TaskId], runs: Collection[TaskId], *, force: bool
) -> list[TaskId]:
    """Return the tasks whose transactions are to be aborted: by default, all that nobody runs.

    Raises `ConfigError` for a task that no version of the pipeline has, and, unless `force`, for
    one that runs.
    """
    if given is None:
        return [task for task in known if force or task not in runs]
    by_name = {str(task): task for task in known}
    for name in given:
        if name not in by_name:
            hint = did_you_mean(name, by_name) or ": it must look like Counter_0"
            raise ConfigError(f'the job has never had a task "{name}"{hint}')
    tasks = [by_name[name] for name in dict.fromkeys(given)]
    busy = [str(task) for task in tasks if task in runs and not force]
    if busy:
        raise ConfigError(
            f"{', '.join(busy)}: a TaskManager runs it, and ends its transactions itself. "
            "`pipeline restart` starts it again; --force aborts what it has open now"
        )
    return tasks


def names(tasks: Iterable[TaskId], most: int = 3) -> str:
    """Return tasks in a cell of a table."""
    return listed([str(task) for task in tasks], most) or "other programs"
