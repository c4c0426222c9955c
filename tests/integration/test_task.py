"""Single tasks and PipelineThreads on a real Kafka, without Spark: transactions, fences, state."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from common.config import Config
from common.kafka.admin import Admin
from common.kafka.clients import FencedError
from common.kafka.data import PartitionReader
from common.messages import ProcessorReplica
from common.nodes import OnError, ProcessorType, TaskId
from common.status import TaskState
from common.topics import TopicNames, TopicSpec
from taskmanager.pipeline_thread import PipelineThread
from taskmanager.task import RecordFailedError, StartCancelledError, Task, TaskContext

pytestmark = pytest.mark.integration

_numbers = itertools.count()
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    """A record as a reader of a topic sees it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None = None
    partition: int = 0


class Job:
    """The topics of a processor `P` with two partitions, and tasks that run it."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
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
        )
        self.names = TopicNames.of(self.config)
        self.admin = Admin(self.config)
        self.readers: list[PartitionReader] = []
        compact = {"cleanup.policy": "compact"}
        self.admin.ensure_topics(
            [
                TopicSpec(self.config.source_topic, 2, 1),
                TopicSpec(self.config.sink_topic, 2, 1),
                TopicSpec(self.names.dead_letter("P"), 2, 1),
                TopicSpec(self.names.state("P"), 2, 1, compact),
            ]
        )
        self._producer = Producer({"bootstrap.servers": self.config.bootstrap_servers})

    def replica(
        self, type_: ProcessorType, on_error: OnError = OnError.FAIL, partition: int = 0
    ) -> ProcessorReplica:
        return ProcessorReplica(
            task=TaskId("P", partition),
            type=type_,
            from_=("source",),
            to=("sink",),
            in_topics=(self.config.source_topic,),
            out_topics=(self.config.sink_topic,),
            state_topic=self.names.state("P") if type_ is ProcessorType.COUNT else None,
            dead_letter_topic=self.names.dead_letter("P"),
            on_error=on_error,
        )

    def context(self, tm_id: int = 0) -> TaskContext:
        reader = PartitionReader(self.config, self.names.consumer_group)
        self.readers.append(reader)
        return TaskContext(self.config, tm_id, 0, self.admin.check_broker(), self.admin, reader)

    def task(self, replica: ProcessorReplica, tm_id: int = 0) -> Task:
        return Task(replica, self.context(tm_id), epoch=0)

    def write(self, *records: Record) -> None:
        for record in records:
            self._producer.produce(
                self.config.source_topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=record.headers,  # type: ignore[arg-type]
            )
        assert self._producer.flush(10) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.config.bootstrap_servers,
                "group.id": "test",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        records, ends = [], 0
        while ends < 2:
            message = consumer.poll(10)
            assert message is not None, "the topic has no end"
            if message.error():
                ends += 1
                continue
            headers: Any = message.headers()
            records.append(
                Record(
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    headers,
                    message.partition() or 0,
                )
            )
        consumer.close()
        return records

    def committed(self, partition: int = 0) -> int | None:
        at = (self.config.source_topic, partition)
        return self.admin.committed(self.names.consumer_group, [at]).get(at)


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap_servers)
    yield made
    for reader in made.readers:
        reader.close()


def drain(task: Task) -> None:
    """Let a started task process all that is there, in one transaction, without the commit."""
    reader = task._context.reader
    reader.assign(task.positions)
    try:
        while not task.is_caught_up:
            fetched = reader.fetch(1000, 0.2)
            for batch in fetched.batches:
                task.process(batch)
            for partition, offset in fetched.ends:
                task.reached_end(partition, offset)
    finally:
        reader.unassign(task.partitions)


def run_once(task: Task) -> None:
    """Start a task, let it process all that is there, commit, and let go of it."""
    task.start()
    try:
        drain(task)
        if task.has_open_transaction:
            assert task.commit()
    finally:
        task.drop()


def test_keys_values_timestamps_and_headers_pass_through(job: Job) -> None:
    """Bytes in, bytes out: nulls, empties, several headers with null values and one name."""
    records = [
        Record(b"k", b"v", 1_000),
        Record(b"k", None, 2_000),
        Record(b"k", b"", 3_000, [("h", b"1"), ("h", None)]),
        Record(None, b"\xff\x00", 4_000, [("trace", b"\xff")]),
        Record(b"k", b"last", 5_000),
    ]
    job.write(*records)
    run_once(job.task(job.replica(ProcessorType.FORWARD)))
    found = job.read(job.config.sink_topic)
    by_time = sorted(found, key=lambda record: record.timestamp)
    assert [replace(record, partition=0) for record in by_time] == records


@pytest.mark.parametrize("partition", [0, 1])
def test_record_without_a_key_keeps_its_partition(job: Job, partition: int) -> None:
    job.write(*(Record(None, b"%d" % n, n + 1, partition=partition) for n in range(20)))
    run_once(job.task(job.replica(ProcessorType.FORWARD, partition=partition)))
    found = job.read(job.config.sink_topic)
    assert [(r.partition, r.value) for r in found] == [(partition, b"%d" % n) for n in range(20)]


def test_committed_offset_is_that_of_the_last_record_plus_one(job: Job) -> None:
    job.write(*(Record(b"k", b"1", n + 1) for n in range(7)))
    assert job.committed() is None
    run_once(job.task(job.replica(ProcessorType.SUM)))
    assert job.committed() == 7


def test_nothing_of_a_dropped_transaction_is_seen_and_it_is_replayed(job: Job) -> None:
    """What is not committed did not happen; the next owner does it once."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    replica = job.replica(ProcessorType.COUNT)
    lost = job.task(replica)
    lost.start()
    drain(lost)
    lost.drop()
    assert job.committed() is None
    run_once(job.task(replica))
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"1", b"2", b"3", b"4", b"5"]
    assert job.committed() == 5


