"""Tasks of a PipelineThread that read the same partitions share consumers, without waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.data import Fetched, ReadError
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.running_task import RunningTask
from kafka_pipeline.taskmanager.shared_consumers import (
    CannotRead,
    End,
    FetchedRecords,
    Lost,
    SharedConsumers,
)
from kafka_pipeline.taskmanager.task_stores import TaskStores
from tests.tiers import long_but_the_first
from tests.unit.taskmanager import fakes
from tests.unit.taskmanager.fakes import FakeClients

MOST = 10
"""How many records a fetch brings, and how far apart tasks are that still share a consumer."""
FULL = 20
CONFIG = replace(fakes.CONFIG, max_batch_records=MOST)
P = ("in", 0)
Q = ("in", 1)


class Topic:
    """The records of the brokers: their offsets by partition, with gaps."""

    def __init__(self) -> None:
        self.offsets: dict[Partition, list[int]] = {P: [], Q: []}
        self.ends = {P: 0, Q: 0}
        self.starts = {P: 0, Q: 0}

    def write(self, partition: Partition, count: int, markers: int = 0) -> None:
        """Add records, and markers of transactions after them."""
        end = self.ends[partition]
        self.offsets[partition] += range(end, end + count)
        self.ends[partition] = end + count + markers


class LogReader:
    """Reads a `Topic` like a `PartitionReader`."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.positions: dict[Partition, int] = {}
        self.paused: frozenset[Partition] = frozenset()
        self.ends_told: set[Partition] = set()
        self.fetched = 0
        """How many records it has brought."""
        self.is_closed = False

    def assign(self, positions: Mapping[Partition, int]) -> None:
        assert not self.positions.keys() & positions.keys()
        self.positions |= positions

    def unassign(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            del self.positions[partition]
            self.paused -= {partition}
            self.ends_told.discard(partition)

    def pause(self, partitions: Iterable[Partition]) -> None:
        assert self.positions.keys() >= set(partitions)
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        self.paused -= set(partitions)

    def known_end(self, partition: Partition) -> int:
        assert not self.is_closed
        assert partition in self.positions
        return self.topic.ends[partition]

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        assert not self.is_closed
        fetched = Fetched()
        room = max_records
        for partition, at in self.positions.items():
            if partition in self.paused:
                continue
            if not self.topic.starts[partition] <= at <= self.topic.ends[partition]:
                fetched.errors.append(ReadError(partition, "offset out of range"))
                continue
            offsets = [o for o in self.topic.offsets[partition] if o >= at][:room]
            room -= len(offsets)
            if offsets:
                self.fetched += len(offsets)
                self.positions[partition] = offsets[-1] + 1
                self.ends_told.discard(partition)
                none: list[Any] = [None] * len(offsets)
                batch = RecordBatch(*partition, none, none, [0] * len(offsets), offsets)
                fetched.batches.append(batch)
            elif room and partition not in self.ends_told:
                self.ends_told.add(partition)
                self.positions[partition] = self.topic.ends[partition]
                fetched.ends.append((partition, self.topic.ends[partition]))
        return fetched

    def close(self) -> None:
        self.is_closed = True


class QueueTask(RunningTask):
    """Keeps what it gets until it is processed, and has room for `FULL` records."""

    state = TaskState.RUNNING

    def __init__(self, name: str, positions: dict[Partition, int]) -> None:
        super().__init__(positions, TaskStores((), {}, StoreResources()))
        self.id = TaskId(name, 0)
        self.got: dict[Partition, list[int]] = {partition: [] for partition in positions}
        self.waiting = dict.fromkeys(positions, 0)
        self.most = 0
        self.ends: list[tuple[Partition, int]] = []

    def add(self, batch: RecordBatch) -> None:
        partition = (batch.topic, batch.partition)
        assert batch.offsets[0] >= self.read[partition], "delivered twice"
        self.got[partition] += batch.offsets
        self.waiting[partition] += len(batch)
        self.most = max(self.most, self.waiting[partition])
        self.read[partition] = batch.offsets[-1] + 1

    def reached_end(self, partition: Partition, offset: int) -> None:
        assert offset >= self.read[partition], "there is more between"
        super().reached_end(partition, offset)
        self.ends.append((partition, offset))

    def loss_of_input(self, error: ReadError) -> NonRetriableError:
        return NonRetriableError(str(error))

    @property
    def has_records(self) -> bool:
        return any(self.waiting.values())

    def is_full(self, partition: Partition) -> bool:
        return self.waiting[partition] >= FULL

    def is_overfull(self, partition: Partition) -> bool:
        return self.waiting[partition] >= 2 * FULL

    def process(self, count: int = 1_000_000) -> None:
        for partition, waiting in self.waiting.items():
            self.waiting[partition] = max(waiting - count, 0)

    def release(self) -> None:
        pass


class Rig:
    """Shared consumers of a topic, and the readers that they have made."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.readers: list[LogReader] = []
        self.has_token = True
        context: Any = SimpleNamespace(config=CONFIG, clients=FakeClients(None, self._reader))
        self.consumers = SharedConsumers(context, lambda reader: reader.close())

    def _reader(self) -> LogReader:
        if not self.has_token:
            raise TransactionFailedError("no token")
        self.readers.append(LogReader(self.topic))
        return self.readers[-1]

    @property
    def in_use(self) -> int:
        """How many readers have an assignment."""
        return sum(bool(reader.positions) for reader in self.readers)

    def task(self, name: str, **positions: int) -> QueueTask:
        """Add a task that goes on at these offsets of the partitions p and q."""
        places = {"p": P, "q": Q}
        task = QueueTask(name, {places[name]: at for name, at in positions.items()})
        self.consumers.add(task.id, task)
        return task

    def fetch(self) -> int:
        """Fetch once; return how many deliveries came. A task that loses its input is removed."""
        count = 0
        for fetched in self.consumers.fetch(0):
            count += 1
            match fetched:
                case FetchedRecords(_, task, batch):
                    task.add(batch)
                case End(_, task, partition, offset):
                    task.reached_end(partition, offset)
                case Lost(task_id, task, error):
                    self.consumers.remove(task_id, task)
                    raise task.loss_of_input(error)
        return count

    def fetch_all(self, *tasks: QueueTask) -> None:
        """Fetch and process until nothing more comes."""
        idle = 0
        while idle < 3:
            idle = 0 if self.fetch() else idle + 1
            for task in tasks:
                task.process()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_records_are_fetched_once_for_all_tasks_that_read_them(rig: Rig) -> None:
    rig.topic.write(P, 5)
    tasks = [rig.task(name, p=0) for name in "abc"]

    rig.fetch()

    assert [task.got[P] for task in tasks] == [[0, 1, 2, 3, 4]] * 3
    assert [reader.fetched for reader in rig.readers] == [5]


def test_a_task_that_comes_later_is_brought_up_and_then_shares_the_consumer(rig: Rig) -> None:
    rig.topic.write(P, 50)
    early = rig.task("early", p=0)
    rig.fetch_all(early)

    late = rig.task("late", p=3)
    rig.topic.write(P, 5)
    rig.fetch_all(early, late)

    assert early.got[P] == list(range(55))
    assert late.got[P] == list(range(3, 55))
    assert rig.in_use == 1
    assert [reader.is_closed for reader in rig.readers] == [False, True]


def test_only_a_task_that_needs_a_new_consumer_waits_until_there_can_be_one(rig: Rig) -> None:
    """The worker ended while there were no tokens, and with it all its tasks."""
    rig.topic.write(P, 50)
    early = rig.task("early", p=0)
    rig.fetch_all(early)

    rig.has_token = False
    late = rig.task("late", p=3)
    found = [each for each in rig.consumers.fetch(0) if isinstance(each, CannotRead)]
    assert [(each.task, str(each.error)) for each in found] == [(late.id, "no token")]
    rig.topic.write(P, 5)
    rig.fetch_all(early)
    assert early.got[P] == list(range(55))

    rig.has_token = True
    rig.consumers.remove(late.id, late)
    again = rig.task("late", p=3)
    rig.fetch_all(early, again)
    assert again.got[P] == list(range(3, 55))


def test_a_failure_to_make_a_consumer_is_forgotten_with_its_task(rig: Rig) -> None:
    rig.has_token = False
    task = rig.task("a", p=0)
    rig.consumers.remove(task.id, task)
    assert not [*rig.consumers.fetch(0)]


def test_a_task_that_is_ahead_does_not_get_records_again(rig: Rig) -> None:
    rig.topic.write(P, 8)
    ahead, behind = rig.task("ahead", p=6), rig.task("behind", p=0)

    rig.fetch_all(ahead, behind)

    assert ahead.got[P] == [6, 7]
    assert behind.got[P] == list(range(8))
    assert rig.in_use == 1


def test_a_slow_task_does_not_hold_up_a_fast_one(rig: Rig) -> None:
    rig.topic.write(P, 1000)
    slow, fast = rig.task("slow", p=0), rig.task("fast", p=0)

    for _ in range(200):
        rig.fetch()
        slow.process(1)
        fast.process()

    assert fast.got[P] == list(range(1000))
    assert len(slow.got[P]) < 400
    assert slow.most < 2 * FULL + MOST
    rig.fetch_all(slow, fast)
    assert slow.got[P] == list(range(1000))
    assert rig.in_use == 1


def test_a_task_that_nothing_is_read_for_at_the_moment_is_not_at_its_end(rig: Rig) -> None:
    rig.topic.write(P, 2 * FULL)
    slow, fast = rig.task("slow", p=0), rig.task("fast", p=0)
    for _ in range(4):
        rig.fetch()
        fast.process()
    rig.topic.write(P, 1)
    rig.fetch()
    rig.consumers.remove(fast.id, fast)

    slow.process()

    assert slow.read[P] == 2 * FULL
    assert not slow.is_at_its_end
    rig.fetch_all(slow)
    assert slow.is_at_its_end


def test_a_partition_is_paused_while_all_its_tasks_have_too_much(rig: Rig) -> None:
    rig.topic.write(P, 1000)
    rig.topic.write(Q, 3)
    tasks = [rig.task("a", p=0), rig.task("b", p=0)]
    other = rig.task("c", q=0)

    for _ in range(30):
        rig.fetch()

    assert [task.most for task in tasks] == [2 * FULL, 2 * FULL]
    assert other.got[Q] == [0, 1, 2]
    assert len(rig.readers) == 1
    rig.fetch_all(*tasks)
    assert [task.got[P] for task in tasks] == [list(range(1000))] * 2


def test_nothing_is_paused_while_no_task_has_room(rig: Rig) -> None:
    """What the consumer has ready by then is there at once when one has room again."""
    rig.topic.write(P, 1000)
    task = rig.task("a", p=0)
    rig.fetch()
    task.waiting[P] = 2 * FULL
    rig.fetch()
    (reader,) = rig.readers
    assert not reader.paused
    rig.task("b", q=0)
    rig.fetch()
    assert reader.paused == {P}


def test_a_consumer_that_reads_nothing_is_not_kept_for_a_topic_that_may_be_another(
    rig: Rig,
) -> None:
    rig.topic.write(P, 3)
    first = rig.task("first", p=0)
    rig.fetch_all(first)
    rig.consumers.remove(first.id, first)
    assert [reader.is_closed for reader in rig.readers] == [True]
    again = rig.task("again", p=0)
    rig.fetch_all(again)
    assert again.got[P] == [0, 1, 2]
    assert [reader.is_closed for reader in rig.readers] == [True, False]


def test_a_task_that_comes_to_the_end_where_others_wait_learns_of_it(rig: Rig) -> None:
    rig.topic.write(P, 4, markers=2)
    first = rig.task("first", p=0)
    rig.fetch_all(first)
    assert first.ends == [(P, 6)]

    second = rig.task("second", p=4)

    assert rig.fetch() == 1
    assert second.ends == [(P, 6)]
    assert len(rig.readers) == 1


def test_a_task_that_is_brought_to_the_end_where_others_wait_learns_of_it_by_a_fetch(
    rig: Rig,
) -> None:
    """Only what comes by a fetch wakes a task: records of another input may wait for this end."""
    rig.topic.write(P, 4)
    first = rig.task("first", p=0)
    rig.fetch_all(first)
    second = rig.task("second", p=0)
    rig.fetch()
    assert second.got[P] == [0, 1, 2, 3]
    assert (second.ends, rig.in_use) == ([], 2)

    assert rig.fetch() == 1
    assert (second.ends, rig.in_use) == ([(P, 4)], 1)


def test_a_wrong_offset_of_one_task_is_not_that_of_another(rig: Rig) -> None:
    rig.topic.write(P, 20)
    rig.topic.starts[P] = 10
    good = rig.task("good", p=12)
    rig.fetch()
    rig.task("bad", p=3)

    with pytest.raises(NonRetriableError, match=r"in\[0\]: offset out of range"):
        rig.fetch()

    rig.fetch_all(good)
    assert good.got[P] == list(range(12, 20))
    assert rig.in_use == 1


def test_a_task_beyond_the_end_fails_though_others_share_the_partition(rig: Rig) -> None:
    rig.topic.write(P, 20)
    good = rig.task("good", p=0)
    rig.fetch_all(good)
    rig.task("beyond", p=23)

    with pytest.raises(NonRetriableError, match="offset out of range"):
        rig.fetch()

    rig.topic.write(P, 5)
    rig.fetch_all(good)
    assert good.got[P] == list(range(25))


def test_records_that_are_deleted_fail_only_the_task_that_needs_them(rig: Rig) -> None:
    rig.topic.write(P, 30)
    ahead, behind = rig.task("ahead", p=20), rig.task("behind", p=0)
    for _ in range(2):
        rig.fetch()
        behind.process()
    assert (ahead.read[P], behind.read[P]) == (30, 20)

    rig.topic.starts[P] = 25
    with pytest.raises(NonRetriableError, match="offset out of range"):
        rig.fetch()

    rig.topic.write(P, 5)
    rig.fetch_all(ahead)
    assert ahead.got[P] == list(range(20, 35))


def test_nothing_is_read_when_the_last_task_has_gone(rig: Rig) -> None:
    rig.topic.write(P, 100)
    tasks = [rig.task("a", p=0, q=0), rig.task("b", p=0)]
    rig.fetch()

    for task in tasks:
        rig.consumers.remove(task.id, task)

    rig.fetch()
    assert rig.in_use == 0


@pytest.mark.parametrize("seed", long_but_the_first(range(300), short=60))
def test_each_offset_comes_once_in_ascending_order_whatever_happens(seed: int) -> None:
    random = Random(seed)
    rig = Rig()
    tasks: list[tuple[QueueTask, dict[Partition, int]]] = []
    paces: dict[TaskId, int] = {}
    for number in range(200):
        match random.choice(("write", "fetch", "fetch", "process", "process", "come", "go")):
            case "write":
                rig.topic.write(random.choice((P, Q)), random.randint(0, 30), random.randint(0, 2))
            case "fetch":
                rig.fetch()
            case "process":
                for task, _ in tasks:
                    task.process(random.randint(0, paces[task.id]))
            case "come" if len(tasks) < 5:
                inputs = random.choice(((P,), (Q,), (P, Q)))
                begins = {p: random.choice((0, rig.topic.ends[p])) for p in inputs}
                task = QueueTask(f"t{number}", dict(begins))
                paces[task.id] = random.choice((2, 10, 100))
                rig.consumers.add(task.id, task)
                tasks.append((task, begins))
            case "go" if tasks and random.random() < 0.2:
                task, _ = tasks.pop(random.randrange(len(tasks)))
                rig.consumers.remove(task.id, task)
        assert all(task.most < 2 * FULL + MOST for task, _ in tasks)
        assert all(task.is_at_its_end in (True, False) for task, _ in tasks)
    rig.fetch_all(*(task for task, _ in tasks))
    for task, begins in tasks:
        for partition, begin in begins.items():
            expected = [o for o in rig.topic.offsets[partition] if o >= begin]
            assert task.got[partition] == expected
            assert task.ends[-1:] or not expected
    inputs_left = {p for _, begins in tasks for p in begins}
    assert rig.in_use == (1 if inputs_left else 0)
