"""Single tasks and PipelineThreads on a real Kafka, without Spark: transactions, fences, state."""

from __future__ import annotations

import gc
import itertools
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    COUNT_STORE,
    ClassSpec,
    CountSpec,
    ForwardSpec,
    SumSpec,
)
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.task_start import StartCancelledError, refresh_failed
from tests.tasks import Job, Record, Thread, drain, run_once, step_until

pytestmark = pytest.mark.integration


def kafka_clients() -> int:
    """Return how many clients of librdkafka this process has: each has one main thread."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            names.append(path.read_text().strip())
    return names.count("rdk:main")


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
    run_once(job.task(job.replica(ForwardSpec())))
    found = job.read(job.config.sink_topic)
    by_time = sorted(found, key=lambda record: record.timestamp)
    assert [replace(record, partition=0) for record in by_time] == records


@pytest.mark.parametrize("partition", [0, 1])
def test_record_without_a_key_keeps_its_partition(job: Job, partition: int) -> None:
    job.write(*(Record(None, b"%d" % n, n + 1, partition=partition) for n in range(20)))
    run_once(job.task(job.replica(ForwardSpec(), partition=partition)))
    found = job.read(job.config.sink_topic)
    assert [(r.partition, r.value) for r in found] == [(partition, b"%d" % n) for n in range(20)]


def test_committed_offset_is_that_of_the_last_record_plus_one(job: Job) -> None:
    job.write(*(Record(b"k", b"1", n + 1) for n in range(7)))
    assert job.committed() is None
    run_once(job.task(job.replica(SumSpec())))
    assert job.committed() == 7


def test_task_does_not_go_back_to_where_it_has_been(job: Job) -> None:
    """The broker has not loaded all offsets, or has lost some."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(7)))
    task = job.task(job.replica(SumSpec()))
    run_once(task)
    job.set_committed(3)
    with pytest.raises(TransactionFailedError, match=r"\[0\] has gone from 7 back to 3"):
        task.start()
    job.set_committed(7)
    job.write(Record(b"k", b"1", 8))
    run_once(task)
    assert [record.value for record in job.read(job.config.sink_topic)] == [b"2"] * 8


def test_task_of_a_taskmanager_that_was_started_again_takes_the_offset_that_is_set(
    job: Job,
) -> None:
    job.write(*(Record(b"k", b"1", n + 1) for n in range(7)))
    replica = job.replica(SumSpec())
    run_once(job.task(replica))
    job.set_committed(5)
    run_once(job.task(replica))
    assert len(job.read(job.config.sink_topic)) == 9


def test_task_with_state_refuses_to_begin_anew_if_its_group_is_deleted(job: Job) -> None:
    """By an operator, or by the brokers after `offsets.retention.minutes`."""
    job.write(*(Record(b"k", b"", n + 1) for n in range(8)))
    replica = job.replica(CountSpec())
    run_once(job.task(replica))
    group = job.names.consumer_group("P")
    for answer in job.admin_client.delete_consumer_groups([group]).values():
        answer.result(30)
    with pytest.raises(NonRetriableError, match=f"group {group} has no offset of "):
        job.task(replica, tm_id=1).start()
    assert job.committed() is None
    # As `pipeline reset --to-offset 8 --state keep` does it.
    job.set_committed(8)
    job.write(Record(b"k", b"", 9))
    run_once(job.task(replica, tm_id=1))
    counts = [record.value for record in job.read(job.config.sink_topic)]
    assert counts == [b"%d" % n for n in range(1, 10)]


def test_two_processors_that_read_one_topic_go_on_each_where_it_was(job: Job) -> None:
    one = job.replica(ForwardSpec())
    other = replace(one, task=TaskId("Other", 0))
    job.write(Record(b"k", b"1", 0))
    run_once(job.task(one))
    job.write(Record(b"k", b"2", 0))
    run_once(job.task(other))
    for replica in (one, other):
        run_once(job.task(replica))
    assert [record.value for record in job.read(job.config.sink_topic)] == [b"1", b"1", b"2", b"2"]


def test_nothing_of_a_dropped_transaction_is_seen_and_it_is_replayed(job: Job) -> None:
    """Uncommitted work did not happen; the next owner does it once."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    replica = job.replica(CountSpec())
    lost = job.task(replica)
    lost.start()
    drain(lost)
    lost.drop()
    assert job.committed() is None
    run_once(job.task(replica))
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"1", b"2", b"3", b"4", b"5"]
    assert job.committed() == 5


def test_task_that_is_dropped_leaves_no_producer_behind(job: Job) -> None:
    """This holds even if it is unknown whether its state was delivered."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    task = job.task(job.replica(CountSpec()))

    def begin_a_commit() -> None:
        task.start()
        drain(task)
        task.running.stores.send(task.running._producer, 0)
        task.drop()

    gc.collect()
    gc.disable()
    try:
        before = kafka_clients()
        for _ in range(3):
            begin_a_commit()
        deadline_s = time.monotonic() + 30
        while kafka_clients() > before:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
    finally:
        gc.enable()


