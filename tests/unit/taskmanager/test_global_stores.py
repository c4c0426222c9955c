"""The global stores of a PipelineThread: when they are ready, who shares them, failures."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka import read_to_end
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Fetched, ReadError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.stores import KeyValueStore
from kafka_pipeline.streams.stores.bytes_store import StoreBytes
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.streams.stores.rocksdb_directory import StoreCorruptedError
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.task_start import StartCancelledError
from tests.unit.taskmanager.fakes import CONFIG, FakeClients
from tests.user_code.lookups import lookup

TOPIC = "names"
Row = tuple[str | None, str | None]


@dataclass
class Topic:
    """The topic of the global store in Kafka; also the `Admin` that knows it."""

    partitions: list[list[Row]] = field(default_factory=lambda: [[], []])
    hidden: int = 0
    """How many offsets the high watermarks include that cannot be read."""

    readers: list[FakeReader] = field(default_factory=list)
    is_known: bool = True
    is_away: bool = False
    error: str = ""
    is_out_of_range: bool = False

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        if self.is_away:
            raise UnavailableError("cannot list the topics")
        assert list(names) == [TOPIC]
        return {TOPIC: len(self.partitions)} if self.is_known else {}

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {p: len(self.partitions[p[1]]) + self.hidden for p in partitions}

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def write(self, key: str | None, value: str | None, partition: int = 0) -> None:
        self.partitions[partition].append((key, value))

    @property
    def open_readers(self) -> int:
        return sum(not reader.is_closed for reader in self.readers)


class FakeReader:
    """A consumer that brings one record of each partition with each fetch."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.positions: dict[Partition, int] = {}
        self.is_closed = False
        topic.readers.append(self)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.positions = dict(positions)

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        fetched = Fetched()
        if self._topic.error:
            fetched.errors.append(
                ReadError((TOPIC, 0), self._topic.error, self._topic.is_out_of_range)
            )
        for (name, number), at in self.positions.items():
            rows = self._topic.partitions[number][at : at + 1]
            if not rows:
                fetched.ends.append(((name, number), at))
                continue
            keys = [None if key is None else key.encode() for key, _ in rows]
            values = [None if value is None else value.encode() for _, value in rows]
            fetched.batches.append(RecordBatch(name, number, keys, values, [1], [at]))
            self.positions[name, number] = at + 1
        return fetched

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def kept(topic: Topic, tmp_path: Path) -> Iterator[GlobalStores]:
    yield GlobalStores(replace(CONFIG, state_dir=tmp_path), 0, 0, clients_of(topic))
    assert topic.open_readers == 0, "a test releases all that it opens"


def clients_of(topic: Topic) -> FakeClients:
    return FakeClients(topic, lambda: FakeReader(topic))


def group(persistent: bool = True) -> NodeGroup:
    (found,) = lookup("orders", TOPIC, "named", persistent=persistent).build().groups
    return found


def ignore(_restored: int, _total: int) -> None:
    pass


def names(views: Mapping[str, StoreBytes]) -> KeyValueStore[str, str]:
    return KeyValueStore("Names", views["Names"], serdes.string, serdes.string)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_task_begins_with_all_that_is_in_all_partitions(
    persistent: bool, topic: Topic, kept: GlobalStores
) -> None:
    topic.write("a", "old")
    topic.write("a", "Ann")
    topic.write("b", "Bob", partition=1)
    told: list[tuple[int, int]] = []
    views = kept.open("task", group(persistent), "", lambda *now: told.append(now))
    assert list(names(views).all()) == [("a", "Ann"), ("b", "Bob")]
    assert (told[0], told[-1]) == ((0, 3), (3, 3))
    kept.release("task")


def test_what_comes_later_is_there_after_an_update_and_not_before(
    topic: Topic, kept: GlobalStores
) -> None:
    store = names(kept.open("task", group(), "", ignore))
    topic.write("a", "Ann")
    assert store.get("a") is None
    assert kept.update(100) == {}
    assert store.get("a") == "Ann"
    topic.write("a", None)
    kept.update(100)
    assert store.get("a") is None
    kept.release("task")


