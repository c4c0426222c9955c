"""The state of a join without bounds of time, and how rows find their partners.

Each side has a store with an entry for each row, by the key under which the rows of both sides
meet, the time of the row, and a number. All times are in ms. Rows meet if their times are close
enough, and are kept until all that may meet them is late, so the pace of the inputs does not
matter. A row whose side has results without a partner keeps, until its first partner comes, the
keys of the results that were sent for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.clocks import Times
from kafka_pipeline.streams.dsl.packing import pack, unpack
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, StepTime, times_store_name
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.join_records import Row
from kafka_pipeline.streams.sql.join_shape import SIDES, JoinShape, join_change
from kafka_pipeline.streams.sql.kept_shape import KeptShape
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.state_stores import JOIN, ROWS
from kafka_pipeline.streams.stores import WindowStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import MAX_TIME, window_key

_WAITS, _KNOWS_ENOUGH = b"\1", b"\0"
"""The first byte of a row: whether its first partner changes what was sent for it."""


@dataclass(slots=True)
class KeptRow:
    """A row of one side.

    `sent` has the keys of the results that were sent for it without a partner; it is `None` if no
    partner changes them, or not any more. `record` is the index of its record, if the row is new.
    `partner_at` is the index of the record that brought its first partner, if that is in the batch.
    """

    time: int
    number: int
    side: int
    key: bytes | None
    data: bytes
    sent: list[bytes] | None
    record: int | None = None
    partner_at: int | None = None

    @property
    def stored(self) -> bytes:
        """The row as its store has it."""
        if self.sent is None or self.partner_at is not None:
            return _KNOWS_ENOUGH + self.data
        return _WAITS + pack([self.data, *self.sent])


@dataclass(slots=True)
class JoinEntry:
    """What may have results: a pair, or a row that had no partner when it came, or got its first.

    `record` is the index of the record with which they come, and `time` the later time of the two
    rows that have met.
    """

    record: int
    time: int
    left: KeptRow | None
    right: KeptRow | None
    is_replaced: bool = False
    """Whether its results are not sent, as a later record of the batch brings a partner."""

    @classmethod
    def of_row(cls, row: KeptRow, record: int, time: int) -> JoinEntry:
        """Return the entry of a row, with the time of a record."""
        left, right = (row, None) if row.side == 0 else (None, row)
        is_replaced = row.partner_at is not None and row.partner_at > record
        return cls(record, max(row.time, time), left, right, is_replaced)

    @property
    def alone(self) -> KeptRow | None:
        """The row, if it is only one."""
        if self.left is None:
            return self.right
        return self.left if self.right is None else None


@dataclass(slots=True)
class Meeting:
    """The rows of a batch, and the pairs that they may make, in the order of records."""

    rows: list[KeptRow]
    candidates: list[JoinEntry] = field(default_factory=list)


class RegularJoinState:
    """The rows of a task. One thread at a time."""

    def __init__(self, shape: JoinShape, join: JoinSpec, context: ProcessorContext) -> None:
        """Raise `QueryError` if the state was kept for another query."""
        assert join.regular is not None, "it has no bounds of time"
        self.codecs = tuple(RowCodec(rows) for rows in shape.rows)
        self._reach_ms = MAX_TIME if join.regular.ttl_ms is None else join.regular.ttl_ms
        self._kept_ms = join.regular.kept_ms
        self._only = join.regular.only
        self._deletes = self._only is not None or bool(join.changing)
        follows = ("left",) if self._only else join.keeps
        self._follows = tuple(side in follows for side in SIDES)
        self._rows: list[WindowStore[bytes, bytes]] = [
            context.get_state_store(name) for name in ROWS
        ]
        self._shape = KeptShape(shape.content, partial(join_change, shape.join), context)
        self._time: StepTime | None = None
        if self._kept_ms is not None:
            self._time = StepTime(context, context.get_state_store(times_store_name(JOIN)))
            if not self._time.follows_records:
                for rows in self._rows:
                    rows.follow(self._time.now)

    @property
    def follows_partners(self) -> bool:
        """Whether it matters when a row finds its first partner."""
        return any(self._follows)

    # Time

    def late_by(self, batch: Batch) -> Times | None:
        """Return the time by which each record may be late; `None` if rows are kept forever."""
        return None if self._time is None else self._time.late_by(batch)

    def move(self, time: int) -> None:
        """Go on to a time of the task, as all inputs are known to be there."""
        if self._time is None or (now := self._time.after_hold(time)) <= self._time.now:
            return
        self._time.move(now)
        if not self._time.follows_records:
            for rows in self._rows:
                rows.go_on(now - ENDS_MS)

    # Rows

    def meet(self, rows: Sequence[Row], batch: Batch, keys: Sequence[bytes | None]) -> Meeting:
        """Return the new rows of a batch, which are in the order of records, with their partners.

        Rows meet by these `keys`, one for each; those without one have no partner.
        """
        times, follows = batch.timestamps, self._follows
        new = [
            KeptRow(times[record], 0, side, key, data, [] if follows[side] else None, record)
            for (record, side, data, _), key in zip(rows, keys, strict=True)
        ]
        self._number(new)
        meeting = Meeting(new)
        opened = OpenedRows(self._rows, new, self._reach_ms)
        add = meeting.candidates.append
        for row in new:
            if row.key is None:
                continue
            time, record = row.time, row.record
            assert record is not None, "it is new"
            for other in opened.near(1 - row.side, row.key, time):
                later = time if time > other.time else other.time
                left, right = (row, other) if row.side == 0 else (other, row)
                add(JoinEntry(record, later, left, right))
            opened.add(row)
        return meeting

    def _number(self, rows: Sequence[KeptRow]) -> None:
        """Give new rows numbers that no other row of their side has with the same key and time."""
        numbers: dict[tuple[int, bytes, int], int] = {}
        for side, store in enumerate(self._rows):
            latest = store.stream_time
            asked = {
                (row.key, row.time)
                for row in rows
                if row.side == side and row.time <= latest and row.key is not None
            }
            if not self._deletes and asked:
                # Nothing is deleted before it expires, so the first one is there if any is.
                places = [*asked]
                firsts = store.get_all_serialized([window_key(*place) for place in places])
                asked = {
                    place for place, first in zip(places, firsts, strict=True) if first is not None
                }
            for key, time in asked:
                numbers[side, key, time] = store.next_number(key, time)
        for row in rows:
            if row.key is not None:
                place = row.side, row.key, row.time
                row.number = number = numbers.get(place, 0)
                numbers[place] = number + 1

    def keep(self, meeting: Meeting, matched: Sequence[KeptRow], batch: Batch) -> None:
        """Keep the new rows, and that rows have found their first partner, as `partner_at` says.

        A semi or anti join needs no row any more whose partner has come.
        """
        oldest = self._oldest(batch)
        changes: tuple[Changes, Changes] = ({}, {})
        new = [row for row in meeting.rows if row.key is not None]
        for row in (*new, *(row for row in matched if row.record is None)):
            if row.record is not None and row.time < oldest:
                # A stored one is written: it is read again if rows are kept for longer later.
                continue
            assert row.key is not None, "it has met another row"
            is_done = self._only is not None and row.partner_at is not None
            place = window_key(row.key, row.time, row.number)
            if not is_done:
                changes[row.side][place] = row.stored
            elif row.record is None:
                changes[row.side][place] = None
        self._put(changes, batch)

    def _put(self, changes: tuple[Changes, Changes], batch: Batch) -> None:
        """Write the changes of both sides that a batch makes."""
        self._shape.keep()
        for rows, changed in zip(self._rows, changes, strict=True):
            if changed:
                rows.put_serialized(changed)
        if self._time is not None:
            self._time.see(max(batch.timestamps))

    def _oldest(self, batch: Batch) -> int:
        """Return the time of the oldest rows that are kept after a batch."""
        if self._time is None or self._kept_ms is None:
            return 0
        return self._time.moves(batch)[-1] - self._kept_ms


class OpenedRows:
    """The rows of the keys in a batch that its rows may meet, read once."""

    def __init__(
        self, stores: Sequence[WindowStore[bytes, bytes]], new: Sequence[KeptRow], reach_ms: int
    ) -> None:
        """Rows meet if they are at most `reach_ms` apart. `new` are those of the batch."""
        self._stores = stores
        self._reach_ms = reach_ms
        times = [row.time for row in new]
        self._bounds = min(times, default=0) - reach_ms, max(times, default=0) + reach_ms
        self._read: dict[tuple[int, bytes], list[KeptRow]] = {}
        self._new: dict[tuple[int, bytes], list[KeptRow]] = {}

    def near(self, side: int, key: bytes, time: int) -> Sequence[KeptRow]:
        """Return the rows of a side under a key that are close to a time, by time and number."""
        found = self._read.get((side, key))
        if found is None:
            found = self.stored(side, key, *self._bounds)
            if new := self._new.pop((side, key), None):
                found = sorted([*found, *new], key=_order)
            self._read[side, key] = found
        first, last = time - self._reach_ms, time + self._reach_ms
        if not found or (first <= found[0].time and found[-1].time <= last):
            return found
        start = bisect_left(found, first, key=_time_of)
        return found[start : bisect_right(found, last, start, key=_time_of)]

    def stored(self, side: int, key: bytes, first: int, last: int) -> list[KeptRow]:
        """Read the rows under a key within bounds of time."""
        found = self._stores[side].fetch_numbered(key, first, last)
        return [_kept(side, key, *each) for each in found]

    def add(self, row: KeptRow) -> None:
        """Add a new row."""
        assert row.key is not None
        place = row.side, row.key
        read = self._read.get(place)
        if read is None:
            self._new.setdefault(place, []).append(row)
        elif not read or _order(read[-1]) < _order(row):
            read.append(row)
        else:
            insort(read, row, key=_order)


def _time_of(row: KeptRow) -> int:
    return row.time


def _order(row: KeptRow) -> tuple[int, int]:
    return row.time, row.number


def _kept(side: int, key: bytes, time: int, number: int, stored: bytes) -> KeptRow:
    if stored[:1] == _KNOWS_ENOUGH:
        return KeptRow(time, number, side, key, stored[1:], None)
    data, *sent = unpack(stored[1:])
    assert data is not None, "a row is never null"
    return KeptRow(time, number, side, key, data, [each for each in sent if each is not None])
