"""Single tasks and PipelineThreads on a real Kafka, stepped by hand and without Spark."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_committed
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import COUNT_STORE, ProcessorSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.clients import KafkaClients
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.pipeline_thread import PipelineThread
from kafka_pipeline.taskmanager.running_task import TaskContext
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.time_watch import TimeWatch

# The records of tests are from 1970, which brokers would delete with their next round of retention.
KEEP = {"retention.ms": "-1"}
_numbers = itertools.count()


@dataclass(frozen=True)
class Record:
    """A record as a reader of a topic sees it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None = None
    partition: int = 0


class Job:
    """The topics of a processor `P` with two partitions, and tasks that run it."""

    def __init__(self, folder: Path, bootstrap_servers: str, kafka: Mapping[str, str] = {}) -> None:
        host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
        self.config = Config(
            server_ip=host,
            server_port=int(port),
            job_name=f"task_{os.getpid()}_{next(_numbers)}",
            tm_number=2,
            parallelism=2,
            replication_factor=1,
            source_topic=f"in_{os.getpid()}_{next(_numbers)}",
            sink_topic=f"out_{os.getpid()}_{next(_numbers)}",
            heartbeat_interval_ms=500,
            state_dir=folder / "state",
            kafka=kafka,
        )
        self.names = self.config.topic_names
        self.admin = Admin(self.config)
        self._offsets = PartitionReader(self.config, self.names.consumer_group("P"))
        self.readers = [self._offsets]
        specs = [
            TopicSpec(self.config.source_topic, 2, 1, KEEP),
            TopicSpec(self.config.sink_topic, 2, 1, KEEP),
            TopicSpec(self.names.dead_letter("P"), 2, 1, KEEP),
            TopicSpec(self.names.state("P"), 2, 1, {"cleanup.policy": "compact"}),
            TopicSpec(self.names.threads_jm, 1, 1),
        ]
        self.admin.ensure_topics(specs)
        # Returns when the broker knows them.
        self.admin.topic_ids([spec.name for spec in specs])
        servers: dict[str, Any] = {"bootstrap.servers": self.config.bootstrap_servers, **kafka}
        self.admin_client = AdminClient(servers)
        # Without idempotence, a batch that is sent again comes after later ones.
        settings = {"message.max.bytes": 100_000_000, "enable.idempotence": True}
        self._producer = Producer(servers | settings)

    def make_topic(self, name: str) -> str:
        """Make one more topic, whose name begins with that of the job."""
        topic = f"{name}_{self.config.job_name}"
        self.make_topic_again(topic)
        return topic

    def make_topic_again(self, topic: str) -> None:
        """Make a topic that was deleted."""
        self.admin.ensure_topics([TopicSpec(topic, 2, 1, KEEP)])
        self.admin.topic_ids([topic])

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until the broker does not know it any more."""
        for answer in self.admin_client.delete_topics([topic]).values():
            answer.result(10)
        while self.admin.partition_counts([topic]):
            time.sleep(0.01)

    def set_topic_config(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in self.admin_client.incremental_alter_configs([resource]).values():
            answer.result(10)
        while self.admin.topic_settings([topic])[topic][name] != value:
            time.sleep(0.01)

    def set_size_limit(self, topic: str, max_message_bytes: int) -> None:
        """Change how large the record batches of a topic may be."""
        self.set_topic_config(topic, "max.message.bytes", str(max_message_bytes))

    def replica(
        self, spec: ProcessorSpec, on_error: OnError = OnError.FAIL, partition: int = 0
    ) -> ProcessorReplica:
        return ProcessorReplica(
            task=TaskId("P", partition),
            spec=spec,
            from_=("source",),
            to=("sink",),
            in_topics=(self.config.source_topic,),
            out_topics=(self.config.sink_topic,),
            state_topics={COUNT_STORE: self.names.state("P")} if spec.sole_store else {},
            dead_letter_topic=self.names.dead_letter("P"),
            on_error=on_error,
        )

    def context(self, tm_id: int = 0) -> TaskContext:
        clients = KafkaClients(self.config, self.admin)
        stores = GlobalStores(self.config, tm_id, 0, clients)
        watch = LagWatch(self.config, Offsets(self.config, self.admin))
        cluster_id = self.admin.check_broker()
        times = TimeWatch(self.config, GroupPositions(self.config, self.admin))
        return TaskContext(self.config, tm_id, 0, cluster_id, clients, stores, watch, times)

    def task(self, replica: ProcessorReplica, tm_id: int = 0) -> SteppedTask:
        return SteppedTask(replica, self.context(tm_id))

    def write(self, *records: Record) -> None:
        errors: list[KafkaError] = []
        for record in records:
            self._producer.produce(
                self.config.source_topic,
                record.value,
                record.key,
                record.partition,
                lambda error, _: errors.append(error) if error else None,
                timestamp=record.timestamp,
                headers=record.headers,  # type: ignore[arg-type]
            )
        assert self._producer.flush(10) == 0
        assert errors == []

    def read(self, topic: str) -> list[Record]:
        """Return all committed records of a topic, partition by partition."""
        batches = read_committed(self.config, topic, 2)
        return [
            Record(key, value, timestamp, headers, batch.partition)
            for batch in sorted(batches, key=lambda batch: (batch.partition, batch.offsets[0]))
            for key, value, timestamp, headers in zip(
                batch.keys,
                batch.values,
                batch.timestamps,
                batch.headers or [None] * len(batch),
                strict=True,
            )
        ]

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def committed(self, partition: int = 0) -> int | None:
        position = self.committed_position(partition)
        return None if position is None else position.offset

    def committed_position(self, partition: int = 0) -> Committed | None:
        """Return the committed offset with its partition time."""
        at = (self.config.source_topic, partition)
        return self._offsets.committed([at], 30).get(at)

    def set_committed(self, offset: int, partition: int = 0) -> None:
        """Do to the task's group what an operator could do, or a broker that forgets."""
        at = TopicPartition(self.config.source_topic, partition, offset)
        request = ConsumerGroupTopicPartitions(self.names.consumer_group("P"), [at])
        for done in self.admin_client.alter_consumer_group_offsets([request]).values():
            done.result(30)


