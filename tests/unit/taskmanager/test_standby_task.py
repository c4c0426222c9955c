"""Copies of stores with windows: they drop what the store has dropped, and nothing before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from kafka_pipeline import serdes, stores
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.stores import StoreBuilder, Window, Windowed
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.streams.stores.segments import MIN_SEGMENT_MS, SegmentedStore
from kafka_pipeline.taskmanager.running_task import TaskMemory
from kafka_pipeline.taskmanager.standby_task import StandbyTask
from kafka_pipeline.taskmanager.task_stores import TaskStores

NOW = 1_767_225_600_000 // MIN_SEGMENT_MS * MIN_SEGMENT_MS
DAY_MS = 86_400_000
TOPIC = "state"
WINDOWS = stores.window(
    "s", serdes.string, serdes.int64, retention_ms=MIN_SEGMENT_MS, window_size_ms=1000
)
SESSIONS = stores.session("s", serdes.string, serdes.int64, retention_ms=MIN_SEGMENT_MS)


class Pair:
    """A store and its copy, which reads the state topic."""

    def __init__(self, builder: StoreBuilder[Any, Any], directory: Path) -> None:
        self._offset = 0
        self.bytes = builder.open(directory / "owner", {})
        self.store: Any = builder.build(self.bytes)
        self._copies = TaskStores([builder], {"s": TOPIC}, StoreResources())
        self._copies.open(directory / "copy", {}, {TOPIC: "id"})
        copy = self._copies.build(builder)
        assert isinstance(copy, SegmentedStore)
        self.copy: Any = copy
        self.task = StandbyTask(
            self._copies,
            {(TOPIC, 0): copy},
            {(TOPIC, 0): 0},
            lambda _: None,
            TaskMemory(),
            structlog.get_logger(),
        )

    def put(self, time: int) -> None:
        if self.store.entry_time == "window":
            self.store.put("a", 1, time)
        else:
            self.store.put(Windowed("a", Window(time, time)), 1)

    def commit(self) -> None:
        changes = dict(self.bytes.uncommitted)
        start, self._offset = self._offset, self._offset + len(changes) + 1
        offsets = range(start, self._offset - 1)
        self.bytes.commit(self._offset)
        if changes:
            times = [NOW] * len(changes)
            self.task.add(RecordBatch(TOPIC, 0, [*changes], [*changes.values()], times, offsets))

    def entries(self) -> Mapping[bytes, bytes]:
        """Return what both have."""
        (copy,) = self._copies.stores.values()
        found = dict(self.bytes.entries())
        assert dict(copy.entries()) == found
        return found

    def close(self) -> None:
        self.bytes.close()
        self.task.release()


@pytest.fixture(params=[WINDOWS, SESSIONS], ids=["window", "session"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(request.param, tmp_path)
    yield made
    made.close()


def test_a_copy_keeps_what_a_step_that_is_behind_still_needs(pair: Pair) -> None:
    """One of the tasks that feed the step is a day behind the others."""
    pair.store.follow(NOW - DAY_MS)
    for minute in range(3):
        pair.put(NOW + minute * MIN_SEGMENT_MS)
        pair.put(NOW - DAY_MS + minute * MIN_SEGMENT_MS)
        pair.commit()
    assert len(pair.entries()) == 6
    pair.store.go_on(NOW - DAY_MS // 2)
    pair.commit()
    pair.put(NOW + 3 * MIN_SEGMENT_MS)
    pair.commit()
    assert len(pair.entries()) == 4


def test_a_copy_of_a_store_that_goes_by_its_entries_drops_what_has_expired(pair: Pair) -> None:
    for minute in range(10):
        pair.put(NOW + minute * MIN_SEGMENT_MS)
        pair.commit()
        assert len(pair.entries()) <= 3
    pair.put(NOW + DAY_MS)
    pair.commit()
    pair.put(NOW + DAY_MS)
    pair.commit()
    assert len(pair.entries()) == 1
