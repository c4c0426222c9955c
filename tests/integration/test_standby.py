"""Copies of state on other TaskManagers, on a real Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.pipelines.specs import COUNT_STORE, CountSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.taskmanager.channel_messages import Ask
from kafka_pipeline.taskmanager.standby_task import StandbyTask
from kafka_pipeline.taskmanager.state_answers import StateAnswers
from tests.tasks import Job, Record, Thread, drain, run_once, step_until

pytestmark = pytest.mark.integration

KEYS = 50


def copy_of(replica: ProcessorReplica) -> ProcessorReplica:
    return replace(replica, task=replica.task.copy(1))


def status(thread: Thread, replica: ProcessorReplica) -> TaskStatus:
    return thread.status(replica.task)


def write(job: Job, times: int) -> None:
    job.write(*(Record(b"k%d" % (n % KEYS), b"v", n + 1) for n in range(times * KEYS)))


def is_warm(thread: Thread, copy: ProcessorReplica) -> bool:
    seen = status(thread, copy)
    return (
        seen.state is TaskState.STANDBY
        and seen.count("records_in") >= KEYS
        and has_all(thread, copy)
    )


def has_all(thread: Thread, copy: ProcessorReplica) -> bool:
    running = thread.thread._tasks[copy.task].running
    return running is not None and running.is_caught_up


def test_task_goes_on_where_its_copy_is_and_reads_next_to_nothing(job: Job) -> None:
    count = job.replica(CountSpec())
    first, second = Thread(job, 0), Thread(job, 1)
    first.assign(count)
    second.assign(copy_of(count))
    step_until(lambda: second.state() is TaskState.STANDBY, first, second)
    write(job, 4)
    step_until(
        lambda: job.committed() == 4 * KEYS and is_warm(second, copy_of(count)),
        first,
        second,
    )
    asked = Ask(1, "get", copy_of(count).task, COUNT_STORE, {"key": "k0"})
    answers = StateAnswers(second.thread._tasks, lambda _: 0, lambda _: None)
    found = answers.answer(asked).body
    assert (found["standby"], found["entries"]) == (True, [{"key": "k0", "value": 4}])
    first.close()
    # As the JobManager sends it: in one command, the revocation first.
    second.revoke(copy_of(count).task)
    second.assign(count)
    step_until(lambda: second.state() is TaskState.RUNNING, second)
    assert second.thread.tasks == [count.task]
    seen = status(second, count)
    assert seen.count("to_restore") <= 2
    write(job, 1)
    step_until(lambda: job.committed() == 5 * KEYS, second)
    assert max(int(record.value or b"") for record in job.read(job.config.sink_topic)) == 5
    second.close()


def test_copy_shows_nothing_of_a_transaction_that_was_dropped(job: Job) -> None:
    count = job.replica(CountSpec())
    write(job, 1)
    dying = job.task(count)
    dying.start()
    drain(dying)
    dying.running.stores.send(dying.running._producer, 0)
    copy, owner = Thread(job, 1), Thread(job, 0)
    copy.assign(copy_of(count))
    step_until(lambda: copy.state() is TaskState.RESTORING, copy)
    dying.drop()
    job.write(Record(b"late", b"v", 1))
    owner.assign(count)
    step_until(lambda: job.committed() == KEYS + 1, owner, copy)
    step_until(lambda: copy.state() is TaskState.STANDBY, owner, copy)
    task = copy.thread._tasks[copy_of(count).task].running
    assert isinstance(task, StandbyTask)
    assert isinstance(task, StandbyTask)
    (store,) = task.stores.stores.values()
    step_until(lambda: store.get(b"late") == b"1", copy)
    assert {store.get(b"k%d" % n) for n in range(KEYS)} == {b"1"}
    copy.close()
    owner.close()


def test_copy_that_comes_back_reads_the_difference_alone(job: Job) -> None:
    count = job.replica(CountSpec())
    owner = Thread(job, 0)
    owner.assign(count)
    write(job, 3)
    step_until(lambda: job.committed() == 3 * KEYS, owner)
    copy = Thread(job, 1)
    copy.assign(copy_of(count))
    step_until(lambda: copy.state() is TaskState.STANDBY, copy)
    assert status(copy, copy_of(count)).count("to_restore") >= KEYS
    copy.revoke(copy_of(count).task)
    step_until(lambda: not copy.thread.tasks, copy)
    copy.assign(copy_of(count))
    step_until(lambda: copy.state() is TaskState.STANDBY, copy)
    assert status(copy, copy_of(count)).count("to_restore") <= 2
    copy.close()
    owner.close()


def test_copy_whose_restore_fails_does_not_say_that_a_wiped_store_is_complete(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its store was wiped, it is no longer at the position that it had before."""
    count = job.replica(CountSpec())
    write(job, 3)
    run_once(job.task(count))
    copy = job.task(copy_of(count), tm_id=1)
    copy.start()
    assert copy.assigned.running is not None
    assert copy.assigned.running.read
    copy.drop()
    for current in job.config.state_dir.glob("*/taskmanager_1/*/*/CURRENT"):
        current.write_text("damaged")

    def fail(*_: object) -> None:
        raise TransactionFailedError("no broker answers")

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "high_watermarks", fail)
        with pytest.raises(TransactionFailedError, match="no broker"):
            copy.start()
    copy.start()
    assert copy.assigned.start is not None
    assert copy.assigned.start.to_restore >= KEYS
    copy.drop()