def test_former_owner_is_fenced_and_commits_nothing(job: Job) -> None:
    """The new owner's start ends the old one's right to write, whatever that one believes."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    replica = job.replica(ProcessorType.COUNT)
    zombie = job.task(replica, tm_id=0)
    zombie.start()
    drain(zombie)
    run_once(job.task(replica, tm_id=1))
    with pytest.raises(FencedError):
        zombie.commit()
    zombie.drop()
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"1", b"2", b"3", b"4", b"5"]


def test_rejected_record_fails_the_task_after_committing_what_came_before(job: Job) -> None:
    job.write(*(Record(b"k", value, 1) for value in (b"1", b"2", b"x", b"4")))
    task = job.task(job.replica(ProcessorType.SUM, OnError.FAIL))
    with pytest.raises(RecordFailedError, match=r"\[0\]@2: the value is no integer"):
        run_once(task)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"3"]
    assert job.committed() == 2


def test_rejected_record_is_skipped_and_counted(job: Job) -> None:
    job.write(*(Record(b"k", value, 1) for value in (b"x", b"1", b"", b"2", None)))
    task = job.task(job.replica(ProcessorType.SUM, OnError.SKIP))
    run_once(task)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"3"]
    status = task.status()
    assert (status.records_in, status.records_out, status.skipped) == (5, 2, 3)
    assert job.committed() == 5


def test_dead_letter_is_the_record_with_the_reason_in_headers(job: Job) -> None:
    """The headers are those of KIP-1034, behind the record's own."""
    job.write(Record(b"k", b"1", 1), Record(b"k", b"x", 77, [("own", b"h")]))
    run_once(job.task(job.replica(ProcessorType.SUM, OnError.DEAD_LETTER)))
    (letter,) = job.read(job.names.dead_letter("P"))
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"x", 77)
    assert letter.headers == [
        ("own", b"h"),
        ("__streams.errors.exception", b"RecordRejected"),
        ("__streams.errors.message", b"the value is no integer"),
        ("__streams.errors.topic", job.config.source_topic.encode()),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"1"),
    ]


