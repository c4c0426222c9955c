"""The order of a task's steps, with a producer and a reader that only record calls."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from confluent_kafka import TopicPartition
from structlog.testing import capture_logs

from kafka_pipeline import (
    AsyncProcessor,
    Batch,
    BatchProcessor,
    LogAndSkipOnInvalidTimestamp,
    Processor,
    Record,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import ExistingTopic
from kafka_pipeline.common.typed_json import as_json, from_json
from kafka_pipeline.streams.engine.figures import TaskFigures, late_of
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import Dropped
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.taskmanager import task as task_module
from kafka_pipeline.taskmanager import task_start
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.clients import Reader
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.running_task import TaskMemory
from kafka_pipeline.taskmanager.task import BUFFERED_BYTES, Task
from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.task_start import ProcessorStart, StartCancelledError
from kafka_pipeline.taskmanager.task_stores import store_identity
from kafka_pipeline.taskmanager.thread_events import FailureKind
from kafka_pipeline.taskmanager.user_errors import UserCodeError
from tests.unit.taskmanager.fakes import (
    CONFIG,
    TIMEOUT_S,
    FakeAdmin,
    FakeBrokers,
    FakeReader,
    batch,
    replica,
)
from tests.unit.taskmanager.noting import COMMITTED_MS, NotingProducer, assigned_to, start

TASK = replica(0).task


def test_fault_points_lie_before_the_fence_and_between_the_steps_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    task = start(assigned_to(notes, 0, monkeypatch))
    task.add(batch(0))
    task.turn(inf)
    assert notes[-1] == "produce"
    task.commit()
    assert notes == [
        "(before-fence)",
        "init",
        "begin",
        "(before-produce)",
        "produce",
        "(before-offsets)",
        "offsets",
        "(before-commit)",
        "(during-commit)",
        "commit",
        "(after-commit)",
    ]


def test_offsets_are_committed_with_the_time_of_the_records_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed: list[tuple[int, str]] = []

    def note(_: object, places: Sequence[TopicPartition], *rest: object) -> None:
        committed.extend((place.offset, place.metadata or "") for place in places)

    monkeypatch.setattr(NotingProducer, "send_offsets_to_transaction", note)
    assigned = assigned_to([], 0, monkeypatch, passing)
    task = start(assigned)
    task.refresh()
    task.add(replace(batch(0), timestamps=[COMMITTED_MS - 1]))
    task.turn(inf)
    task.commit()
    task.add(replace(batch(0, offset=1), timestamps=[COMMITTED_MS + 1]))
    task.add(replace(batch(0, offset=2), timestamps=[COMMITTED_MS + 2]))
    task.turn(until_s=0)
    task.commit()
    task.refresh()
    context = assigned._context
    task_start.refresh_failed(assigned.replica, context, TaskMemory())
    at, later = f"2:{COMMITTED_MS}:0:0", f"2:{COMMITTED_MS + 1}:0:0"
    assert committed == [(0, at), (1, at), (2, later), (2, later), (0, at)]


@pytest.mark.parametrize(
    ("known", "is_all"), [(-1001, False), (0, False), (1, True), (2, True), (3, False)]
)
def test_records_of_a_query_wait_for_those_that_the_reader_knows_of(
    monkeypatch: pytest.MonkeyPatch, known: int, is_all: bool
) -> None:
    """The last offset may be the marker of a transaction."""
    assigned = assigned_to([], 0, monkeypatch, passing)
    query = replace(assigned.replica, spec=SqlSpec(query="SELECT * FROM input"))
    task = start(AssignedTask(query, assigned._context, 0))
    reader = FakeReader()
    reader.known = known
    task.readers["in", 0] = cast("Reader", reader)
    task.add(batch(0))
    assert (task.turn(inf).took_all, task.has_uncommitted) == (is_all, is_all)
    task.turn(inf)
    assert task.has_uncommitted


def test_dead_letters_are_in_the_log_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000_000
    monkeypatch.setattr(task_module, "monotonic_ms", lambda: now_ms)
    assigned = assigned_to([], 0, monkeypatch, refusing)
    given = replace(assigned.replica, on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
    task = start(AssignedTask(given, assigned._context, 0))
    with capture_logs() as logs:
        for offset, passed_ms in enumerate((0, 59_999, 1)):
            now_ms += passed_ms
            task.add(batch(0, offset=offset))
            task.turn(inf)
            task.commit()
    told = [(log["topic"], log["total"]) for log in logs if "dead letters" in log["event"]]
    assert told == [("dead", 1), ("dead", 3)]


def test_nothing_is_sent_while_user_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that was open meanwhile could outlive its timeout."""
    notes: list[str] = []
    task = start(assigned_to(notes, 0, monkeypatch, passing))
    notes.clear()
    for number in range(3):
        task.add(batch(0, offset=number))
        task.turn(inf)
    assert (notes, task.has_uncommitted, task.transaction_age_s) == ([], True, 0.0)
    task.commit()
    assert [note for note in notes if note[0] != "("] == [
        "begin",
        "produce",
        "produce",
        "produce",
        "offsets",
        "commit",
    ]
    assert not task.has_uncommitted


