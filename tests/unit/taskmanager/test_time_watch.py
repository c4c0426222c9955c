"""What a `TimeWatch` knows of the writers of a task's inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from kafka_pipeline.common.committed import Committed, InputProgress
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager.time_watch import LEAST_INTERVAL_S, TimeWatch, pause_s
from tests.unit.taskmanager.fakes import CONFIG, Clock

COUNTS, OTHER_COUNTS = TaskId("Counts", 0), TaskId("Counts", 1)
ARC, OTHER_ARC = ("arc", 0), ("arc", 1)
REFUNDED = ("refunded", 0)
GROUP = "processors_Payments"
SPEC = EventTimeSpec(
    writers={"arc": (Writer(processor="Payments", inputs={"payments": 2}),)},
)


class Answering:
    """Brokers with the positions and the ends that a test gives them."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Partition, Committed]] = {}
        self.marks: dict[Partition, int] = {}

    def committed(
        self, wanted: Mapping[str, Collection[Partition]]
    ) -> Mapping[str, Mapping[Partition, Committed]]:
        return {group: found for group, found in self.groups.items() if group in wanted}

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return {p: end for p, end in self.marks.items() if p in partitions}

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return dict.fromkeys(partitions, 0)


def at(offset: int, time_ms: int) -> Committed:
    return Committed(offset, time_ms, progress=InputProgress(offset, time_ms))


def watching(brokers: Answering) -> tuple[TimeWatch, InputTime]:
    watch = TimeWatch(CONFIG, brokers, Clock().monotonic)
    input_time = InputTime({ARC: 2}, CONFIG.idle_after_ms)
    watch.watch(COUNTS, SPEC, input_time)
    return watch, input_time


def time_of(input_time: InputTime) -> int:
    """Return the event time of a task that has processed everything that was ever sent to it."""
    return input_time.update(0, lambda _: 1000, lambda _: -1, ())


def half_read() -> Answering:
    brokers = Answering()
    brokers.groups[GROUP] = {("payments", 0): at(10, 9000), ("payments", 1): at(10, 5000)}
    brokers.marks = {("payments", 0): 10, ("payments", 1): 22, ARC: 7}
    return brokers


def test_holders_and_the_newest_record_of_the_writers_are_known() -> None:
    watch, input_time = watching(half_read())
    assert (watch.holders(COUNTS), watch.newest_ms(COUNTS)) == ((), -1)
    watch.look()
    first, second = watch.holders(COUNTS)
    assert first == Holder(TaskId("Payments", 1), 5000, 12)
    assert second == Holder(TaskId("Payments", 0), 9000, 0)
    assert watch.newest_ms(COUNTS) == 9000
    assert input_time.time_ms == -1
    assert input_time.update(0, lambda _: 7, lambda _: -1, ()) == input_time.time_ms == 5000


def test_a_partition_without_an_answer_holds_back_only_who_needs_it() -> None:
    """As with one broker of three away: tasks whose own partition answers go on."""
    brokers = half_read()
    watch, input_time = watching(brokers)
    other_time = InputTime({OTHER_ARC: 2}, CONFIG.idle_after_ms)
    watch.watch(OTHER_COUNTS, SPEC, other_time)
    del brokers.marks["payments", 1]
    watch.look()
    assert time_of(input_time) == 5000
    assert time_of(other_time) == -1
    assert [holder.unread for holder in watch.holders(COUNTS)] == [None, 0]
    brokers.marks[OTHER_ARC] = 7
    watch.look()
    assert time_of(other_time) == 5000


def test_a_group_without_an_answer_holds_back_only_who_needs_it() -> None:
    brokers = half_read()
    watch, input_time = watching(brokers)
    writer = Writer(processor="Refunds", inputs={"refunds": 1})
    refunded_time = InputTime({REFUNDED: 1}, CONFIG.idle_after_ms)
    watch.watch(TaskId("Losses", 0), EventTimeSpec(writers={"refunded": (writer,)}), refunded_time)
    brokers.marks |= {("refunds", 0): 3, REFUNDED: 3}
    watch.look()
    assert (time_of(input_time), time_of(refunded_time)) == (5000, -1)
    brokers.groups["processors_Refunds"] = {("refunds", 0): at(3, 7000)}
    watch.look()
    assert time_of(refunded_time) == 7000


def test_an_input_whose_end_is_unknown_is_not_idle() -> None:
    """Its broker may be away, and records of its sources may wait for it."""
    brokers = Answering()
    brokers.groups[GROUP] = {("payments", 0): at(10, 5000)}
    brokers.groups["processors_Refunds"] = {("refunds", 0): at(10, 5000)}
    brokers.marks = {("payments", 0): 10, ("refunds", 0): 10, ARC: 7, REFUNDED: 7}
    clock = Clock()
    watch = TimeWatch(CONFIG, brokers, clock.monotonic)
    input_time = InputTime({ARC: 1, REFUNDED: 1}, CONFIG.idle_after_ms)
    writers = {
        "arc": (Writer(processor="Payments", inputs={"payments": 1}),),
        "refunded": (Writer(processor="Refunds", inputs={"refunds": 1}),),
    }
    watch.watch(COUNTS, EventTimeSpec(writers=writers), input_time)
    watch.look()
    clock.now_s += CONFIG.idle_after_ms / 1000
    watch.look()
    assert time_of(input_time) == 5000
    brokers.groups["processors_Refunds"] = {("refunds", 0): at(11, 7000)}
    del brokers.marks[ARC]
    watch.look()
    assert time_of(input_time) == 5000
    brokers.marks[ARC] = 7
    watch.look()
    assert time_of(input_time) == 7000


def test_brokers_that_do_not_answer_cost_no_long_pause() -> None:
    """A look at a job of ten processors may take 20 s meanwhile; then another broker leads."""
    assert pause_s(took_s=0.01, cpu_s=0.001) == LEAST_INTERVAL_S
    assert pause_s(took_s=0.5, cpu_s=0.001) == 2
    assert pause_s(took_s=20, cpu_s=0.01) == 5
    assert pause_s(took_s=20, cpu_s=0.2) == pytest.approx(17)


def test_without_an_answer_nobody_knows_what_is_unread() -> None:
    brokers = half_read()
    watch, _ = watching(brokers)
    del brokers.groups[GROUP]
    watch.look()
    assert [holder.unread for holder in watch.holders(COUNTS)] == [None, None]
    assert watch.newest_ms(COUNTS) == -1


def test_what_was_known_of_a_task_is_forgotten_with_it() -> None:
    watch, input_time = watching(half_read())
    watch.look()
    watch.forget(COUNTS, input_time)
    assert (watch.holders(COUNTS), watch.newest_ms(COUNTS)) == ((), -1)
