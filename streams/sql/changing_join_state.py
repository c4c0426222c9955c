"""The state of a join without bounds of time whose rows may be taken out again.

A row is taken out by its key, its time and its content. Each row says how many partners it has, so
that it is known when the last one goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.join_records import Row
from kafka_pipeline.streams.sql.regular_join_state import (
    JoinEntry,
    KeptRow,
    OpenedRows,
    RegularJoinState,
)
from kafka_pipeline.streams.stores import WindowStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import window_key

_COUNT_BYTES = 4


@dataclass(slots=True)
class CountedRow(KeptRow):
    """A row with the number of its `partners`, if its side follows them.

    A store has it with the number that `was` before the batch, `None` if it is new.
    """

    partners: int = 0
    was: int | None = None
    is_gone: bool = False

    @property
    def stored(self) -> bytes:
        return self.partners.to_bytes(_COUNT_BYTES, "big") + self.data


@dataclass(slots=True)
class SignedEntry(JoinEntry):
    """What has results from now on, or, with the sign -1, has none any more."""

    sign: int = 1


@dataclass(slots=True)
class RowChange:
    """A row that comes, or goes with the sign -1, and its pairs with the rows that are there."""

    row: CountedRow
    record: int
    sign: int
    pairs: list[SignedEntry] = field(default_factory=list)


class ChangingJoinState(RegularJoinState):
    """The rows of a task. One thread at a time."""

    def changes(
        self, rows: Sequence[Row], batch: Batch, keys: Sequence[bytes | None]
    ) -> list[RowChange]:
        """Return what the rows of a batch change, one after the other, with the candidates.

        Rows meet by these `keys`, one for each. One that is lost and not there any more, as its
        time was over or it came late, changes nothing.
        """
        times = batch.timestamps
        given = [
            CountedRow(
                times[record] if lost_at is None else lost_at, 0, side, key, data, None, record
            )
            for (record, side, data, lost_at), key in zip(rows, keys, strict=True)
        ]
        self._number(
            [row for row, (*_, lost_at) in zip(given, rows, strict=True) if lost_at is None]
        )
        opened, found = _ChangingRows(self._rows, given, self._reach_ms), list[RowChange]()
        for row, (record, _, _, lost_at) in zip(given, rows, strict=True):
            change = RowChange(row, record, 1 if lost_at is None else -1)
            if row.key is not None and lost_at is not None:
                lost = opened.take(row)
                if lost is None:
                    continue
                change.row = lost
            if row.key is not None:
                change.pairs = [
                    _pair(change, other) for other in opened.near(1 - row.side, row.key, row.time)
                ]
            if row.key is not None and lost_at is None:
                opened.add(row)
            found.append(change)
        return found

    def entries(self, changes: Sequence[RowChange], batch: Batch) -> list[SignedEntry]:
        """Return what has results, or none any more, by the pairs of changes; count partners."""
        found = list[SignedEntry]()
        for change in changes:
            row, sign, time = change.row, change.sign, batch.timestamps[change.record]
            for pair in change.pairs:
                if self._only is None:
                    found.append(pair)
                other = pair.right if row.side == 0 else pair.left
                assert isinstance(other, CountedRow), "it was read here"
                if self._follows[other.side]:
                    was_shown = self._is_shown(other)
                    other.partners += sign
                    if self._is_shown(other) != was_shown:
                        turned = -1 if was_shown else 1
                        found.append(_alone(other, change.record, time, turned))
            if self._follows[row.side]:
                if sign > 0:
                    row.partners = len(change.pairs)
                if self._is_shown(row):
                    found.append(_alone(row, change.record, row.time, sign))
        return found

    def keep_changes(self, changes: Sequence[RowChange], batch: Batch) -> None:
        """Keep the rows that have come, and how many partners rows have; remove others."""
        oldest = self._oldest(batch)
        written: tuple[Changes, Changes] = ({}, {})
        touched = dict[int, CountedRow]()
        for change in changes:
            touched[id(change.row)] = change.row
            for pair in change.pairs:
                for row in (pair.left, pair.right):
                    assert isinstance(row, CountedRow), "it was read here"
                    touched[id(row)] = row
        for row in touched.values():
            if row.key is None or (row.was is None and (row.is_gone or row.time < oldest)):
                continue
            place = window_key(row.key, row.time, row.number)
            if row.is_gone:
                written[row.side][place] = None
            elif row.was != row.partners:
                written[row.side][place] = row.stored
        self._put(written, batch)

    def _is_shown(self, row: CountedRow) -> bool:
        """Whether a row has results of its own: with a partner in a semi join, else without."""
        return (row.partners > 0) == (self._only == "semi")


class _ChangingRows(OpenedRows):
    """See `OpenedRows`; rows may go before the others of their key are read."""

    def __init__(
        self, stores: Sequence[WindowStore[bytes, bytes]], rows: Sequence[KeptRow], reach_ms: int
    ) -> None:
        """See `OpenedRows`; `rows` are those that come and that go."""
        super().__init__(stores, rows, reach_ms)
        self._gone: set[tuple[int, bytes, int, int]] = set()
        self._at = dict[tuple[int, bytes, int, bytes], list[CountedRow]]()
        """The rows of the batch by their place, time and content."""

    def add(self, row: KeptRow) -> None:
        super().add(row)
        assert isinstance(row, CountedRow), "it is made here"
        assert row.key is not None, "it is kept"
        self._at.setdefault((row.side, row.key, row.time, row.data), []).append(row)

    def near(self, side: int, key: bytes, time: int) -> Sequence[KeptRow]:
        if new := self._new.get((side, key)):
            self._new[side, key] = [
                row for row in new if not (isinstance(row, CountedRow) and row.is_gone)
            ]
        return super().near(side, key, time)

    def take(self, wanted: KeptRow) -> CountedRow | None:
        """Remove a row that equals another one, and return it; `None` if there is none."""
        assert wanted.key is not None, "the others are not kept"
        place = wanted.side, wanted.key
        rows, found = self._read.get(place), None
        if new := self._at.get((*place, wanted.time, wanted.data)):
            found = new.pop()
            if rows is not None:
                at = found.time, found.number
                rows.pop(bisect_left(rows, at, key=attrgetter("time", "number")))
        elif rows is not None:
            found = _taken(rows, bisect_left(rows, wanted.time, key=attrgetter("time")), wanted)
        else:
            found = _taken(self.stored(*place, wanted.time, wanted.time), 0, wanted)
        if found is None:
            return None
        found.is_gone = True
        self._gone.add((*place, found.time, found.number))
        return found

    def stored(self, side: int, key: bytes, first: int, last: int) -> list[KeptRow]:
        return [
            CountedRow(time, number, side, key, data, None, partners=partners, was=partners)
            for time, number, stored in self._stores[side].fetch_numbered(key, first, last)
            if (side, key, time, number) not in self._gone
            for partners, data in [_counted(stored)]
        ]


def _taken(rows: list[KeptRow], start: int, wanted: KeptRow) -> CountedRow | None:
    """Remove a row of the same time and content from rows in order, from a place on."""
    for index in range(start, len(rows)):
        row = rows[index]
        if row.time != wanted.time:
            return None
        if row.data == wanted.data:
            assert isinstance(row, CountedRow), "it was read here"
            rows.pop(index)
            return row
    return None


def _counted(stored: bytes) -> tuple[int, bytes]:
    """Return how many partners a stored row has, and the row."""
    return int.from_bytes(stored[:_COUNT_BYTES], "big"), stored[_COUNT_BYTES:]


def _pair(change: RowChange, other: KeptRow) -> SignedEntry:
    row = change.row
    left, right = (row, other) if row.side == 0 else (other, row)
    return SignedEntry(change.record, max(row.time, other.time), left, right, sign=change.sign)


def _alone(row: CountedRow, record: int, time: int, sign: int) -> SignedEntry:
    """Return the entry of a row, with the time of a record."""
    left, right = (row, None) if row.side == 0 else (None, row)
    return SignedEntry(record, max(row.time, time), left, right, sign=sign)