def test_a_store_is_not_committed_while_calls_by_key_are_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outputs of later records would be committed without their offsets, and repeated."""
    answers: dict[bytes, Future[None]] = {b"slow": Future(), b"quick": Future()}
    woken = Event()
    answers[b"quick"].set_result(None)

    class Ask(AsyncProcessor):
        ordered = "key"

        async def process(self, record: Record) -> Record:
            await asyncio.wrap_future(answers[record.value])
            return record

    class Keep(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("S").put(record.key, record.value)

    def asking() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("ask", Ask, "source")
        builder.add_processor("keep", Keep, "ask")
        store = stores.key_value("S", serdes.bytes, serdes.bytes, persistent=False, logged=False)
        builder.add_state_store(store, ["keep"])
        return builder.build().groups[0]

    assigned = assigned_to([], 0, monkeypatch, asking)
    task = assigned.new_start(woken.set).run()
    task.add(RecordBatch("in", 0, [b"a", b"b"], [b"slow", b"quick"], [1, 2], [0, 1]))
    task.turn(time.monotonic() + TIMEOUT_S)
    assert woken.wait(TIMEOUT_S)
    task.turn(time.monotonic() + TIMEOUT_S)
    assert (task.has_calls, task.has_uncommitted) == (True, False)
    answers[b"slow"].set_result(None)
    while task.has_calls:
        task.turn(time.monotonic() + TIMEOUT_S)
    assert task.has_uncommitted
    task.close()


def passing() -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_sink("sink", "out", "source")
    return builder.build().groups[0]


class Refusing(Processor):
    def process(self, record: Record) -> None:
        """Reject the record."""
        raise ValueError("no good")


def refusing() -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("Refusing", Refusing, "source")
    return builder.build().groups[0]


class Swallowing(BatchProcessor):
    def process(self, batch: Batch) -> None:
        """Forward nothing."""


def swallowing() -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("nothing", Swallowing, "source")
    return builder.build().groups[0]


def test_a_partition_is_full_by_records_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is fetched for it; what waits beyond that comes with what others fetch."""
    task = start(assigned_to([], 0, monkeypatch, swallowing))
    partition = ("in", 0)

    def fill(count: int, size: int) -> tuple[bool, bool]:
        first = task.read[partition]
        offsets = range(first, first + count)
        columns = [b"k"] * count, [bytes(size)] * count, [1] * count
        task.add(RecordBatch("in", 0, *columns, offsets))
        return task.is_full(partition), task.is_overfull(partition)

    assert not task.is_full(partition)
    assert fill(999, 1) == (False, False)
    assert fill(1, 1) == (True, False)
    assert fill(4 * CONFIG.max_batch_records, 1) == (True, True)
    assert not task.is_caught_up
    task.turn(inf)
    assert (task.is_full(partition), task.is_overfull(partition)) == (False, False)
    assert fill(1, BUFFERED_BYTES - 1) == (False, False)
    assert fill(1, 1) == (True, False)
    assert fill(3, BUFFERED_BYTES) == (True, True)
    task.turn(inf)
    assert fill(1, 1) == (False, False)


