"""The state of a join of two inputs, and how rows find their partners.

All times are in ms. A new row meets the earlier rows of the other side with the same key and a time
within its reach. It stops waiting for partners once stream time exceeds the end of its reach by the
grace period: later partners would be late.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.dsl.waiting import Items
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, times_store_name
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.columns import moments
from kafka_pipeline.streams.sql.join_records import Row
from kafka_pipeline.streams.sql.join_shape import SIDES, JoinShape, join_change
from kafka_pipeline.streams.sql.kept_shape import KeptShape
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.state_stores import JOIN, ROWS, UNMATCHED, reach_of
from kafka_pipeline.streams.stores import KeyValueStore, WindowStore
from kafka_pipeline.streams.stores.layout import MAX_TIME

_NUMBER = struct.Struct(">Q")
_PLACE = struct.Struct(">QBQ")
_TIMES = struct.Struct(">qq")
_TIME = "time"
_UNKNOWN = -1


class WaitingRow(NamedTuple):
    """A row without a partner so far; `due` is the latest time of a possible partner.

    `number` counts the rows of the task in order of arrival.
    """

    due: int
    side: int
    number: int


@dataclass(slots=True)
class Pairs:
    """Pairs of rows, and rows without a partner, as columns of one length.

    `left` and `right` are indexes in `rows`, `None` for the missing partner. `records` is the index
    of the record that completed each pair, and `times` the later time of its rows. `waiting` holds
    the rows of each pair whose side also gives results without a partner, as the store knows them.
    """

    rows: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))
    left: list[int | None] = field(default_factory=list)
    right: list[int | None] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    waiting: list[tuple[WaitingRow, ...]] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.times)

    def row(self, side: int, number: int, data: bytes) -> int:
        """Return the index of a row in `rows`; adds the row the first time."""
        index = self._known.get(number)
        if index is None:
            index = self._known[number] = len(self.rows[side])
            self.rows[side].append(data)
        return index

    def add(
        self,
        rows: tuple[int | None, int | None],
        record: int,
        time: int,
        waiting: tuple[WaitingRow, ...],
    ) -> None:
        """Add a pair, or a row without a partner."""
        self.left.append(rows[0])
        self.right.append(rows[1])
        self.records.append(record)
        self.times.append(time)
        self.waiting.append(waiting)

    def alone(self, pair: int) -> WaitingRow | None:
        """Return the only row of an entry without a partner; `None` for a pair."""
        if self.left[pair] is not None and self.right[pair] is not None:
            return None
        return self.waiting[pair][0]

    def matched(self) -> Iterator[tuple[WaitingRow, ...]]:
        """Yield `waiting` of the pairs of two rows."""
        return (self.waiting[pair] for pair in range(len(self)) if self.alone(pair) is None)

    def drop(self, pairs: Sequence[int]) -> None:
        """Discard pairs whose condition fails; the others keep their numbers."""
        for pair in pairs:
            self.waiting[pair] = ()

    def table(self, shape: JoinShape, codecs: Sequence[RowCodec]) -> pa.Table:
        """Return the pairs as columns."""
        return pairs_table(shape, codecs, self.rows, (self.left, self.right), self.times)


def pairs_table(
    shape: JoinShape,
    codecs: Sequence[RowCodec],
    rows: Sequence[Sequence[bytes]],
    chosen: Sequence[Sequence[int | None]],
    times: Sequence[int],
) -> pa.Table:
    """Return pairs of rows as columns.

    `chosen` has the indexes in `rows` of the left and of the right row of each pair, `None` for a
    missing partner, and `times` the times of the pairs.
    """
    columns: list[pa.ChunkedArray | pa.Array] = []
    for codec, of_side, indices in zip(codecs, rows, chosen, strict=True):
        if len(codec.schema):
            columns += codec.decode(of_side).take(pa.array(indices, pa.int64())).columns
    columns.append(moments(times))
    columns.append(pa.array(range(len(times)), pa.int64()))
    return pa.Table.from_arrays(columns, schema=shape.pairs)


class JoinState:
    """The rows of a task. One thread at a time."""

    def __init__(self, shape: JoinShape, join: JoinSpec, context: ProcessorContext) -> None:
        """Raise `QueryError` if the state was kept for another query."""
        self._join = join
        self.codecs = tuple(RowCodec(rows) for rows in shape.rows)
        self._rows: list[WindowStore[bytes, bytes]] = [
            context.get_state_store(name) for name in ROWS
        ]
        self._times: KeyValueStore[str, tuple[int, int]] = context.get_state_store(
            times_store_name(JOIN)
        )
        self._shape = KeptShape(shape.content, partial(join_change, shape.join), context)
        self._keeps = tuple(side in join.keeps for side in SIDES)
        self._follows_records = context.task_time.follows_records
        self._passed = _UNKNOWN
        if not self._follows_records:
            for rows in self._rows:
                rows.follow(self.now)
        if join.keeps:
            self._waiting: KeyValueStore[bytes, Items] = context.get_state_store(UNMATCHED)
            self._generation: int | None = None
            self._first_due: int | None = _UNKNOWN

    @property
    def now(self) -> int:
        """The time of the join, -1 in the beginning; see `StepTime`."""
        return max((self._times.get(_TIME) or (_UNKNOWN, 0))[0], self._passed)

    def move(self, time: int) -> None:
        """Go on to a time, as all inputs are known to be there."""
        self._passed = time
        if not self._follows_records:
            for rows in self._rows:
                rows.go_on(time - ENDS_MS)

    def pair(
        self, rows: Sequence[Row], keys: Sequence[bytes | None], times: Sequence[int], now: int
    ) -> Pairs:
        """Keep rows, in the order of their records, and return the pairs that they make.

        `keys` and `times` are those of all records, and `now` is stream time after them. A row
        also gets an entry without a partner if its side gives such results.
        """
        self._shape.keep()
        _, number = self._times.get(_TIME) or (-1, 0)
        pairs = Pairs()
        for record, side, data, _ in rows:
            self._pair(pairs, record, side, data, number, keys[record], times[record])
            number += 1
        self._times.put(_TIME, (now, number))
        return pairs

    def _pair(
        self,
        pairs: Pairs,
        record: int,
        side: int,
        data: bytes,
        number: int,
        key: bytes | None,
        time: int,
    ) -> None:
        older, younger = reach_of(self._join, side)
        own = pairs.row(side, number, data)
        waits = self._waits(side, time, number)
        if waits:
            pairs.add((own, None) if side == 0 else (None, own), record, time, waits)
        if key is None:
            return
        last = time + younger
        found = (
            self._rows[1 - side].fetch_list(key, max(time - older, 0), last) if last >= 0 else ()
        )
        for other_time, value in found:
            (other_number,) = _NUMBER.unpack_from(value)
            other = pairs.row(1 - side, other_number, value[_NUMBER.size :])
            both = (own, other) if side == 0 else (other, own)
            waiting = (*waits, *self._waits(1 - side, other_time, other_number))
            pairs.add(both, record, max(time, other_time), waiting)
        self._rows[side].put(key, _NUMBER.pack(number) + data, time)

    def _waits(self, side: int, time: int, number: int) -> tuple[WaitingRow, ...]:
        if not self._keeps[side]:
            return ()
        due = max(time + reach_of(self._join, side)[1], 0)
        return (WaitingRow(due, side, number),)

    # Rows without a partner

    def wait(self, results: Mapping[WaitingRow, Sequence[bytes]]) -> None:
        """Keep the results of rows that have no partner yet."""
        for each, items in results.items():
            self._waiting.put(_PLACE.pack(*each), [*items])
            if self._first_due is None or each.due < self._first_due:
                self._first_due = each.due

    def found_partners(self, rows: Sequence[WaitingRow]) -> None:
        """Forget the results without a partner of these rows, if they are kept."""
        places = [_PLACE.pack(*each) for each in rows]
        for place, items in zip(places, self._waiting.get_all(places), strict=True):
            if items is not None:
                self._waiting.put(place, None)

    def released(self, now: int) -> list[tuple[WaitingRow, Items]]:
        """Remove and return the results of rows whose partners would be late now."""
        if self._waiting.generation != self._generation:
            # What the engine has undone since must be forgotten here too.
            self._generation, self._first_due = self._waiting.generation, _UNKNOWN
        if self._first_due is None or self._first_due + self._join.grace_ms >= now:
            return []
        found = [*self._before(now - self._join.grace_ms)]
        for each, _ in found:
            self._waiting.put(_PLACE.pack(*each), None)
        return found

    def _before(self, time: int) -> Iterator[tuple[WaitingRow, Items]]:
        self._first_due = None
        with self._waiting.all() as entries:
            for place, items in entries:
                waiting = WaitingRow(*_PLACE.unpack(place))
                if waiting.due >= time:
                    self._first_due = waiting.due
                    return
                yield waiting, items


class Renumbering:
    """Gives the rows of a former task numbers that are unique in the task that replaces several.

    The former task is number `rank` of `tasks`.
    """

    def __init__(self, tasks: int, rank: int) -> None:
        self._tasks = tasks
        self._rank = rank

    def number(self, number: int) -> int:
        """Return the new number of a row. Raises `OverflowError`."""
        found = number * self._tasks + self._rank
        if found > MAX_TIME:
            raise OverflowError("the numbers of its rows become too large")
        return found

    def row(self, value: bytes) -> bytes:
        """Return a row of a side with its new number."""
        return _NUMBER.pack(self.number(number_of_row(value))) + value[_NUMBER.size :]

    def place(self, place: bytes) -> bytes:
        """Return the key of the results of a row without a partner, with its new number."""
        due, side, number = _PLACE.unpack(place)
        return _PLACE.pack(due, side, self.number(number))


def number_of_row(value: bytes) -> int:
    """Return the number of a row that is kept for its side."""
    number: int = _NUMBER.unpack_from(value)[0]
    return number


def number_of_place(place: bytes) -> int:
    """Return the number of the row that results without a partner belong to."""
    return WaitingRow(*_PLACE.unpack(place)).number


def merged_numbered_times(found: Sequence[bytes], tasks: int) -> bytes:
    """Return the time and the next row number of a task that replaces `tasks` former ones.

    `found` holds the stored times of the former tasks, which some may lack. Raises `OverflowError`.
    """
    times, numbers = zip(*map(_TIMES.unpack, found), strict=True)
    return _TIMES.pack(min(times), Renumbering(tasks, 0).number(max(numbers)))