def test_tasks_share_one_copy_and_one_consumer_until_the_last_lets_go(
    topic: Topic, kept: GlobalStores
) -> None:
    first = names(kept.open("first", group(), "", ignore))
    second = names(kept.open("second", group(), "", ignore))
    assert len(topic.readers) == 1
    kept.release("first")
    topic.write("a", "Ann")
    kept.update(100)
    assert (first.get("a"), second.get("a"), topic.open_readers) == ("Ann", "Ann", 1)
    kept.release("second")
    assert topic.open_readers == 0
    with pytest.raises(StoreCorruptedError, match="is gone"):
        second.get("a")


def test_topologies_that_differ_share_nothing(topic: Topic, kept: GlobalStores) -> None:
    kept.open("first", group(), "one", ignore)
    kept.open("second", group(), "other", ignore)
    assert len(topic.readers) == 2
    kept.release("first")
    kept.release("second")


def test_a_copy_is_made_anew_whatever_was_on_the_disk(topic: Topic, kept: GlobalStores) -> None:
    """Compaction may have forgotten that a key was deleted meanwhile."""
    topic.write("gone", "x")
    kept.open("task", group(), "", ignore)
    kept.release("task")
    topic.partitions[0] = [("a", "Ann")]
    assert list(names(kept.open("task", group(), "", ignore)).all()) == [("a", "Ann")]
    kept.release("task")


def test_a_group_without_global_stores_asks_nobody(topic: Topic, kept: GlobalStores) -> None:
    assert kept.open("task", replace(group(), global_stores=()), "", ignore) == {}
    assert (topic.readers, kept.update(1)) == ([], {})
    kept.release("task")


def test_records_without_a_key_are_left_out(topic: Topic, kept: GlobalStores) -> None:
    topic.write(None, "Nobody")
    topic.write("a", "Ann")
    store = names(kept.open("task", group(), "", ignore))
    assert list(store.all()) == [("a", "Ann")]
    kept.release("task")


# What fails


def test_a_record_that_fails_stops_all_who_use_the_store_with_the_reason(
    topic: Topic, kept: GlobalStores
) -> None:
    for user in ("first", "second"):
        kept.open(user, group(), "", ignore)
    topic.write("a", "bad")
    failed = kept.update(100)
    assert failed.keys() == {"first", "second"}
    assert all(isinstance(error, NonRetriableError) for error in failed.values())
    assert str(failed["first"]) == (
        'global store "Names": record names[0]@0: ValueError: no name '
        '(tests/user_code/lookups.py:23 in process, processor "Keeper")'
    )
    kept.release("first")
    assert kept.update(100).keys() == {"second"}
    with pytest.raises(NonRetriableError, match="no name"):
        kept.open("third", group(), "", ignore)
    kept.release("second")
    kept.release("third")


def test_a_record_that_fails_at_the_start_stops_that_start(
    topic: Topic, kept: GlobalStores
) -> None:
    topic.write("a", "bad")
    for _ in range(2):
        with pytest.raises(NonRetriableError, match=r'"Names": record names\[0\]@0: ValueError'):
            kept.open("task", group(), "", ignore)
    assert topic.open_readers == 0
    kept.release("task")


def test_after_all_have_let_go_it_begins_anew(topic: Topic, kept: GlobalStores) -> None:
    kept.open("task", group(), "", ignore)
    topic.write("a", "bad")
    assert kept.update(100)
    kept.release("task")
    topic.partitions[0] = [("a", "Ann")]
    assert names(kept.open("task", group(), "", ignore)).get("a") == "Ann"
    kept.release("task")


@pytest.mark.parametrize(
    ("is_out_of_range", "kind"), [(False, NonRetriableError), (True, TransactionFailedError)]
)
def test_an_error_of_a_partition_stops_all_who_use_the_store(
    topic: Topic, kept: GlobalStores, is_out_of_range: bool, kind: type[Exception]
) -> None:
    kept.open("task", group(), "", ignore)
    topic.error, topic.is_out_of_range = "the topic was deleted", is_out_of_range
    failed = kept.update(100)["task"]
    assert str(failed) == 'global store "Names": names[0]: the topic was deleted'
    assert type(failed) is kind
    kept.release("task")