def skipping() -> NodeGroup:
    """Return a group that drops records without a timestamp."""
    builder = TopologyBuilder()
    builder.add_source("source", "in", timestamp_extractor=LogAndSkipOnInvalidTimestamp())
    builder.add_sink("sink", "out", "source")
    return builder.build().groups[0]


def test_dropped_records_are_logged_and_counted_by_reason_once_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log has all of them in one line, and the next line a minute later at the earliest."""

    with capture_logs() as logs:
        assigned = assigned_to([], 0, monkeypatch, skipping)
        task = start(assigned)
        task.add(RecordBatch("in", 0, [b"k"] * 3, [b"value"] * 3, [-1, 1, -1], [0, 1, 2]))
        task.turn(inf)
        assert assigned.memory.figures == TaskFigures()
        task.commit()
        assigned.warn_of_dropped()
        task.add(RecordBatch("in", 0, [b"k"], [b"value"], [-1], [3]))
        task.turn(inf)
        task.commit()
        assigned.warn_of_dropped()
    assert assigned.memory.figures.dropped_by_reason == {"invalid timestamp": 3}
    assert assigned.memory.dropped_in_minute(int(time.monotonic() * 1000)) == {
        "invalid timestamp": 3
    }
    assert assigned.memory.figures.sent_bytes == len(b"value")
    lines = [entry for entry in logs if entry["event"] == "records left out of the results"]
    assert [(line["log_level"], line["records"]) for line in lines] == [
        ("warning", {"in: invalid timestamp": 2})
    ]


@pytest.mark.parametrize("topic", ["in", "state"])
def test_topic_that_was_created_again_fails_a_task_that_starts_again(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input takes the committed offsets with it, and a state topic the state."""
    ids = {topic: "first"}
    monkeypatch.setattr(
        FakeAdmin,
        "existing_topics",
        lambda _, names: {name: ExistingTopic(ids.get(name, ""), 6) for name in names},
    )
    task = assigned_to([], 0, monkeypatch)
    task.replica = replace(task.replica, state_topics={"Counts": "state"})
    for _ in range(2):
        start(task).close()
    ids[topic] = "second"
    with pytest.raises(NonRetriableError, match=rf"{topic}\[0\]: the topic was deleted and cre"):
        start(task)