def test_former_owner_is_fenced_and_commits_nothing(job: Job) -> None:
    """The new owner's start ends the old one's right to write, whatever that one believes."""
    job.write(*(Record(b"k", b"1", n + 1) for n in range(5)))
    replica = job.replica(CountSpec())
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
    task = job.task(job.replica(SumSpec(), OnError.FAIL))
    with pytest.raises(ProcessingFailedError, match=r"\[0\]@2: the value is not an integer"):
        run_once(task)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"3"]
    assert job.committed() == 2


def test_rejected_record_is_skipped_and_counted(job: Job) -> None:
    job.write(*(Record(b"k", value, 1) for value in (b"x", b"1", b"", b"2", None)))
    task = job.task(job.replica(SumSpec(), OnError.SKIP))
    run_once(task)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"3"]
    status = task.status()
    assert [status.count(name) for name in ("records_in", "records_out", "skipped")] == [5, 2, 3]
    assert job.committed() == 5


def test_dead_letter_is_the_record_with_the_reason_in_headers(job: Job) -> None:
    """The headers are those of KIP-1034, behind the record's own."""
    job.write(Record(b"k", b"1", 1), Record(b"k", b"x", 77, [("own", b"h")]))
    run_once(job.task(job.replica(SumSpec(), OnError.DEAD_LETTER)))
    (letter,) = job.read(job.names.dead_letter("P"))
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"x", 77)
    assert letter.headers == [
        ("own", b"h"),
        ("__streams.errors.exception", b"RecordRejected"),
        ("__streams.errors.message", b"the value is not an integer"),
        ("__streams.errors.topic", job.config.source_topic.encode()),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"1"),
        ("__streams.errors.processor", b"P"),
    ]


@pytest.mark.parametrize(
    ("on_error", "counter"),
    [(OnError.SKIP, "skipped"), (OnError.DEAD_LETTER, "dead_letters")],
)
def test_rejected_records_count_on_when_the_task_moves(
    job: Job, on_error: OnError, counter: str
) -> None:
    replica = job.replica(SumSpec(), on_error)
    for tm_id, total in enumerate((2, 4, 6)):
        job.write(*(Record(b"k", value, 1) for value in (b"x", b"1", b"y")))
        task = job.task(replica, tm_id=tm_id)
        run_once(task)
        status = task.status()
        assert [status.count(name) for name in ("records_in", counter)] == [3, total]
        if counter == "dead_letters":
            assert status.count("dead_letters_per_minute") == 2
    assert job.committed_position() == Committed(
        9, 1, *((6, 0) if counter == "skipped" else (0, 6)), leader_epoch=0
    )


@pytest.mark.parametrize("on_error", [OnError.FAIL, OnError.SKIP])
def test_output_that_is_too_large_follows_on_error(job: Job, on_error: OnError) -> None:
    """With `fail`, the records before it are processed, and none after it."""
    job.config = replace(job.config, kafka={"producer.message.max.bytes": "2000"})
    job.write(Record(b"k", b"1", 1), Record(b"k", b"7" * 2500, 1), Record(b"k", b"3", 1))
    task = job.task(job.replica(SumSpec(), on_error))
    if on_error is OnError.FAIL:
        with pytest.raises(ProcessingFailedError, match=r"\[0\]@1: the output is larger"):
            run_once(task)
        assert [r.value for r in job.read(job.config.sink_topic)] == [b"2"]
        assert job.committed() == 1
    else:
        run_once(task)
        assert [r.value for r in job.read(job.config.sink_topic)] == [b"2", b"4"]
        assert task.status().count("skipped") == 1


def test_restart_on_the_same_host_reads_no_state_again(job: Job) -> None:
    """The store has the state topic's offset in the same write batch."""
    replica = job.replica(CountSpec())
    job.write(*(Record(b"key %d" % n, b"", 1) for n in range(100)))
    run_once(job.task(replica))
    again = job.task(replica)
    again.start()
    again.drop()
    # Nothing but the marker of the transaction is left to step over.
    assert again.status().count("to_restore") <= 1


def test_another_host_restores_everything_and_the_first_one_only_the_difference(job: Job) -> None:
    replica = job.replica(CountSpec())
    job.write(*(Record(b"key %d" % n, b"", 1) for n in range(100)))
    run_once(job.task(replica, tm_id=0))
    job.write(*(Record(b"key %d" % n, b"", 2) for n in range(10)))
    elsewhere = job.task(replica, tm_id=1)
    run_once(elsewhere)
    assert elsewhere.status().count("restored") >= 100
    back = job.task(replica, tm_id=0)
    job.write(Record(b"key 0", b"", 3), Record(b"key 50", b"", 3))
    run_once(back)
    assert 10 <= back.status().count("restored") < 20
    found = {r.key: r.value for r in job.read(job.config.sink_topic) if r.timestamp == 3}
    assert found == {b"key 0": b"3", b"key 50": b"2"}