class SteppedTask:
    """A task that a test starts, runs and commits step by step."""

    def __init__(self, replica: ProcessorReplica, context: TaskContext) -> None:
        self.assigned = AssignedTask(replica, context, epoch=0)
        self._context = context
        self._next_start = self.assigned.new_start()

    @property
    def running(self) -> Task:
        assert isinstance(self.assigned.running, Task)
        return self.assigned.running

    def cancel(self) -> None:
        self._next_start.cancel()

    def start(self) -> None:
        self.assigned.start = self._next_start
        try:
            self.assigned.running = self._next_start.run()
        finally:
            self._next_start, self.assigned.start = self.assigned.new_start(), self._next_start

    def commit(self) -> None:
        self.running.commit()

    def drop(self) -> None:
        """Let go of it without a commit."""
        assert self.assigned.running is not None
        self.assigned.running.close()
        self.assigned.running = None

    def status(self) -> TaskStatus:
        return self.assigned.status(Phase.IDLE, 0, "")

    def drain(self) -> None:
        """Process all that is there; what a built-in type puts out is sent."""
        task = self.running
        names = self._context.config.topic_names
        with closing(self._context.clients.reader(names.fetch_group, is_watched=True)) as reader:
            task.readers = dict.fromkeys(task.partitions, reader)
            reader.assign(task.read)
            while not task.is_caught_up:
                fetched = reader.fetch(1000, 0.2)
                for batch in fetched.batches:
                    task.add(batch)
                    while task.turn(inf).has_more:
                        pass
                for partition, offset in fetched.ends:
                    task.reached_end(partition, offset)
                if not fetched.batches:
                    # Queries hold records back until no more come.
                    task.turn(inf)


def drain(task: SteppedTask) -> None:
    """Let a started task process all that is there, without the commit."""
    task.drain()


def run_once(task: SteppedTask) -> None:
    """Start a task, let it process all that is there, commit, and release it.

    What came before a record that fails is committed too.
    """
    task.start()
    try:
        try:
            drain(task)
        finally:
            error = sys.exc_info()[1]
            is_kept = error is None or isinstance(error, ProcessingFailedError)
            if is_kept and task.running.has_uncommitted:
                task.commit()
    finally:
        task.drop()


class ScriptedChannel:
    """A driver channel without a driver: commands are put in, messages are taken out."""

    def __init__(self) -> None:
        self.commands: list[channel_messages.Command] = []
        self.sent: list[channel_messages.ToDriver] = []
        self.is_lost = False
        self.silent_s = 0.0

    @property
    def last_heard_s(self) -> float:
        return time.monotonic() - self.silent_s

    def receive(self, wait_s: float = 0) -> channel_messages.Command | None:
        return self.commands.pop(0) if self.commands else None

    def send(self, message: channel_messages.ToDriver) -> None:
        self.sent.append(message)


class Thread:
    """A PipelineThread that is stepped by hand."""

    def __init__(self, job: Job, tm_id: int) -> None:
        self.channel = ScriptedChannel()
        self.thread = PipelineThread(job.context(tm_id), self.channel)  # type: ignore[arg-type]

    def assign(self, replica: ProcessorReplica) -> None:
        self.channel.commands.append(channel_messages.Assign(replica, epoch=0))

    def revoke(self, task: TaskId) -> None:
        self.channel.commands.append(channel_messages.Revoke(task))

    def close(self) -> None:
        """Let go of all tasks without a commit."""
        self.thread.close()

    def step(self) -> None:
        self.thread.step()

    def statuses(self) -> list[TaskStatus]:
        return [self.thread.status(task_id) for task_id in self.thread.tasks]

    def status(self, task_id: TaskId) -> TaskStatus:
        return self.thread.status(task_id)

    def state(self) -> TaskState | None:
        for status in self.statuses():
            return status.state
        return None


def step_until(condition: Callable[[], bool], *threads: Thread, timeout_s: float = 30) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            tasks = [status for thread in threads for status in thread.statuses()]
            raise AssertionError(f"it does not come to that: {tasks}")
        for thread in threads:
            thread.step()