def test_a_store_that_only_the_code_here_has_fails_the_task_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a pipeline is applied, and a TaskManager still has the former code of a topology."""

    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("count", Refusing, "source")
        builder.add_state_store(stores.key_value("S", serdes.bytes, serdes.bytes), ["count"])
        return builder.build().groups[0]

    with pytest.raises(NonRetriableError, match=r'keeps the store "S" .* restart the TaskManager'):
        start(assigned_to([], 0, monkeypatch, group))


def test_counts_of_dropped_records_travel_with_the_offsets() -> None:
    """The next owner goes on from them, and its log has only those that it drops itself."""
    memory = TaskMemory()
    memory.resume_counts([Committed(7, 5, 1, 2, None, (("expired", 20_933), ("null key", 1)))])
    memory.resume_counts([Committed(9, 5, 1, 2, None, (("expired", 20_933),))])
    assert late_of(memory.figures.dropped_by_reason) == 20_933
    assert not memory.dropped_to_log(0)
    dropped = Counter({Dropped("expired", "Counts"): 2})
    memory.commit_figures(TaskFigures(dropped=dropped), 0)
    assert memory.figures.dropped_by_reason == {"expired": 20_935, "null key": 1}
    assert memory.dropped_in_minute(1) == {"expired": 2}
    assert memory.dropped_to_log(0) == dropped


def test_a_task_commits_what_it_has_ever_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assigned = assigned_to([], 0, monkeypatch, skipping)
    assigned.memory.resume_counts([Committed(0, dropped=(("expired", 5),))])
    task = start(assigned)
    task.add(RecordBatch("in", 0, [b"k"] * 2, [b"value"] * 2, [-1, 1], [0, 1]))
    task.turn(inf)
    task.commit()
    assert isinstance(task, Task)
    ((_, at),) = task._positions.items()
    assert at.dropped == (("expired", 5), ("invalid timestamp", 1))


def test_a_supplier_that_fails_may_succeed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does not stop the task for good, as a mistake in a topology does."""

    def fail() -> Processor:
        raise OSError("away for now")

    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("p", fail, "source")
        return builder.build().groups[0]

    assigned = assigned_to([], 0, monkeypatch, group)
    with pytest.raises(UserCodeError) as raised:
        start(assigned)
    assert assigned.failure_of(raised.value).kind is FailureKind.NOT_MADE