@pytest.mark.parametrize("on_error", [OnError.FAIL, OnError.SKIP])
def test_output_that_is_too_large_follows_on_error(job: Job, on_error: OnError) -> None:
    """With `fail` nothing of the transaction comes out, as later records may be in the state."""
    job.config = replace(job.config, kafka={"producer.message.max.bytes": 2000})
    job.write(Record(b"k", b"1", 1), Record(b"k", b"7" * 2500, 1), Record(b"k", b"3", 1))
    task = job.task(job.replica(ProcessorType.SUM, on_error))
    if on_error is OnError.FAIL:
        with pytest.raises(RecordFailedError, match=r"\[0\]@1: the output is larger"):
            run_once(task)
        assert job.read(job.config.sink_topic) == []
        assert job.committed() is None
    else:
        run_once(task)
        assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"4"]
        assert task.status().skipped == 1


def test_restart_on_the_same_host_reads_no_state_again(job: Job) -> None:
    """The store has the state topic's offset in the same write batch."""
    replica = job.replica(ProcessorType.COUNT)
    job.write(*(Record(b"key %d" % n, b"", 1) for n in range(100)))
    run_once(job.task(replica))
    again = job.task(replica)
    again.start()
    again.drop()
    # Nothing but the marker of the transaction is left to step over.
    assert again.status().to_restore <= 1


def test_another_host_restores_everything_and_the_first_one_only_the_difference(job: Job) -> None:
    replica = job.replica(ProcessorType.COUNT)
    job.write(*(Record(b"key %d" % n, b"", 1) for n in range(100)))
    run_once(job.task(replica, tm_id=0))
    job.write(*(Record(b"key %d" % n, b"", 2) for n in range(10)))
    elsewhere = job.task(replica, tm_id=1)
    run_once(elsewhere)
    assert elsewhere.status().restored >= 100
    back = job.task(replica, tm_id=0)
    job.write(Record(b"key 0", b"", 3), Record(b"key 50", b"", 3))
    run_once(back)
    assert 10 <= back.status().restored < 20
    found = {r.key: r.value for r in job.read(job.config.sink_topic) if r.timestamp == 3}
    assert found == {b"key 0": b"3", b"key 50": b"2"}


def test_restore_sees_committed_state_behind_a_dead_writers_open_transaction(job: Job) -> None:
    """`read_committed` ends before the oldest open transaction; the high watermark does not."""
    replica = job.replica(ProcessorType.COUNT)
    job.write(*(Record(b"k", b"", 1) for _ in range(3)))
    run_once(job.task(replica))
    dead = job.task(replica)
    dead.start()
    job.write(*(Record(b"k", b"", 2) for _ in range(3)))
    drain(dead)
    dead._producer.send_state(job.names.state("P"), 0, dict(dead._store.uncommitted))  # type: ignore[union-attr]
    dead._producer._producer.flush(10)  # type: ignore[union-attr]
    dead._store.close()  # type: ignore[union-attr]
    elsewhere = job.task(replica, tm_id=1)
    run_once(elsewhere)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"%d" % n for n in range(1, 7)]


def test_store_ahead_of_its_topic_is_wiped_and_restored(job: Job) -> None:
    """An offset that the topic does not have means that the content is of another life."""
    replica = job.replica(ProcessorType.COUNT)
    job.write(Record(b"k", b"", 1))
    run_once(job.task(replica))
    tampered = job.task(replica)
    tampered.start()
    tampered._store.restore({b"k": b"99"}, 1000)  # type: ignore[union-attr]
    tampered.drop()
    job.write(Record(b"k", b"", 2))
    run_once(job.task(replica))
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"1", b"2"]


