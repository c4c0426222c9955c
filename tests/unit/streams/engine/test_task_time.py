"""Partition times and stream time of a task: what counts, what is committed, and restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    Processor,
    PunctuationType,
    Record,
    TopologyBuilder,
    UsePartitionTimeOnInvalidTimestamp,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.task_time import TaskTime
from tests.unit.streams.nodes import Each, Tasks, Whole, batch, chain

A, B = ("a", 0), ("b", 0)
IN = ("in", 0)
FAIL = GroupSettings()
SKIP = GroupSettings(on_error=OnError.SKIP)


class Stamp(Processor):
    """Forwards each record with the stream time as its value."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(b"%d" % self.context.stream_time))


class StampWhole(BatchProcessor):
    """Does the same with batches."""

    def process(self, batch: Batch) -> None:
        now_ms, found = self.context.stream_time, []
        for timestamp in batch.timestamps:
            now_ms = max(now_ms, timestamp)
            found.append(b"%d" % now_ms)
        self.context.forward(batch.with_values(found))


STAMPS = pytest.mark.parametrize("stamp", [Stamp, StampWhole])


def timed(timestamps: Sequence[int], offset: int = 0) -> RecordBatch:
    return batch([b""] * len(timestamps), timestamps=timestamps, offset=offset)


def values(task: Tasks, *batches: RecordBatch) -> list[bytes | None]:
    return [value for _, _, value, _ in task.run(*batches)]


# The owner


def test_times_are_unknown_at_first() -> None:
    time = TaskTime([A, B])
    assert (time.stream_time, time.taken_in(A), time.processed(A)) == (-1, -1, -1)


def test_times_never_go_back_and_stream_time_is_the_largest() -> None:
    time = TaskTime([A, B])
    seen = []
    for partition, time_ms in [(A, 5), (B, 3), (A, 4), (B, 9)]:
        time.process(partition, time_ms)
        seen.append((time.processed(A), time.processed(B), time.stream_time))
    assert seen == [(5, -1, 5), (5, 3, 5), (5, 3, 5), (5, 9, 9)]


def test_records_that_only_wait_do_not_count_for_what_is_committed() -> None:
    time = TaskTime([A])
    time.take_in(A, 8)
    assert (time.taken_in(A), time.processed(A), time.stream_time) == (8, -1, -1)


def test_times_go_on_from_what_is_committed() -> None:
    time = TaskTime([A, B], {A: 100, B: 50})
    assert time.stream_time == 100
    assert (time.taken_in(A), time.processed(B)) == (100, 50)


# In a task


@STAMPS
@pytest.mark.parametrize("cut", range(5))
def test_stream_time_depends_neither_on_batches_nor_on_restarts(stamp: Any, cut: int) -> None:
    times = [3, 9, 4, 12, 1]
    task = Tasks(chain(stamp), FAIL)
    first = values(task, timed(times[:cut])) if cut else []
    committed = {IN: task.task.partition_time(IN)}
    rest = timed(times[cut:], offset=cut)
    expected = [b"3", b"9", b"9", b"12", b"12"]
    assert [*first, *values(task, rest)] == expected
    assert [*first, *values(Tasks(chain(stamp), FAIL, times=committed), rest)] == expected


def test_stream_time_after_a_restart_is_the_largest_partition_time() -> None:
    builder = TopologyBuilder().add_source("1", ["a", "b"]).add_processor("2", Stamp, ["1"])
    (group,) = builder.add_sink("3", "out", ["2"]).build().groups
    task = Tasks(group, FAIL, times={A: 7, B: 5})
    assert values(task, batch([b""], timestamps=[6], topic="b")) == [b"7"]
    assert (task.task.partition_time(A), task.task.partition_time(B)) == (7, 6)