@pytest.mark.parametrize(("partition", "position"), [(0, 0), (1, 5)])
def test_task_starts_at_the_committed_offset_or_at_the_oldest_record(
    partition: int, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the partition in either case, so that reading begins without a delay."""
    task = start(assigned_to([], partition, monkeypatch))
    assert task.read == {("in", partition): position}


def test_status_can_be_told_whatever_its_reason_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as half of an emoji, which JSON can have and UTF-8 cannot."""
    status = assigned_to([], 0, monkeypatch).status(Phase.FAILED, 0, "nobody knows \ud83d")
    told = from_json(TaskStatus, json.loads(json.dumps(as_json(status))), "a status")
    assert told.reason == "nobody knows \\ud83d"


def test_restore_that_got_more_than_there_was_takes_no_negative_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner of a standby's state goes on writing."""
    start = assigned_to([], 0, monkeypatch).new_start()
    start.state = TaskState.RESTORING
    now_s = iter((100.0, 200.0))
    monkeypatch.setattr(
        "kafka_pipeline.taskmanager.task_start.time.monotonic", lambda: next(now_s, 200.0)
    )
    start._progress(0, 50)
    start._progress(100, 50)
    assert start.restore_eta_s == 0


def test_start_that_was_cancelled_in_time_fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    start = assigned_to(notes, 0, monkeypatch).new_start()
    start.cancel()
    with pytest.raises(StartCancelledError):
        start.run()
    assert notes == ["(before-fence)"]


def test_start_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No producer and no store stay open; the next start finds both free."""
    notes: list[str] = []
    assigned = assigned_to(notes, 0, monkeypatch)

    def fail(*_: object) -> None:
        raise TransactionFailedError("no")

    with monkeypatch.context() as patch:
        patch.setattr(ProcessorStart, "_make_nodes", fail)
        patch.setattr(TaskProducer, "close", lambda _: notes.append("close"))
        with pytest.raises(TransactionFailedError):
            start(assigned)
    assert notes[-1] == "close"
    start(assigned)


def test_store_that_was_copied_from_another_taskmanager_is_wiped(tmp_path: Path) -> None:
    """Its content is as old as the copy, and its offset may still be valid."""

    def open_store(tm_id: int) -> RocksDBStore:
        identity = store_identity(replica(0), "cluster", tm_id)
        return RocksDBStore(tmp_path / str(tm_id), identity)

    store = open_store(0)
    store.put(b"key", b"value")
    store.commit(7)
    store.close()
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    copied, original = open_store(1), open_store(0)
    assert (copied.offset, copied.get(b"key")) == (None, None)
    assert (original.offset, original.get(b"key")) == (7, b"value")
    copied.close()
    original.close()


def watch_of(end: int) -> LagWatch:
    """Return a LagWatch of the task's partition, which ends there."""
    brokers = FakeBrokers()
    brokers.ends["in", 0] = end
    watch = LagWatch(CONFIG, brokers)
    watch.watch(replica(0))
    watch.look()
    return watch


def test_lag_falls_with_the_commit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of(3)
    task = start(assigned_to([], 0, monkeypatch, watch=watch))
    task.add(RecordBatch("in", 0, [b"k"] * 3, [b"v"] * 3, [1, 2, 3], [0, 1, 2]))
    assert watch.figures(TASK)["lag"] == 3
    task.turn(inf)
    assert watch.figures(TASK)["lag"] == 3
    task.commit()
    assert watch.figures(TASK)["lag"] == 0


def test_lag_does_not_count_markers_that_the_task_has_read_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the end is reached before the commit or after it."""
    watch = watch_of(5)
    task = start(assigned_to([], 0, monkeypatch, watch=watch))
    task.add(RecordBatch("in", 0, [b"k"] * 3, [b"v"] * 3, [1, 2, 3], [0, 1, 2]))
    task.reached_end(("in", 0), 4)
    task.turn(inf)
    assert watch.figures(TASK)["lag"] == 5
    task.commit()
    assert watch.figures(TASK)["lag"] == 1
    task.reached_end(("in", 0), 5)
    assert watch.figures(TASK)["lag"] == 0


def test_record_that_waits_for_another_input_has_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", ["in", "other"])
        builder.add_sink("sink", "out", "source")
        return builder.build().groups[0]

    brokers = FakeBrokers()
    brokers.ends |= {("in", 0): 3, ("other", 0): 0}
    watch = LagWatch(CONFIG, brokers, now_ms=lambda: 5000)
    assigned = assigned_to([], 0, monkeypatch, group, watch, ("in", "other"))
    watch.watch(assigned.replica)
    watch.look()
    task = start(assigned)
    task.add(RecordBatch("in", 0, [b"k"] * 2, [b"v"] * 2, [1500, 1600], [0, 1]))
    task.turn(inf)
    figures = watch.figures(TASK)
    assert (figures["lag"], figures["oldest_waiting_ms"]) == (3, 3500)
    task.reached_end(("other", 0), 0)
    task.turn(inf)
    assert watch.figures(TASK) == {"lag": 3}


def test_task_whose_schema_registry_is_away_starts_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assigned = assigned_to([], 0, monkeypatch)
    failure = assigned.failure_of(UnavailableError("the registry does not answer"))
    assert (failure.kind, failure.reason) == (
        FailureKind.TRANSIENT,
        "the registry does not answer",
    )
    assert "Traceback" not in "".join(capsys.readouterr())


def test_task_that_starts_again_says_that_its_process_may_open_no_more_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assigned = assigned_to([], 0, monkeypatch)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        failure = assigned.failure_of(TransactionFailedError("no answer in 60 s"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (failure.kind, failure.reason) == (
        FailureKind.NO_FILES,
        "no answer in 60 s; the process has reached its limit of open files and sockets: raise it "
        "(`ulimit -n`, or LimitNOFILE of systemd)",
    )


def test_task_that_starts_again_says_that_its_process_may_start_no_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assigned = assigned_to([], 0, monkeypatch)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    failure = assigned.failure_of(TransactionFailedError("no answer in 60 s"))
    assert failure.kind is FailureKind.TRANSIENT
    assert failure.reason.startswith("no answer in 60 s; the limit of processes and threads is")


def test_task_whose_pipeline_is_wrong_is_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    assigned = assigned_to([], 0, monkeypatch)
    failure = assigned.failure_of(ConfigError("rows of another query"))
    assert (failure.kind, failure.reason) == (FailureKind.FATAL, "rows of another query")
