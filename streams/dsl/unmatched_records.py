"""The records of a join of streams that have no partner yet, until their window closes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_pipeline.streams.dsl.packing import pack, pack_headers, unpack, unpack_headers
from kafka_pipeline.streams.dsl.waiting import Items, Waiting
from kafka_pipeline.streams.record import Headers
from kafka_pipeline.streams.stores import KeyValueStore

_OF_SIDE = (1, 0)
"""The numbers of the sides in the order of the records: of one time, right ones come first."""


class Lone(NamedTuple):
    """A record whose window closed without a partner; key and value are serialized."""

    timestamp: int
    side: int
    key: bytes
    value: bytes
    headers: Headers


class Unmatched:
    """Keeps records until they have a partner, or until their window closes.

    Only the earliest time at which a record of each side may wait is in memory. It is read from
    the store at the start, and after the engine has undone writes.
    """

    def __init__(self, store: KeyValueStore[bytes, Items], delays_ms: Sequence[int | None]) -> None:
        """`delays_ms` says for each side how long after its time a record waits.

        It is `None` for a side whose records do not wait, and may be negative.
        """
        self._waiting = Waiting(store)
        self._delays_ms = delays_ms
        self._first: list[int | None] = [None, None]
        self._generation: int | None = None
        self.at_once = self._waiting.at_once

    def add(self, side: int, timestamp: int, key: bytes, value: bytes, headers: Headers) -> None:
        """Store a record without a partner."""
        self._read()
        of_headers = (None, pack(pack_headers(headers))) if headers else ()
        self._waiting.add(timestamp, _OF_SIDE[side], key, value, *of_headers)
        first = self._first[side]
        if first is None or timestamp < first:
            self._first[side] = timestamp

    def discard(self, side: int, timestamp: int, key: bytes) -> None:
        """Remove the records of a side with a time and a key, if there are any."""
        self._waiting.discard(timestamp, _OF_SIDE[side], key)

    def take_due(self, now: int) -> list[Lone]:
        """Remove and return the records whose windows have closed by the stream time `now`.

        They are ordered by time, side (right before left) and key.
        """
        self._read()
        due: list[Lone] = []
        for side, (first, delay_ms) in enumerate(zip(self._first, self._delays_ms, strict=True)):
            if first is not None and delay_ms is not None and first + delay_ms < now:
                due += self._take(side, first, now - delay_ms)
        due.sort(key=lambda lone: (lone.timestamp, _OF_SIDE[lone.side], lone.key))
        return due

    def _take(self, side: int, first: int, end: int) -> list[Lone]:
        """Remove and return the records of a side before the time `end`; none is before `first`."""
        taken: list[Lone] = []
        places: list[tuple[int, bytes]] = []
        self._first[side] = None
        for timestamp, number, key, items in self._waiting.since(first):
            if number != _OF_SIDE[side]:
                continue
            if timestamp >= end:
                self._first[side] = timestamp
                break
            places.append((timestamp, key))
            taken += (Lone(timestamp, side, key, *each) for each in _with_headers(items))
        for place in places:
            self.discard(side, *place)
        return taken

    def _read(self) -> None:
        generation = self._waiting.generation
        if generation == self._generation:
            return
        self._generation = generation
        self._first = [None, None]
        sides = {number: side for side, number in enumerate(_OF_SIDE)}
        missing = {side for side, delay_ms in enumerate(self._delays_ms) if delay_ms is not None}
        for timestamp, number, _, _ in self._waiting.since(0):
            side = sides[number]
            if side in missing:
                self._first[side] = timestamp
                missing.remove(side)
            if not missing:
                break


def _with_headers(items: Items) -> Iterator[tuple[bytes, Headers]]:
    """Yield the value of each record, and its headers.

    Headers follow their value after a `None`, which no value can be. So lists from versions that
    kept no headers can still be read.
    """
    value: bytes | None = None
    headers: Headers = ()
    parts = iter(items)
    for part in parts:
        if part is None:
            headers = unpack_headers(unpack(next(parts) or b""))
            continue
        if value is not None:
            yield value, headers
        value, headers = part, ()
    if value is not None:
        yield value, headers