@pytest.mark.parametrize("failing", [Each, Whole])
def test_a_rejected_record_counts(failing: Any) -> None:
    task = Tasks(chain(failing), SKIP)
    task.run(batch([b"1", b"bad", b"2"], timestamps=[3, 9, 4]))
    assert task.task.partition_time(IN) == 9


@pytest.mark.parametrize("failing", [Each, Whole])
def test_the_time_of_a_record_that_stops_the_task_is_not_committed(failing: Any) -> None:
    task = Tasks(chain(failing), FAIL)
    with pytest.raises(ProcessingFailedError):
        task.run(batch([b"1", b"2", b"bad", b"3"], timestamps=[3, 5, 9, 12]))
    assert (task.task.position(IN), task.task.partition_time(IN)) == (2, 5)


def test_records_behind_a_position_in_the_middle_of_a_batch_do_not_count() -> None:
    task = Tasks(chain(Stamp), FAIL)
    task.task.add(timed([1, 5, 9]))
    done = []
    while task.task.step(0, task.partitions, until_s=0).has_more:
        done.append((task.task.position(IN), task.task.partition_time(IN)))
    assert done == [(1, 1), (2, 5)]


def test_a_record_that_cannot_be_read_does_not_count() -> None:
    task = Tasks(chain(Stamp), SKIP)
    bad = batch([b""], timestamps=[50])
    bad.error = "headers cannot be read"
    assert values(task, bad, timed([7], offset=1)) == [b"7"]
    assert task.task.partition_time(IN) == 7


def with_extractor(extractor: Any) -> NodeGroup:
    builder = TopologyBuilder().add_source("1", "in", timestamp_extractor=extractor)
    builder.add_processor("2", Stamp, ["1"])
    return builder.add_sink("3", "out", ["2"]).build().groups[0]


def test_a_record_without_a_timestamp_leaves_an_unknown_time_unknown() -> None:
    group = with_extractor(UsePartitionTimeOnInvalidTimestamp())
    task = Tasks(group, SKIP)
    assert values(task, timed([-1, -1])) == []
    assert task.task.partition_time(IN) == -1
    assert values(task, timed([4, -1], offset=2)) == [b"4", b"4"]


def test_an_extractor_gets_the_time_of_what_was_taken_in_on_top_of_what_is_committed() -> None:
    seen: list[int] = []

    def extract(record: Any, partition_time: int) -> int:
        seen.append(partition_time)
        return int(record.timestamp)

    task = Tasks(with_extractor(extract), FAIL, times={IN: 4})
    task.task.add(timed([3, 8]))
    task.task.add(timed([5], offset=2))
    assert seen == [4, 4, 8]
    assert task.task.partition_time(IN) == 4


def punctuating(interval_ms: int) -> Callable[[], Processor]:
    class Punctuating(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(interval_ms, PunctuationType.STREAM_TIME, self.tick)

        def process(self, record: Record) -> None:
            pass

        def tick(self, time: int) -> None:
            self.context.forward(Record(None, b"tick %d" % time, time))

    return Punctuating


@pytest.mark.parametrize("cut", range(6))
def test_punctuations_by_stream_time_do_not_depend_on_restarts(cut: int) -> None:
    times = [3, 9, 12, 11, 25, 31]

    def run(parts: Sequence[RecordBatch], is_restarted: bool) -> list[bytes | None]:
        found: list[bytes | None] = []
        committed: Mapping[Partition, int] = {}
        task = Tasks(chain(punctuating(10)), FAIL)
        for part in parts:
            if is_restarted:
                task = Tasks(chain(punctuating(10)), FAIL, times=committed)
            found += values(task, part)
            committed = {IN: task.task.partition_time(IN)}
        return found

    parts = [part for part in (timed(times[:cut]), timed(times[cut:], offset=cut)) if len(part)]
    expected = [b"tick 3", b"tick 12", b"tick 25", b"tick 31"]
    assert run(parts, is_restarted=False) == expected
    assert run(parts, is_restarted=True) == expected
