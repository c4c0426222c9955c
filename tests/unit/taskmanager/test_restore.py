"""Restoring a store: reading, writing, and giving up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kafka_pipeline.common.kafka import read_to_end
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Changes, PartitionReader, ReadError
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.taskmanager import restore as restoring
from kafka_pipeline.taskmanager.restore import restore

PARTITION = ("state_topic_Counter", 0)

Record = tuple[bytes | None, bytes | None]


class StateTopic:
    """A state topic partition, and the reader and admin that its restore uses.

    Each fetch brings the next entry of `fetches`: records from an offset on, or an empty one;
    when none is left, the end. `offsets` has the store's offset at each.
    """

    def __init__(self, low: int, end: int, fetches: Sequence[tuple[int, list[Record]]]) -> None:
        self.low = low
        self.end = end
        self.fetches = list(fetches)
        self.positions: dict[Partition, int] = {}
        self.error: str | None = None
        self.is_out_of_range = False
        self.store: RocksDBStore | None = None
        self.offsets: list[int | None] = []
        self.first_young: int | None = low
        """Offset of the first record that is younger than tombstones are kept."""

    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        assert 5 < (time.time() - timestamp_ms / 1000) / 86_400 < 7
        return dict.fromkeys(partitions, self.first_young)

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.end)

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.low)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.positions.update(positions)

    def unassign(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            del self.positions[partition]

    def fetch_changes(self, _max_records: int, wait_s: float) -> Changes:
        assert self.store is not None
        self.offsets.append(self.store.offset)
        if self.error is not None:
            return Changes({}, 0, [ReadError(PARTITION, self.error, self.is_out_of_range)])
        if not self.fetches:
            self.positions[PARTITION] = self.end
            return Changes()
        offset, records = self.fetches.pop(0)
        self.positions[PARTITION] = offset + len(records)
        last = {key: value for key, value in records if key is not None}
        return Changes(last, len(records))

    def restore(self, store: RocksDBStore) -> tuple[int, list[tuple[int, int]]]:
        """Restore; return how many records were read, and the reported progress."""
        self.store = store
        told: list[tuple[int, int]] = []
        reader, admin = cast(PartitionReader, self), cast(Admin, self)
        records = restore(store, PARTITION, reader, admin, lambda *now: told.append(now))
        assert not self.positions
        return records, told


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    opened = RocksDBStore(tmp_path / "store", {"topic": "state_topic_Counter"})
    yield opened
    opened.close()


def rows(first: int, size: int) -> tuple[int, list[Record]]:
    """Return a fetch of records with a key each."""
    return first, [(b"key %d" % number, b"1") for number in range(first, first + size)]


def test_new_store_reads_all_there_is(store: RocksDBStore) -> None:
    topic = StateTopic(3, 9, [rows(3, 2), (5, [(b"key 3", b"2"), (b"key 4", None)])])
    assert topic.restore(store) == (4, [(0, 6), (2, 6), (4, 6), (6, 6)])
    values = [store.get(b"key %d" % number) for number in (3, 4, 5)]
    assert (values, store.offset) == ([b"2", None, None], 9)


def test_store_reads_only_what_it_does_not_have(store: RocksDBStore) -> None:
    store.restore({b"old": b"1"}, 7)
    topic = StateTopic(0, 9, [rows(7, 2)])
    assert topic.restore(store)[0] == 2
    assert (store.get(b"old"), store.get(b"key 8"), store.offset) == (b"1", b"1", 9)


def test_store_that_has_it_all_reads_nothing(store: RocksDBStore) -> None:
    store.restore({b"old": b"1"}, 9)
    topic = StateTopic(0, 9, [])
    assert topic.restore(store) == (0, [(0, 0)])
    assert topic.offsets == []


@pytest.mark.parametrize("offset", [2, 10])
def test_store_outside_of_the_topic_is_wiped_and_reads_all(
    store: RocksDBStore, offset: int
) -> None:
    store.restore({b"old": b"1"}, offset)
    assert StateTopic(3, 9, [rows(3, 6)]).restore(store)[0] == 6
    assert (store.get(b"old"), store.get(b"key 3"), store.offset) == (None, b"1", 9)


@pytest.mark.parametrize("first_young", [6, None])
def test_store_that_was_away_for_longer_than_deletions_are_kept_is_wiped(
    store: RocksDBStore, first_young: int | None
) -> None:
    store.restore({b"deleted since": b"1"}, 4)
    topic = StateTopic(3, 9, [rows(3, 6)])
    topic.first_young = first_young
    assert topic.restore(store)[0] == 6
    assert store.get(b"deleted since") is None


@pytest.mark.parametrize(("end", "first_young"), [(5, None), (9, 5), (9, 4)])
def test_store_after_which_only_a_marker_is_that_old_is_kept(
    store: RocksDBStore, end: int, first_young: int | None
) -> None:
    store.restore({b"old": b"1"}, 4)
    topic = StateTopic(3, end, [rows(5, end - 5)])
    topic.first_young = first_young
    topic.restore(store)
    assert store.get(b"old") == b"1"


def test_restore_that_retention_overtakes_begins_again(store: RocksDBStore) -> None:
    topic = StateTopic(0, 40, [rows(0, 20)])
    told: list[tuple[int, int]] = []

    def overtake(done: int, total: int) -> None:
        told.append((done, total))
        if done == 20:
            topic.low, topic.error, topic.is_out_of_range = 30, "out of range", True

    topic.store = store
    with pytest.raises(TransactionFailedError, match=r"during the restore: .* out of range"):
        restore(store, PARTITION, cast(PartitionReader, topic), cast(Admin, topic), overtake)
    assert told[-1] == (20, 40)


def test_small_fetches_are_written_together(store: RocksDBStore) -> None:
    topic = StateTopic(0, 40, [rows(0, 20), rows(20, 20)])
    topic.restore(store)
    assert topic.offsets == [None, None]
    assert store.offset == 40


def test_many_keys_are_written_before_the_end(
    store: RocksDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "_WRITE_KEYS", 40)
    fetches = [rows(number, 20) for number in range(0, 100, 20)]
    topic = StateTopic(0, 100, fetches)
    topic.restore(store)
    assert topic.offsets == [None, None, 40, 40, 80]
    assert store.offset == 100


def test_large_values_are_written_before_the_end(
    store: RocksDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "_WRITE_BYTES", 1000)
    topic = StateTopic(0, 6, [(number, [(b"key", b"x" * 500)]) for number in range(6)])
    topic.restore(store)
    assert topic.offsets == [None, None, 2, 2, 4, 4]


def test_what_came_is_written_while_nothing_comes(store: RocksDBStore) -> None:
    topic = StateTopic(0, 40, [rows(0, 20), (20, []), (20, []), rows(20, 20)])
    topic.restore(store)
    assert topic.offsets == [None, None, 20, 20]


def test_restore_without_anything_for_long_is_given_up_and_goes_on_later(
    store: RocksDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = count(0, 15)
    monkeypatch.setattr(read_to_end, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    topic = StateTopic(0, 40, [rows(0, 20), *[(20, [])] * 10])
    with pytest.raises(TransactionFailedError, match="stalls, 20 offsets before the end"):
        topic.restore(store)
    assert store.offset == 20
    assert StateTopic(0, 40, [rows(20, 20)]).restore(store)[0] == 20


def test_partition_that_cannot_be_read_is_an_error_for_good(store: RocksDBStore) -> None:
    topic = StateTopic(0, 40, [])
    topic.error = "not allowed"
    with pytest.raises(NonRetriableError, match="not allowed"):
        topic.restore(store)
