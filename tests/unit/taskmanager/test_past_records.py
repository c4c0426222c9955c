"""Records from a table come before those of the brokers, each once, and never block the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec, SourceSpec
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.taskmanager import past_start
from kafka_pipeline.taskmanager.past_records import PastRecords, wait_for_any
from kafka_pipeline.taskmanager.shared_consumers import CannotRead
from tests.small_config import SMALL_CONFIG
from tests.unit.taskmanager.test_shared_consumers import FULL, MOST, P, Q, QueueTask, Rig

Read = Callable[[int, int], RecordBatch]
SPEC = HistorySpec(format="parquet", path="lake", written_by="shop/Orders", record_columns={})


def rows(*offsets: int, size: int = 10) -> Read:
    """Return the reader of a table with rows of these offsets."""

    def read(start: int, end: int) -> RecordBatch:
        found = [offset for offset in offsets if start <= offset < end]
        values = [b"v" * size] * len(found)
        return RecordBatch(*P, [None] * len(found), values, [0] * len(found), found)

    return read


def all_of(past: PastRecords) -> list[int]:
    found: list[int] = []
    while not past.is_done:
        wait_for_any([past], 10)
        if (batch := past.take(MOST)) is not None:
            assert len(batch) <= MOST
            found += batch.offsets
    return found


def add(rig: Rig, name: str, past: PastRecords, at: int = 0) -> QueueTask:
    task = QueueTask(name, {P: at})
    task.past[P] = past
    rig.consumers.add(task.id, task)
    return task


def fetch_all(rig: Rig, *tasks: QueueTask) -> None:
    while any(task.past for task in tasks):
        wait_for_any([past for task in tasks for past in task.past.values()], 0.1)
        rig.fetch()
        for task in tasks:
            task.process()
    rig.fetch_all(*tasks)


def test_all_rows_come_in_order_whatever_holes_there_are() -> None:
    offsets = [3, 4, *range(1_500, 4_000), 900_000]
    assert all_of(PastRecords(rows(*offsets), 0, 1_000_000)) == offsets
    assert all_of(PastRecords(rows(*offsets), 1_600, 1_700)) == [*range(1_600, 1_700)]
    assert all_of(PastRecords(rows(), 0, 5)) == []


def test_chunks_get_smaller_with_large_values() -> None:
    asked: list[int] = []
    read = rows(*range(1_100), size=100_000)

    def counted(start: int, end: int) -> RecordBatch:
        asked.append(end - start)
        return read(start, end)

    assert all_of(PastRecords(counted, 0, 1_100)) == [*range(1_100)]
    assert asked[0] == 100
    assert max(asked[1:]) < 100


def test_a_task_goes_on_with_the_brokers_where_the_table_ends(rig: Rig) -> None:
    rig.topic.write(P, 60)
    rig.topic.starts[P] = 30
    task = add(rig, "a", PastRecords(rows(*range(0, 38, 2)), 0, 40))

    fetch_all(rig, task)

    assert task.got[P] == [*range(0, 38, 2), *range(40, 60)]
    assert task.ends[-1] == (P, 60)


def test_tasks_with_the_same_partition_do_not_wait_for_each_other(rig: Rig) -> None:
    rig.topic.write(P, 50)
    gate = threading.Event()

    def slow(start: int, end: int) -> RecordBatch:
        gate.wait(30)
        return rows(*range(50))(start, end)

    behind, ahead = add(rig, "behind", PastRecords(slow, 0, 40)), rig.task("ahead", p=45)
    rig.fetch_all(ahead)
    assert ahead.got[P] == [*range(45, 50)]
    assert behind.got[P] == []
    gate.set()
    fetch_all(rig, behind, ahead)
    assert behind.got[P] == [*range(50)]
    assert ahead.got[P] == [*range(45, 50)]


def test_a_full_task_gets_no_more_rows(rig: Rig) -> None:
    past = PastRecords(rows(*range(500)), 0, 500)
    task = add(rig, "a", past)
    wait_for_any([past], 10)
    for _ in range(20):
        rig.fetch()
    assert len(task.got[P]) == FULL
    assert not rig.consumers.have_room
    task.process()
    assert rig.consumers.have_room


def test_a_table_that_cannot_be_read_stops_its_task_alone(rig: Rig) -> None:
    def fail(start: int, end: int) -> RecordBatch:
        raise TransactionFailedError("the file is gone")

    rig.topic.write(Q, 3)
    past = PastRecords(fail, 0, 5)
    lost, other = add(rig, "lost", past), rig.task("other", q=0)
    wait_for_any([past], 10)
    (error,) = [each for each in rig.consumers.fetch(0) if isinstance(each, CannotRead)]
    assert (error.task, str(error.error)) == (lost.id, "the file is gone")
    rig.consumers.remove(lost.id, lost)
    rig.consumers.remove(other.id, other)
    again = rig.task("again", q=0)
    rig.fetch_all(again)
    assert again.got[Q] == [0, 1, 2]


def test_a_task_that_is_removed_gets_nothing_more(rig: Rig) -> None:
    past = PastRecords(rows(*range(50)), 0, 50)
    task = add(rig, "a", past)
    wait_for_any([past], 10)
    rig.consumers.remove(task.id, task)
    rig.fetch_all(task)
    assert task.got[P] == []


@pytest.fixture
def rig() -> Rig:
    return Rig()


class Table:
    """A table that ends at offset 40 of each partition but for 2, which it does not know."""

    opened: list[int]

    def __init__(self, spec: HistorySpec, topic: str, topic_id: str, partition: int) -> None:
        self.opened.append(partition)
        self.end = 40 if partition != 2 else 0
        self.place, self.application = (
            spec.path,
            f"{spec.written_by}/{topic}/{topic_id}/{partition}",
        )

    def skip_empty(self, start: int) -> int:
        return start

    def read(self, start: int, end: int) -> RecordBatch:
        return rows(*range(40))(start, end)


def begun(
    monkeypatch: pytest.MonkeyPatch, oldest: int, at: int, partition: int = 0
) -> dict[Partition, PastRecords]:
    Table.opened = []
    monkeypatch.setattr("kafka_pipeline.streams.tables.history.History", Table)
    brokers: Any = SimpleNamespace(
        oldest_offsets=lambda places: dict.fromkeys(places, oldest),
        topic_ids=lambda topics: dict.fromkeys(topics, "7"),
    )
    places = {("in", partition): at, ("other", partition): 0}
    return past_start.open_past({"in": SPEC}, places, brokers)


def test_only_what_the_brokers_do_not_have_is_read_from_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert begun(monkeypatch, oldest=0, at=0) == {}
    assert begun(monkeypatch, oldest=30, at=30) == {}
    assert Table.opened == []
    for oldest in (30, 40):
        past = begun(monkeypatch, oldest=oldest, at=5)["in", 0]
        assert past.end == 40
        assert all_of(past) == [*range(5, 40)]


def test_task_without_a_partition_of_the_topic_has_nothing_of_its_history(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{SMALL_CONFIG}tables: {{paths: [lake]}}\n")
    config = load_config(tmp_path / "config.yaml")
    sources = {"old": SourceSpec(history=SPEC)}
    topics = {"old": "old_topic", "new": "new_topic"}
    reader = PipelineProcessor("Read", ForwardSpec(), ("sink",), tuple(topics), topics=topics)
    pipeline = Pipeline(
        (replace(reader, sources=sources),), config.topic_names, 1, {"new_topic": 2}
    )
    found = [past_start.histories_of(each, config.tables) for each in replicas(pipeline)]
    assert [[*each] for each in found] == [["old_topic"], []]


@pytest.mark.parametrize(
    ("oldest", "at", "partition", "missing"),
    [(41, 0, 0, "1 offset "), (60, 50, 0, "10 offsets "), (9, 0, 2, "9 offsets ")],
)
def test_records_that_are_in_neither_are_an_error_that_says_how_many(
    monkeypatch: pytest.MonkeyPatch, oldest: int, at: int, partition: int, missing: str
) -> None:
    with pytest.raises(NonRetriableError, match=missing) as caught:
        begun(monkeypatch, oldest, at, partition)
    assert f"`pipeline reset` with --to-offset {oldest}" in str(caught.value)
    assert f"shop/Orders/in/7/{partition}" in str(caught.value)