def test_restore_sees_committed_state_behind_a_dead_writers_open_transaction(job: Job) -> None:
    """`read_committed` ends before the oldest open transaction; the high watermark does not."""
    replica = job.replica(CountSpec())
    job.write(*(Record(b"k", b"", 1) for _ in range(3)))
    run_once(job.task(replica))
    dead = job.task(replica)
    dead.start()
    job.write(*(Record(b"k", b"", 2) for _ in range(3)))
    drain(dead)
    dead.running.stores.send(dead.running._producer, 0)
    dead.running._producer._producer.client.flush(10)  # type: ignore[attr-defined]
    dead.running.stores.close()
    elsewhere = job.task(replica, tm_id=1)
    run_once(elsewhere)
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"%d" % n for n in range(1, 7)]


def test_store_ahead_of_its_topic_is_wiped_and_restored(job: Job) -> None:
    """An offset that the topic does not have means that the content is of another life."""
    replica = job.replica(CountSpec())
    job.write(Record(b"k", b"", 1))
    run_once(job.task(replica))
    tampered = job.task(replica)
    tampered.start()
    tampered.running.stores.stores[COUNT_STORE].restore({b"k": b"99"}, 1000)
    tampered.drop()
    job.write(Record(b"k", b"", 2))
    run_once(job.task(replica))
    assert [r.value for r in job.read(job.config.sink_topic)] == [b"1", b"2"]


def test_start_that_is_cancelled_ends_during_the_restore(job: Job) -> None:
    task = job.task(job.replica(CountSpec()))
    task.cancel()
    with pytest.raises(StartCancelledError):
        task.start()


def test_idle_task_commits_its_position_anew(job: Job) -> None:
    """Else the brokers would forget it after `offsets.retention.minutes`."""
    task = job.task(job.replica(ForwardSpec()))
    task.start()
    assert not task.running.needs_refresh
    task.running.refresh()
    task.drop()
    assert job.committed() == 0


def test_position_of_a_failed_task_is_committed_again(job: Job) -> None:
    job.write(Record(b"k", b"1", 1))
    task = job.task(job.replica(ForwardSpec()))
    run_once(task)
    before = offset_commits(job)
    refresh_failed(task.assigned.replica, job.context(), task.assigned.memory)
    assert offset_commits(job) > before
    assert job.committed() == 1


def test_task_that_starts_again_knows_what_time_it_was(job: Job) -> None:
    job.config = replace(job.config, modules=("tests.user_code",))
    replica = job.replica(ClassSpec(code="tests.user_code.timing:Clock"))

    def found() -> list[bytes | None]:
        return [r.value for r in job.read(job.config.sink_topic) if r.key == b"k"]

    job.write(Record(b"k", b"1", 2_000), Record(b"k", b"2", 1_000))
    task = job.task(replica)
    run_once(task)
    assert job.committed_position() == Committed(2, 2_000, leader_epoch=0)
    task.start()
    task.running.refresh()
    task.drop()
    refresh_failed(replica, job.context(), task.assigned.memory)
    job.write(Record(b"k", b"3", 500))
    run_once(job.task(replica, tm_id=1))
    assert found() == [b"1 at 2000 of 2000", b"2 at 1000 of 2000", b"3 at 500 of 2000"]
    assert job.committed_position() == Committed(3, 2_000, leader_epoch=0)
    # An operator who sets an offset gives no time.
    job.set_committed(2)
    assert job.committed_position() == Committed(2)
    run_once(job.task(replica))
    assert found()[3:] == [b"3 at 500 of 500"]


def offset_commits(job: Job) -> int:
    """Return how many records and markers Kafka's own topic of committed offsets has."""
    topic = "__consumer_offsets"
    partitions = [(topic, number) for number in range(job.admin.topics()[topic])]
    return sum(job.admin.high_watermarks(partitions).values())


def test_task_that_two_threads_believe_to_own_stays_with_one(job: Job) -> None:
    """The zombie takes it back once at most, is fenced again, and gives it up without a commit."""
    replica = job.replica(CountSpec())
    zombie, owner = Thread(job, 0), Thread(job, 1)
    zombie.assign(replica)
    step_until(lambda: zombie.state() is TaskState.RUNNING, zombie)
    owner.assign(replica)
    step_until(lambda: owner.state() is TaskState.RUNNING, owner)
    written = itertools.count()

    def settled() -> bool:
        job.write(Record(b"k", b"", next(written) + 1))
        return not zombie.thread.tasks or not owner.thread.tasks

    step_until(settled, zombie, owner)
    survivor = owner if owner.thread.tasks else zombie
    total = next(written)
    step_until(lambda: (job.committed() or 0) >= total, survivor)
    values = [r.value for r in job.read(job.config.sink_topic)]
    assert values == [b"%d" % n for n in range(1, total + 1)]


def test_thread_without_a_word_from_its_driver_gives_its_tasks_up(job: Job) -> None:
    thread = Thread(job, 0)
    thread.assign(job.replica(ForwardSpec()))
    step_until(lambda: thread.state() is TaskState.RUNNING, thread)
    thread.channel.silent_s = 2.0
    step_until(lambda: channel_messages.Closed(TaskId("P", 0)) in thread.channel.sent, thread)
    assert not thread.thread.tasks
