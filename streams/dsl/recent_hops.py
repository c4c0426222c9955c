"""Adds records to hopping windows, and remembers their aggregates.

Most windows that a record is in are those of the last record with its key. Once that was seen, a
record needs nothing from the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kafka_pipeline.streams.dsl.aggregate_functions import (
    AggregateFunctions,
    Updates,
    same_when_read,
)
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import Window, WindowStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.caches import ENTRY_BYTES
from kafka_pipeline.streams.stores.layout import TIME_BYTES, pack_signed_time, signed_time
from kafka_pipeline.streams.stores.remembered_keys import RememberedKeys

_WINDOW_BYTES = 100
"""About how much a window takes in addition to the bytes of its aggregate."""

_PART_BYTES = 50
"""About how much a part of an aggregate takes in addition to its bytes."""


@dataclass(frozen=True, slots=True)
class Hops:
    """Windows that begin one after the other: those that a record is in."""

    first: int
    last: int
    """The starts of the first and the last one."""
    windows: Sequence[Window]
    places: Sequence[bytes]
    """What follows the record's key in the key of each window in the store."""


class _KeyHops:
    """The windows of the last record with a key."""

    __slots__ = ("aggregates", "first", "is_newest", "latest", "stored")

    def __init__(
        self,
        first: int,
        stored: list[bytes | None],
        aggregates: list[Any] | None,
        latest: int,
        is_newest: bool,
    ) -> None:
        self.first = first
        """The start of the first one."""
        self.stored = stored
        """The aggregate of each window as the store has it, with its time; `None` if none."""
        self.aggregates = aggregates
        """The same without times; `None` if each call of a function needs a copy of its own."""
        self.latest = latest
        """No aggregate has a later time than this."""
        self.is_newest = is_newest
        """Whether the key has no aggregate in later windows."""


