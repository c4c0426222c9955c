"""Tasks with a producer and a reader that only record calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka import guarded_producer, task_producer
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.specs import ClassSpec
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.taskmanager import task as task_module
from kafka_pipeline.taskmanager import task_start
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.running_task import TaskContext
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.task_start import ProcessorStart
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from kafka_pipeline.taskmanager.user_errors import UserErrorLog
from tests.unit.taskmanager.fakes import (
    CONFIG,
    FakeAdmin,
    FakeClients,
    NobodyKnows,
    quiet_watch,
    replica,
)


class NotingProducer:
    """A librdkafka producer that records its calls."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def list_topics(self, timeout: float) -> None:
        pass

    def init_transactions(self, timeout: float) -> None:
        self._notes.append("init")

    def begin_transaction(self) -> None:
        self._notes.append("begin")

    def produce(self, *_: object, **__: object) -> None:
        self._notes.append("produce")

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._notes.append("offsets")

    def commit_transaction(self, timeout: float) -> None:
        self._notes.append("commit")

    def poll(self, timeout: float) -> None:
        pass

    def abort_transaction(self, timeout: float) -> None:
        pass

    def purge(self) -> None:
        pass


COMMITTED_MS = 1_732_280_000_000


class NotingReader:
    """A reader whose group has committed an offset of one partition, 0."""

    group_metadata = None

    def committed(
        self, partitions: Sequence[Partition], timeout_s: float, proof: Partition | None = None
    ) -> dict[Partition, Committed]:
        return {p: Committed(0, COMMITTED_MS) for p in partitions if p[1] == 0}

    def close(self) -> None:
        pass


def assigned_to(
    notes: list[str],
    partition: int,
    monkeypatch: pytest.MonkeyPatch,
    group: Callable[[], NodeGroup] | None = None,
    watch: LagWatch | None = None,
    topics: tuple[str, ...] = ("in",),
    config: Config = CONFIG,
) -> AssignedTask:
    """Return a task that writes its steps, and the fault points on its way, to `notes`.

    It has the nodes of `group`, or those of the type `forward`.
    """
    for module in (task_producer, task_start, task_module):
        monkeypatch.setattr(module, "reach", lambda point: notes.append(f"({point})"))
    monkeypatch.setattr(guarded_producer, "Producer", lambda _: NotingProducer(notes))
    if group is not None:
        monkeypatch.setattr(ProcessorStart, "_node_group", lambda _: group())
    clients = FakeClients(FakeAdmin(), NotingReader)
    context = TaskContext(
        config,
        0,
        0,
        "cluster",
        clients,
        GlobalStores(config, 0, 0, clients),
        watch or quiet_watch(),
        TimeWatch(config, NobodyKnows()),
        user_errors=UserErrorLog(with_values=config.log_record_values),
    )
    given = replica(partition, ClassSpec(code="shop:A") if group else None)
    return AssignedTask(replace(given, in_topics=topics), context, 0)


def start(task: AssignedTask) -> Task:
    running = task.new_start().run()
    assert isinstance(running, Task)
    task.running = running
    return running