def test_a_store_that_was_damaged_lets_all_start_again(topic: Topic, kept: GlobalStores) -> None:
    kept.open("task", group(), "", ignore)
    (copy,) = kept._copies.values()
    assert isinstance(copy._store, RocksDBStore)
    with suppress(StoreCorruptedError):
        copy._store._discard(Exception("Corruption: block checksum mismatch"))
    assert isinstance(kept.update(100)["task"], StoreCorruptedError)
    kept.release("task")
    kept.open("task", group(), "", ignore)
    assert kept.update(100) == {}
    kept.release("task")


@pytest.mark.parametrize("what", ["is_known", "is_away"])
def test_brokers_that_do_not_tell_the_partitions_let_the_task_start_again(
    what: str, topic: Topic, kept: GlobalStores
) -> None:
    setattr(topic, what, not getattr(topic, what))
    with pytest.raises(TransactionFailedError):
        kept.open("task", group(), "", ignore)
    kept.release("task")


def test_records_that_do_not_come_for_a_minute_let_the_task_start_again(
    topic: Topic, kept: GlobalStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is so after a transaction that stays open."""
    topic.hidden = 1
    now_s = iter(range(0, 10_000, 20))
    clock = SimpleNamespace(monotonic=lambda: next(now_s))
    monkeypatch.setattr(read_to_end, "time", clock)
    with pytest.raises(
        TransactionFailedError, match="reading names stalls, 2 offsets before the end"
    ):
        kept.open("task", group(), "", ignore)
    assert topic.open_readers == 0
    kept.release("task")


def test_a_cancelled_start_ends_and_another_one_begins_anew(
    topic: Topic, kept: GlobalStores
) -> None:
    topic.write("a", "Ann")

    def cancel(_restored: int, _total: int) -> None:
        raise StartCancelledError

    with pytest.raises(StartCancelledError):
        kept.open("first", group(), "", cancel)
    assert names(kept.open("second", group(), "", ignore)).get("a") == "Ann"
    kept.release("first")
    assert topic.open_readers == 1
    kept.release("second")


def test_two_starts_at_a_time_wait_for_one_reading(topic: Topic, kept: GlobalStores) -> None:
    """The one that waits can be cancelled meanwhile."""
    topic.write("a", "Ann")
    may_go_on, waits = threading.Event(), threading.Event()

    def hold(_restored: int, _total: int) -> None:
        assert may_go_on.wait(10)

    def note(_restored: int, _total: int) -> None:
        waits.set()

    found: list[str | None] = []
    starts = [
        threading.Thread(
            target=lambda who=who, told=told: found.append(
                names(kept.open(who, group(), "", told)).get("a")
            )
        )
        for who, told in (("first", hold), ("second", note))
    ]
    starts[0].start()
    while not topic.readers:
        pass
    starts[1].start()
    assert waits.wait(10)
    may_go_on.set()
    for start in starts:
        start.join()
    assert (found, len(topic.readers)) == (["Ann", "Ann"], 1)
    kept.release("first")
    kept.release("second")


def test_a_persistent_copy_has_a_place_of_its_own_for_each_thread(
    topic: Topic, tmp_path: Path
) -> None:
    """Two PipelineThreads of a TaskManager would wait for each other's lock else."""
    config = replace(CONFIG, state_dir=tmp_path, job_name="shop")
    both = [GlobalStores(config, 3, thread, clients_of(topic)) for thread in (0, 1)]
    for kept in both:
        kept.open("task", group(), "", ignore)
    folders = {path.parent.name for path in tmp_path.rglob("Names_*")}
    assert folders == {"thread_0", "thread_1"}
    assert (tmp_path / "job_shop" / "taskmanager_3" / "global_stores").is_dir()
    for kept in both:
        kept.release("task")


def test_stores_in_memory_leave_nothing_on_the_disk(topic: Topic, tmp_path: Path) -> None:
    kept = GlobalStores(replace(CONFIG, state_dir=tmp_path), 0, 0, clients_of(topic))
    kept.open("task", group(persistent=False), "", ignore)
    kept.release("task")
    assert list(tmp_path.rglob("*")) == []
