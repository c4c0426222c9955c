"""The base of window and session stores: entries expire with time, a segment at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import ClassVar, Generic, TypeVar

from kafka_pipeline.common.pipelines.spreading import EntryTime
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, Entry, StoreBytes
from kafka_pipeline.streams.stores.expiring import Expiring
from kafka_pipeline.streams.stores.iterators import StoreIterator
from kafka_pipeline.streams.stores.key_value import warn_of_empty_range
from kafka_pipeline.streams.stores.layout import (
    dropped_mark,
    dropped_until,
    pack_time,
    prefix_end,
    range_end,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

MIN_SEGMENT_MS = 60_000

_FEW_SEGMENTS = 4
"""So many are read one by one: to look for those that have entries takes longer."""


def segment_ms(retention_ms: int) -> int:
    """Return the length of a segment: up to four of them are live, as in Kafka Streams."""
    return max(retention_ms // 2, MIN_SEGMENT_MS)


class SegmentedStore(Expiring, Generic[K, V]):
    """A store over segments of time: an entry expires `retention_ms` after its time.

    The clock is stream time, the largest time of any entry that was ever put, unless the store
    follows the time of a step. Expired entries are
    never returned. Once all of a segment has expired, and a commit has made that certain, the
    segment is dropped, and a mark in the state topic says so.
    """

    entry_time: ClassVar[EntryTime]

    def __init__(
        self,
        name: str,
        store: StoreBytes,
        key_serde: Serde[K],
        value_serde: Serde[V],
        retention_ms: int,
        lingering: int = 0,
    ) -> None:
        """Show the bytes of `store`, which has segments of `segment_ms(retention_ms)`.

        What has expired is still there for `lingering` ms, although it is not returned.
        """
        self.name = name
        self.retention_ms = retention_ms
        self._kept_ms = retention_ms + lingering
        self._store = store
        self._segment_ms = segment_ms(retention_ms)
        self._expire_at = 0
        self._write_key, self._read_key = key_serde.serialize, key_serde.deserialize
        self._write, self._read = value_serde.serialize, value_serde.deserialize

    @property
    def stream_time(self) -> int:
        """The largest time of any entry that was ever put; below 0 if there was none."""
        return self._store.max_timestamp

    @property
    def live_from(self) -> int:
        """The first time that has not expired."""
        return max(0, self._store.expiry_time - self.retention_ms + 1)

    @property
    def expires_by_puts(self) -> bool:
        """Whether entries expire by what is put, and not by the time of a step."""
        return self._bytes.horizon is None

    def _is_late(self, time: int) -> bool:
        """Return whether an entry comes too late to be put, and count it."""
        self.expire()
        if time > self._store.expiry_time - self.retention_ms:
            return False
        self.dropped += 1
        return True

    def expire(self) -> None:
        """Drop the segments that have expired; every put does this, too."""
        committed = self._store.committed_expiry_time
        if committed < self._expire_at:
            return
        # Only committed time is certain: a rollback turns stream time back.
        kept_from = max(0, committed - self._kept_ms + 1)
        first_kept = kept_from // self._segment_ms
        if first_kept > 0:
            self._store.drop_range(b"", pack_time(first_kept))
            self._store.put(dropped_mark(self.entry_time, first_kept * self._segment_ms), None)
        self._expire_at = (first_kept + 1) * self._segment_ms + self._kept_ms - 1

    def follow_drops(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Drop what the store with these committed changes has dropped, of which this is a copy.

        A copy does not know the time of the step that the store follows.
        """
        deleted = (key for key, value in changes.items() if value is None)
        until = max((dropped_until(self.entry_time, key) for key in deleted), default=0)
        if until:
            self._store.drop_range(b"", pack_time(until // self._segment_ms))

    def _scans(
        self,
        time_from: int,
        time_to: int,
        low: bytes,
        high: bytes | None,
        reverse: bool,
    ) -> list[StoreIterator[Entry]]:
        """Return the entries of a range of keys in each segment of a range of times."""
        first, last = time_from // self._segment_ms, time_to // self._segment_ms
        if not low and high is None:
            # Those of all keys follow one another, however many segments there may be in between.
            return [self._store.scan(pack_time(first), prefix_end(pack_time(last)), reverse)]
        scans = []
        for segment in segments_between(self._store, first, last):
            end = prefix_end(segment) if high is None else segment + high
            scans.append(self._store.scan(segment + low, end, reverse))
        return scans[::-1] if reverse else scans

    def _scan_of_key(
        self, key: bytes, time_from: int, time_to: int, reverse: bool
    ) -> list[StoreIterator[Entry]]:
        """Return the entries of one key, and maybe of others, in a range of times."""
        first, last = max(time_from, self.live_from), min(time_to, self._store.max_timestamp)
        if first > last:
            return []
        # There is nothing later: a scan further on would meet other keys that begin with this one.
        return self._scans(first, last, key + pack_time(first), key + pack_time(last + 1), reverse)

    def _entries_of_key(self, key: bytes, time_from: int, time_to: int) -> list[Entry]:
        """Return the entries of one key, and maybe of others, in a range of times, at once."""
        size_ms, store = self._segment_ms, self._store
        first, last = time_from // size_ms, time_to // size_ms
        low, high = key + pack_time(time_from), key + pack_time(time_to + 1)
        if first == last:
            segment = pack_time(first)
            return store.range(segment + low, segment + high)
        segments = segments_between(store, first, last)
        return [entry for each in segments for entry in store.range(each + low, each + high)]

    def _live_entries_of_key(self, key: bytes, time_from: int, time_to: int) -> list[Entry]:
        """Return the entries of one key, and maybe of others, that have not expired, at once."""
        first, last = max(time_from, self.live_from), min(time_to, self._store.max_timestamp)
        return self._entries_of_key(key, first, last) if first <= last else []

    def _key_bounds(self, key_from: K | None, key_to: K | None) -> tuple[bytes, bytes | None]:
        low = b"" if key_from is None else self._write_key(key_from)
        high = None if key_to is None else self._write_key(key_to)
        if high is not None and low > high:
            warn_of_empty_range(self.name)
        return low, high

    def _scan_of_range(
        self, low: bytes, high: bytes | None, time_from: int, time_to: int, reverse: bool
    ) -> list[StoreIterator[Entry]]:
        """Return the entries of keys from `low` to `high`, and maybe of others."""
        first, last = max(time_from, self.live_from), min(time_to, self._store.max_timestamp)
        if first > last:
            return []
        end = None if high is None else range_end(high, last)
        return self._scans(first, last, low, end, reverse)


def segments_between(store: StoreBytes, first: int, last: int) -> Iterator[bytes]:
    """Yield the segments from one number to another, both included, as keys begin with them.

    Of many, only those that have entries: there are any number of empty ones while the step that
    the store follows is behind, or does not know its time yet.
    """
    if last - first < _FEW_SEGMENTS:
        return map(pack_time, range(first, last + 1))
    return _filled_segments(store, first, last)


def _filled_segments(store: StoreBytes, first: int, last: int) -> Iterator[bytes]:
    end = prefix_end(pack_time(last))
    while first <= last:
        with store.scan(pack_time(first), end) as entries:
            found = next(entries, None)
        if found is None:
            return
        segment = found[0][:SEGMENT_BYTES]
        yield segment
        first = int.from_bytes(segment, "big") + 1


def read_entries(
    scans: list[StoreIterator[Entry]], read: Callable[[Iterator[Entry]], Iterator[T]]
) -> StoreIterator[T]:
    """Return one iterator over `scans`, through `read`; keys come without their segment."""
    entries = ((key[SEGMENT_BYTES:], value) for key, value in chain.from_iterable(scans))
    return StoreIterator(read(entries), scans)
