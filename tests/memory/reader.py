"""A reader of committed records on the brokers in memory, in place of a `PartitionReader`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from kafka_pipeline.common.committed import NO_EPOCH, Committed
from kafka_pipeline.common.kafka.clients import Partition, explain
from kafka_pipeline.common.kafka.data import Changes, Fetched, ReadError
from kafka_pipeline.common.record_batch import RecordBatch
from tests.memory.broker import GroupMetadata
from tests.memory.link import Link

_UNKNOWN_END = -1001
_LONGEST_QUIET_S = 2.0


@dataclass(slots=True)
class _Place:
    """The consumer's state in a partition that is assigned to it."""

    position: int
    told_end: int = -1
    """The end that the consumer last reported."""
    is_lost: bool = False


class MemoryReader:
    """Reads up to the last stable offset, and reports each end that it reaches once."""

    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._faults = link.faults
        self._group = group
        self._places: dict[Partition, _Place] = {}
        self._next: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._known_ends: dict[Partition, int] = {}
        self._quiet_until_s = 0.0
        self._turn = 0
        self._is_closed = False

    @property
    def group_metadata(self) -> GroupMetadata:
        """The metadata that a transaction needs to commit offsets for this reader's group."""
        return GroupMetadata(self._group)

    @property
    def positions(self) -> dict[Partition, int]:
        """The offsets to read next, for all assigned partitions."""
        return self._next

    @property
    def paused(self) -> frozenset[Partition]:
        """The assigned partitions from which nothing more is fetched."""
        return frozenset(self._paused)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start reading each partition at its offset."""
        self._require_open()
        twice = self._places.keys() & positions.keys()
        assert not twice, f"{twice} are assigned already"
        for partition, offset in positions.items():
            self._places[partition] = _Place(offset)
        self._next |= positions

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions; those that are not assigned are ignored."""
        self._require_open()
        for partition in self._places.keys() & set(partitions):
            del self._places[partition], self._next[partition]
            self._paused.discard(partition)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching from these partitions until they are resumed."""
        self._require_open()
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Continue paused partitions at their positions; their ends are reported again."""
        self._require_open()
        for partition in self._paused.intersection(partitions):
            self._paused.discard(partition)
            self._places[partition] = _Place(self._next[partition])

    def committed(
        self, partitions: Sequence[Partition], timeout_s: float, proof: Partition | None = None
    ) -> dict[Partition, Committed]:
        """Return the group's committed positions; waits for undecided transactions."""
        self._require_open()
        broker, group, faults = self._link.broker, self._group, self._faults
        if proof is None and faults.happens(faults.weather.cut_off):
            return broker.committed_before(group, partitions, faults.random)
        return self._link.ask(lambda: broker.committed(group, partitions), timeout_s)

    def known_end(self, partition: Partition) -> int:
        """Return the high watermark at the last fetch, -1001 before the first one."""
        self._require_open()
        return self._known_ends.get(partition, _UNKNOWN_END)

    def leader_epoch(self, partition: Partition) -> int:
        """Return that no epoch is known: logs are not truncated."""
        return NO_EPOCH

    def losses(self, positions: Mapping[Partition, Committed], timeout_s: float) -> list[ReadError]:
        """Return nothing, as no epoch is known."""
        return []

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        """Return the records that have arrived, at most `max_records`."""
        fetched = Fetched()
        for partition, offsets in self._receive(max_records, wait_s, fetched):
            fetched.batches.append(self._batch(partition, offsets))
        return fetched

    def fetch_changes(self, max_records: int, wait_s: float) -> Changes:
        """Return the changes that have arrived in the one assigned partition, by key."""
        fetched = Fetched()
        (partition,) = self._next
        entries = self._link.broker.log(partition).entries
        changes = Changes(errors=fetched.errors)
        for _, offsets in self._receive(max_records, wait_s, fetched):
            changes.records += len(offsets)
            for entry in (entries[offset] for offset in offsets):
                if entry.key is not None:
                    changes.last[entry.key] = entry.value
        return changes

    def replace(self) -> None:
        """Switch to another consumer, which continues at the same positions."""
        self._link.broker.tell(f"a reader of {self._group} is replaced")
        positions, self._places = self._next, {}
        self._known_ends = {}
        self.assign(positions)

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._is_closed = True

    def _receive(
        self, max_records: int, wait_s: float, fetched: Fetched
    ) -> list[tuple[Partition, list[int]]]:
        """Return the offsets that have arrived; put ends and errors into `fetched`."""
        self._require_open()
        self._link.travel()
        faults, clock = self._faults, self._link.clock
        if faults.happens(faults.weather.quiet_fetch):
            self._quiet_until_s = clock.now_s + faults.random.random() * _LONGEST_QUIET_S
        if faults.happens(faults.weather.replaced_reader):
            self.replace()
        if clock.now_s < self._quiet_until_s:
            clock.advance(wait_s)
            return []
        found = self._look(max_records, fetched)
        if wait_s and not (found or fetched.ends or fetched.errors):
            clock.advance(wait_s)
            found = self._look(max_records, fetched)
        return found

    def _look(self, room: int, fetched: Fetched) -> list[tuple[Partition, list[int]]]:
        """Check each partition once, starting with a different one each time."""
        found = []
        partitions = [p for p in self._places if p not in self._paused]
        if partitions:
            self._turn = (self._turn + 1) % len(partitions)
            partitions = partitions[self._turn :] + partitions[: self._turn]
        for partition in partitions:
            if not room:
                break
            offsets = self._look_into(partition, room, fetched)
            if offsets:
                found.append((partition, offsets))
                room -= len(offsets)
        return found

    def _look_into(self, partition: Partition, room: int, fetched: Fetched) -> list[int]:
        place, faults = self._places[partition], self._faults
        log = self._link.broker.log(partition)
        if place.is_lost:
            return []
        if not log.start <= place.position <= log.end:
            place.is_lost = True
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, f"no offset {place.position}")
            fetched.errors.append(ReadError(partition, explain(error), is_out_of_range=True))
            return []
        self._known_ends[partition] = log.end
        room = max(1, faults.part(room, faults.weather.partial_fetch))
        offsets, position = log.visible(place.position, room)
        place.position = position
        if offsets:
            self._next[partition] = offsets[-1] + 1
        is_at_end = place.position == log.stable_end != place.told_end
        if is_at_end and not (offsets and faults.happens(faults.weather.late_end)):
            place.told_end = place.position
            fetched.ends.append((partition, place.position))
            self._next[partition] = place.position
        return offsets

    def _batch(self, partition: Partition, offsets: list[int]) -> RecordBatch:
        entries = self._link.broker.log(partition).entries
        records = [entries[offset] for offset in offsets]
        headers = [record.headers for record in records]
        return RecordBatch(
            topic=partition[0],
            partition=partition[1],
            keys=[record.key for record in records],
            values=[record.value for record in records],
            timestamps=[record.timestamp for record in records],
            offsets=offsets,
            headers=headers if any(headers) else None,
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the reader is closed")