def test_start_that_is_cancelled_ends_during_the_restore(job: Job) -> None:
    task = job.task(job.replica(ProcessorType.COUNT))
    task.cancel()
    with pytest.raises(StartCancelledError):
        task.start()
    task.drop()


def test_idle_task_commits_its_position_anew(job: Job) -> None:
    """Else the brokers would forget it after `offsets.retention.minutes`."""
    task = job.task(job.replica(ProcessorType.FORWARD))
    task.start()
    assert not task.needs_refresh
    assert task.refresh()
    task.drop()
    assert job.committed() == 0


class ScriptedChannel:
    """A driver channel without a driver: commands are put in, messages are taken out."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.is_lost = False
        self.silent_s = 0.0

    @property
    def last_heard_s(self) -> float:
        return time.monotonic() - self.silent_s

    def receive(self, wait_s: float = 0) -> dict[str, Any] | None:
        return self.commands.pop(0) if self.commands else None

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


class Thread:
    """A PipelineThread that is stepped by hand."""

    def __init__(self, job: Job, tm_id: int) -> None:
        self.channel = ScriptedChannel()
        self.thread = PipelineThread(job.context(tm_id), self.channel)  # type: ignore[arg-type]

    def assign(self, replica: ProcessorReplica) -> None:
        self.channel.commands.append(
            {
                "type": "assign",
                "replica": replica.to_json(),
                "parameters": replica.parameters(),
                "epoch": 0,
            }
        )

    def step(self) -> None:
        self.thread._obey()
        self.thread._watch_lease()
        self.thread._watch_starts()
        self.thread._work()
        self.thread._report()

    def state(self) -> TaskState | None:
        for task in self.thread._tasks.values():
            return task.state
        return None


def step_until(condition: Any, *threads: Thread, timeout_s: float = 30) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it does not come to that"
        for thread in threads:
            thread.step()


def test_task_that_two_threads_believe_to_own_stays_with_one(job: Job) -> None:
    """The zombie takes it back once at most, is fenced again, and gives it up without a commit."""
    replica = job.replica(ProcessorType.COUNT)
    zombie, owner = Thread(job, 0), Thread(job, 1)
    zombie.assign(replica)
    step_until(lambda: zombie.state() is TaskState.RUNNING, zombie)
    owner.assign(replica)
    step_until(lambda: owner.state() is TaskState.RUNNING, owner)
    written = itertools.count()

    def settled() -> bool:
        job.write(Record(b"k", b"", next(written) + 1))
        return not zombie.thread._tasks or not owner.thread._tasks

    step_until(settled, zombie, owner)
    survivor = owner if owner.thread._tasks else zombie
    total = next(written)
    step_until(lambda: (job.committed() or 0) >= total, survivor)
    values = [r.value for r in job.read(job.config.sink_topic)]
    assert values == [b"%d" % n for n in range(1, total + 1)]


def test_thread_without_a_word_from_its_driver_gives_its_tasks_up(job: Job) -> None:
    thread = Thread(job, 0)
    thread.assign(job.replica(ProcessorType.FORWARD))
    step_until(lambda: thread.state() is TaskState.RUNNING, thread)
    thread.channel.silent_s = 2.0
    thread.step()
    assert {"type": "closed", "task": "P_0"} in thread.channel.sent
    assert not thread.thread._tasks


def test_deleted_record_at_the_committed_offset_fails_the_task(job: Job) -> None:
    """Retention that passed a task is a loss: it says so instead of skipping."""
    replica = job.replica(ProcessorType.FORWARD)
    job.write(*(Record(b"k", b"1", n + 1) for n in range(3)))
    run_once(job.task(replica))
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    job.admin.delete_before({(job.config.source_topic, 0): 6})
    thread = Thread(job, 0)
    thread.assign(replica)
    step_until(lambda: thread.state() is TaskState.FAILED, thread)
    (task,) = thread.thread._tasks.values()
    assert "offset" in task.status().reason
