"""What a `TimeWatch` knows of the writers of a task's inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_pipeline.common.committed import Committed, InputProgress
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.unit.taskmanager.fakes import CONFIG, Clock

COUNTS = TaskId("Counts", 0)
ARC = ("arc", 0)
GROUP = "processors_Payments"
SPEC = EventTimeSpec(
    writers={"arc": (Writer(processor="Payments", inputs={"payments": 2}),)},
)


class Answering:
    """Brokers with the positions and the ends that a test gives them."""

    def __init__(self) -> None:
        self.positions: dict[Partition, Committed] | None = {}
        self.marks: dict[Partition, int] = {}

    def committed(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, Committed] | None:
        return self.positions if group == GROUP else {}

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return {p: end for p, end in self.marks.items() if p in partitions}

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def keep_only(self, groups: Collection[str]) -> None:
        pass


def at(offset: int, time_ms: int) -> Committed:
    return Committed(offset, time_ms, progress=InputProgress(offset, time_ms))


def watching(brokers: Answering) -> tuple[TimeWatch, InputTime]:
    watch = TimeWatch(CONFIG, brokers, Clock().monotonic)
    input_time = InputTime({ARC: 2}, CONFIG.idle_after_ms)
    watch.watch(COUNTS, SPEC, input_time)
    return watch, input_time


def half_read() -> Answering:
    brokers = Answering()
    brokers.positions = {("payments", 0): at(10, 9000), ("payments", 1): at(10, 5000)}
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


def test_without_an_answer_nobody_knows_what_is_unread() -> None:
    brokers = half_read()
    watch, _ = watching(brokers)
    brokers.positions = None
    watch.look()
    assert [holder.unread for holder in watch.holders(COUNTS)] == [None, None]
    assert watch.newest_ms(COUNTS) == -1


def test_what_was_known_of_a_task_is_forgotten_with_it() -> None:
    watch, input_time = watching(half_read())
    watch.look()
    watch.forget(COUNTS, input_time)
    assert (watch.holders(COUNTS), watch.newest_ms(COUNTS)) == ((), -1)
