"""The lag of tasks on a real Kafka: every record that waits, and no marker in its place."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer

from kafka_pipeline.common.kafka.offsets import FirstRecord, Offsets
from kafka_pipeline.common.pipelines.specs import ClassSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager import lag_watch
from tests.tasks import Job, Record, Thread, step_until

pytestmark = pytest.mark.integration

TASK = TaskId("P", 0)


@pytest.fixture
def close_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is a close one."""
    monkeypatch.setattr(lag_watch, "CLOSE_LOOK_S", 0.0)


def figures(thread: Thread) -> Mapping[str, int]:
    """Let the brokers be asked; return what the task reports then."""
    thread.thread._context.lag_watch.look()
    return thread.status(TASK).figures


def lag(thread: Thread) -> int | None:
    return figures(thread).get("lag")


def end(job: Job) -> int:
    place = (job.config.source_topic, 0)
    return Offsets(job.config, job.admin).stable_ends([place])[place]


def write_transactions(job: Job, *records: int) -> None:
    """Write so many records to the source in each transaction; each ends with a marker."""
    servers = job.config.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": job.config.source_topic})
    producer.init_transactions(30)
    for count in records:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(job.config.source_topic, b"1", b"k", 0, timestamp=1)
        producer.commit_transaction(30)


def test_lag_counts_what_waits_and_no_markers_behind_it(job: Job) -> None:
    thread = Thread(job, 0)
    thread.assign(job.replica(ForwardSpec()))
    step_until(lambda: thread.state() is TaskState.RUNNING, thread)
    step_until(lambda: lag(thread) == 0, thread)
    write_transactions(job, 3, 2)
    step_until(lambda: end(job) == 7)  # the markers may be a moment late
    assert lag(thread) == 7
    step_until(lambda: lag(thread) == 0, thread)
    assert job.committed() == 6
    thread.close()
    # Nor those before the next owner, which begins between them.
    owner = Thread(job, 1)
    owner.assign(job.replica(ForwardSpec()))
    step_until(lambda: owner.state() is TaskState.RUNNING, owner)
    step_until(lambda: lag(owner) == 0, owner)
    owner.close()


def test_lag_does_not_count_what_an_open_transaction_has_written(job: Job) -> None:
    """It must not be read yet."""
    thread = Thread(job, 0)
    thread.assign(job.replica(ForwardSpec()))
    step_until(lambda: thread.state() is TaskState.RUNNING, thread)
    step_until(lambda: lag(thread) == 0, thread)
    servers = job.config.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": job.config.source_topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(job.config.source_topic, b"1", b"k", 0)
    assert producer.flush(30) == 0
    assert job.admin.high_watermarks([(job.config.source_topic, 0)]).popitem()[1] == 1
    assert lag(thread) == 0
    producer.commit_transaction(30)
    step_until(lambda: end(job) == 2)
    assert lag(thread) == 2
    step_until(lambda: lag(thread) == 0, thread)
    thread.close()


@pytest.mark.usefixtures("close_looks")
def test_lag_of_a_task_that_has_failed_goes_on_to_grow(job: Job) -> None:
    """The record that it failed at is the oldest one that waits."""
    now_ms = int(time.time() * 1000)
    job.write(Record(b"k", b"1", 1), Record(b"k", b"x", now_ms - 60_000), Record(b"k", b"3", 3))
    thread = Thread(job, 0)
    thread.assign(job.replica(SumSpec()))
    thread.step()
    step_until(lambda: thread.state() is TaskState.FAILED, thread)
    assert lag(thread) == 2
    assert 60_000 <= figures(thread)["oldest_waiting_ms"] < 120_000
    job.write(*(Record(b"k", b"1", 4) for _ in range(10)))
    assert lag(thread) == 12
    thread.close()


@pytest.mark.usefixtures("close_looks")
def test_lag_of_a_task_that_never_came_to_ask_for_its_offset_is_that_of_its_group(job: Job) -> None:
    job.write(*(Record(b"k", b"1", 1) for _ in range(5)))
    job.set_committed(2)
    thread = Thread(job, 0)
    thread.assign(_without_code(job))
    thread.step()
    step_until(lambda: thread.state() is TaskState.FAILED, thread)
    assert lag(thread) == 3
    thread.close()


def _without_code(job: Job) -> ProcessorReplica:
    return job.replica(ClassSpec(code="no_such_module:Class"))


def test_first_record_at_or_after_an_offset_is_found(job: Job) -> None:
    source = job.config.source_topic
    write_transactions(job, 2, 1)
    step_until(lambda: end(job) == 5)
    job.write(Record(b"k", b"1", 77, partition=1))
    offsets = Offsets(job.config, job.admin)
    assert offsets.first_records({(source, 0): 2, (source, 1): 0}) == {
        (source, 0): FirstRecord(3, 1),
        (source, 1): FirstRecord(0, 77),
    }
    assert offsets.first_records({(source, 0): 4}) == {(source, 0): FirstRecord(5, None)}
    job.admin.delete_before({(source, 1): 1})
    assert offsets.first_records({(source, 1): 0}) == {}


def test_what_brokers_do_not_know_is_left_out(job: Job) -> None:
    source = (job.config.source_topic, 0)
    offsets = Offsets(job.config, job.admin)
    job.write(Record(b"k", b"1", 1))
    assert offsets.stable_ends([source, ("no_such_topic", 0), (source[0], 99)]) == {source: 1}
    assert offsets.committed("no_such_group", [source]) == {}
