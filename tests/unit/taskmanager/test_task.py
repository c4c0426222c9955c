"""What a task does in which order, with a producer and a reader that only take notes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from common.kafka import task_producer
from common.kafka.clients import Partition, TransactionFailedError
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from streams import LogAndSkipOnInvalidTimestamp, Processor, SupplierError, TopologyBuilder
from streams.stores.rocksdb import RocksDBStore
from streams.topology import NodeGroup
from taskmanager import task as task_module
from taskmanager.assigned_task import StartCancelledError, TaskContext
from taskmanager.global_stores import GlobalStores
from taskmanager.task import Task
from taskmanager.task_stores import store_identity
from tests.unit.taskmanager.fakes import CONFIG, FakeClients, batch, replica


class NotingProducer:
    """A librdkafka producer that takes note of what it is told."""

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

    def purge(self) -> None:
        pass


class NotingReader:
    """A reader whose group has committed an offset of one partition, 0."""

    group_metadata = None

    def committed(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, int]:
        return {p: 0 for p in partitions if p[1] == 0}

    def watermarks(self, partition: Partition, timeout_s: float) -> tuple[int, int]:
        return -5, 9

    def close(self) -> None:
        pass


class SharedReader:
    """The reader of the PipelineThread, which would stand still if a start asked it anything."""

    def known_end(self, partition: Partition) -> int:
        return -1


class Broker:
    """What a task asks an `Admin`."""

    def topic_ids(self, names: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "id")

    def size_limits(self, names: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(names, 1_000_000)


def make(notes: list[str], partition: int, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return a started task that writes its steps, and the fault points on its way, to `notes`."""
    for module in (task_producer, task_module):
        monkeypatch.setattr(module, "reach", lambda point: notes.append(f"({point})"))
    monkeypatch.setattr(task_producer, "Producer", lambda _: NotingProducer(notes))
    shared: Any = SharedReader()
    clients = FakeClients(Broker(), NotingReader)
    stores = GlobalStores(CONFIG, 0, 0, clients)
    context = TaskContext(CONFIG, 0, 0, "cluster", clients, shared, stores)
    task = Task(replica(partition), context, epoch=0)
    task.start()
    return task


def test_fault_points_lie_before_the_fence_and_between_the_steps_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    task = make(notes, 0, monkeypatch)
    task.process(batch(0))
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


def test_dropped_records_are_logged_and_counted_by_reason_once_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of a batch in one line, however many they are."""

    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in", timestamp_extractor=LogAndSkipOnInvalidTimestamp())
        builder.add_sink("sink", "out", "source")
        return builder.build().groups[0]

    monkeypatch.setattr(Task, "_node_group", lambda _: group())
    with capture_logs() as logs:
        task = make([], 0, monkeypatch)
        task.process(RecordBatch("in", 0, [b"k"] * 3, [b"v"] * 3, [-1, 1, -1], [0, 1, 2]))
    assert task.status().dropped == {}
    task.commit()
    assert task.status().dropped == {"invalid timestamp": 2}
    lines = [entry for entry in logs if entry["event"] == "records dropped"]
    assert [(line["log_level"], line["records"]) for line in lines] == [
        ("warning", {"in: invalid timestamp": 2})
    ]


def test_a_supplier_that_fails_may_succeed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does not stop the task for good, as a mistake in a topology does."""

    def fail() -> Processor:
        raise OSError("away for now")

    def group() -> NodeGroup:
        builder = TopologyBuilder()
        builder.add_source("source", "in")
        builder.add_processor("p", fail, "source")
        return builder.build().groups[0]

    monkeypatch.setattr(Task, "_node_group", lambda _: group())
    with pytest.raises(SupplierError):
        make([], 0, monkeypatch)


@pytest.mark.parametrize(("partition", "position"), [(0, 0), (1, -5)])
def test_task_starts_at_the_committed_offset_or_at_the_oldest_record(
    partition: int, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the partition in either case, so that reading begins without a delay."""
    task = make([], partition, monkeypatch)
    assert task.positions == {("in", partition): position}


def test_status_can_be_told_whatever_its_reason_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as half of an emoji, which JSON can have and UTF-8 cannot."""
    task = make([], 0, monkeypatch)
    task.fail("nobody knows \ud83d")
    told = TaskStatus.from_json(json.loads(json.dumps(task.status().to_json())))
    assert told.reason == "nobody knows \\ud83d"


def test_restore_that_got_more_than_there_was_takes_no_negative_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner of a standby's state goes on writing."""
    task = make([], 0, monkeypatch)
    task.state = TaskState.RESTORING
    now_s = iter((100.0, 200.0))
    monkeypatch.setattr("taskmanager.assigned_task.time.monotonic", lambda: next(now_s, 200.0))
    task._progress(0, 50)
    task._progress(100, 50)
    assert task.status().restore_eta_s == 0


def test_start_that_was_cancelled_in_time_fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    task = make(notes, 0, monkeypatch)
    task.drop()
    notes.clear()
    task.cancel()
    with pytest.raises(StartCancelledError):
        task.start()
    assert "init" not in " ".join(notes)


def test_start_that_fails_counts_as_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task that fails to start, but has once committed, would never pause."""
    task = make([], 0, monkeypatch)
    task.process(batch(0))
    task.commit()
    assert task.has_committed
    task.drop()

    def fail(*_: object) -> NotingProducer:
        raise TransactionFailedError("no")

    monkeypatch.setattr(task_producer, "Producer", fail)
    with pytest.raises(TransactionFailedError):
        task.start()
    assert not task.has_committed


def test_store_that_was_copied_from_another_taskmanager_is_wiped(tmp_path: Path) -> None:
    """What it holds is as old as the copy, and its offset may be a valid one all the same."""

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