class RecentHops(RememberedKeys[_KeyHops]):
    """Adds records to the aggregates of hopping windows, which it remembers for each key.

    A use of the store is a call of `add`.
    """

    def __init__(
        self,
        store: WindowStore[Any, Any],
        functions: AggregateFunctions,
        value_serde: Serde[Any],
        *,
        advance_ms: int,
        sends_old: bool,
    ) -> None:
        """Remember nothing at first. A window begins each `advance_ms`."""
        super().__init__(store)
        self._functions = functions
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._reused = same_when_read(value_serde)
        self._are_all_reused = functions.adder_to_each is not None
        self._window_bytes = _WINDOW_BYTES + _PART_BYTES * len(functions.parts)
        self._advance_ms = advance_ms
        self._sends_old = sends_old
        self._changes: Changes = {}
        """What the records of this call have changed so far."""
        self._newest = 0
        """The largest start of a window that was ever written."""

    def add(
        self, keys: Sequence[bytes], records: Iterable[tuple[Any, Any, int]], hops: Sequence[Hops]
    ) -> Updates:
        """Add records, each given as key, value and time, to their windows in the store.

        `keys` has their keys as bytes, too. The result has an item for each window of each record.
        Raises `SerializationError`, and whatever user functions raise.
        """
        self._begin(keys, hops)
        begin, add_to_each = self._functions.initializer, self._functions.add_to_each
        write, sends_old = self._write, self._sends_old
        known, changes, pack = self._keys, self._changes, pack_signed_time
        news, olds, times = list[Any](), list[Any](), list[int]()
        grown = 0
        for data, (key, value, time), span in zip(keys, records, hops, strict=True):
            found, size = known[data], len(span.places)
            if span.last > self._newest:
                self._newest = span.last
            if found.first != span.first or len(found.stored) != size:
                found = known[data] = self._moved(data, found, span)
            stored, aggregates = found.stored, found.aggregates
            if sends_old:
                olds += aggregates or self._all_read(stored)
            before = aggregates or self._all_read(stored)
            added = add_to_each(key, value, [begin() if each is None else each for each in before])
            found.aggregates = added if self._are_reused(added) else None
            if found.latest > time:
                own = [time if each is None else max(time, signed_time(each)) for each in stored]
                written = [
                    None if each is None else pack(at) + write(each)
                    for at, each in zip(own, added, strict=True)
                ]
            else:
                found.latest, own, head = time, [time] * size, pack(time)
                if found.aggregates is None:
                    written = [None if each is None else head + write(each) for each in added]
                elif not self._are_all_reused and added.count(added[0]) == size:
                    written = [head + write(added[0])] * size
                else:
                    written = [head + each for each in map(write, added)]
            found.stored = written
            changes.update(zip(map(data.__add__, span.places), written, strict=True))
            grown += size * len(written[0] or b"")
            news += added
            times += own
        self._end(grown)
        return Updates(news, olds if sends_old else [None] * len(news), times)

    def _size_of(self, key: bytes, known: _KeyHops) -> int:
        data = sum(map(len, filter(None, known.stored)))
        return ENTRY_BYTES + len(key) + self._window_bytes * len(known.stored) + data

    def _begin(self, keys: Sequence[bytes], hops: Sequence[Hops]) -> None:
        """Read the windows of keys that are not known yet."""
        self._begin_use()
        self._changes = {}
        self._newest = self._store.stream_time
        known = self._keys
        if known.keys() >= set(keys):
            return
        columns = zip(reversed(keys), reversed(hops), strict=True)
        unknown = {key: span for key, span in columns if key not in known}
        places = [key + place for key, span in unknown.items() for place in span.places]
        found = iter(self._store.get_all_serialized(places))
        for key, span in unknown.items():
            known[key] = self._made(span, list(islice(found, len(span.places))))
            self.grow(self._size_of(key, known[key]))

    def _moved(self, key: bytes, former: _KeyHops, span: Hops) -> _KeyHops:
        """Return the windows of a record that are not those of the last one with its key."""
        skipped = (span.first - former.first) // self._advance_ms
        missing = len(span.places) - len(former.stored) + skipped
        if skipped < 0 or missing < 0 or not former.is_newest:
            return self._made(span, self._read_all([key + place for place in span.places]))
        none: list[Any] = [None] * min(missing, len(span.places))
        former.first = span.first
        former.stored = former.stored[skipped:] + none
        if former.aggregates is not None:
            former.aggregates = former.aggregates[skipped:] + none
        return former

    def _read_all(self, places: Sequence[bytes]) -> list[bytes | None]:
        """Return the aggregates of windows, with what the records of this call have changed."""
        changes = self._changes
        others = [place for place in places if place not in changes]
        read = dict(zip(others, self._store.get_all_serialized(others), strict=True))
        return [changes[place] if place in changes else read[place] for place in places]

    def _made(self, span: Hops, stored: list[bytes | None]) -> _KeyHops:
        latest = max((signed_time(each) for each in stored if each is not None), default=0)
        is_newest = span.last >= self._newest
        return _KeyHops(span.first, stored, self._aggregates(stored), latest, is_newest)

    def _aggregates(self, stored: Sequence[bytes | None]) -> list[Any] | None:
        """Return aggregates that need not be read for each call; `None` if any must."""
        if not self._reused and not self._are_all_reused:
            return None
        aggregates = self._all_read(stored)
        known = [aggregate for aggregate, each in zip(aggregates, stored, strict=True) if each]
        return aggregates if self._are_reused(known) else None

    def _all_read(self, stored: Sequence[bytes | None]) -> list[Any]:
        return [None if each is None else self._read(each[TIME_BYTES:]) for each in stored]

    def _are_reused(self, aggregates: Sequence[Any]) -> bool:
        return self._are_all_reused or self._reused.issuperset(map(type, aggregates))

    def _end(self, grown: int) -> None:
        """Write what has changed."""
        self._store.put_serialized(self._changes, self._newest)
        self._as_of = self._store.generation, self._store.writes
        self.grow(grown)
