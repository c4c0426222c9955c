"""Joins of two streams: records meet if their times are close enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Protocol

from kafka_pipeline.streams.clocks import NO_CLOCK
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import LEFT, RIGHT, JoinFunction, JoinKind, add_sides
from kafka_pipeline.streams.dsl.table_lookup import NULL_KEY_OR_VALUE
from kafka_pipeline.streams.dsl.table_values import unwritable
from kafka_pipeline.streams.dsl.topics import topics_read_for
from kafka_pipeline.streams.dsl.unmatched_records import Unmatched
from kafka_pipeline.streams.dsl.waiting import waiting_store
from kafka_pipeline.streams.dsl.windows import JoinWindows
from kafka_pipeline.streams.engine.either_way import MeetingPoint
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.event_time.step_time import (
    ENDS_MS,
    EXPIRED,
    EXPIRED_AFTER_IDLE,
    NO_TIME,
    FollowsTime,
    JoinTime,
    join_time_store,
)
from kafka_pipeline.streams.processor import Processor, ProcessorContext
from kafka_pipeline.streams.record import Batch, Headers, Record, items_of
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import StoreBuilder, WindowStore, window
from kafka_pipeline.streams.stores.recent_windows import RecentWindows
from kafka_pipeline.streams.stores.window_batch import WindowBatch, meet


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """The parameters of a join's processor. `name` is that of the step.

    The serdes are those of the key, and of the values of both sides.
    """

    name: str
    kind: JoinKind
    joiner: JoinFunction
    windows: JoinWindows
    key_serde: Serde[Any]
    value_serdes: tuple[Serde[Any], Serde[Any]]

    @property
    def sides(self) -> tuple[str, str]:
        """The stores of the records of both sides."""
        return f"{self.name}-left", f"{self.name}-right"

    @property
    def waiting(self) -> str:
        """The store of the records that have no partner yet."""
        return f"{self.name}-unmatched"

    @property
    def times(self) -> str:
        """The store of the times."""
        return f"{self.name}-times"

    @property
    def holds_ms(self) -> int:
        """How much later than a record its result without a partner is, in event time."""
        if self.kind is JoinKind.INNER:
            return 0
        windows = self.windows
        return max(windows.after_ms, windows.before_ms, 0) + windows.grace_ms + 1

    def side_store(self, side: int, after_key: int) -> StoreBuilder[Any, Any]:
        """Return the definition of the store of a side.

        Records are kept as long as in Kafka Streams, for the size of the window and the grace
        period. If a bound of the window is 0 or negative, that is too short for a partner at the
        other bound which comes at the end of the grace period: then they are kept until it has
        passed. Of each key, `after_key` bytes are not of the record's key.
        """
        windows = self.windows
        size_ms, grace_ms = windows.size_ms, windows.grace_ms
        kept_ms = max(size_ms, windows.before_ms + 1, windows.after_ms + 1)
        return (
            window(
                self.sides[side],
                self.key_serde,
                self.value_serdes[side],
                retention_ms=kept_ms + grace_ms,
                window_size_ms=max(1, size_ms),
                retain_duplicates=True,
            )
            .spread(after=after_key)
            .of_windows("")
        )


@dataclass(frozen=True, slots=True)
class JoinStreams(Operation):
    """Joins two streams in windows."""

    join: StreamJoin

    restores_order = True
    keeps_places = True

    @property
    def verb(self) -> str:
        return self.join.kind.value

    @property
    def takes_null_keys(self) -> bool:
        """Whether records without a key have results, without a partner (KIP-962)."""
        return self.join.kind is not JoinKind.INNER

    def stores(self) -> tuple[str, ...]:
        join = self.join
        waits = join.kind is not JoinKind.INNER
        return (*join.sides, join.waiting, join.times) if waits else join.sides

    def _stores(self, step: Step) -> list[StoreBuilder[Any, Any]]:
        join, after_key = self.join, step.after_key
        left, right = map(topics_read_for, step.parents)
        sides = [
            join.side_store(LEFT, after_key).of_topics(left, right),
            join.side_store(RIGHT, after_key).of_topics(right, left),
        ]
        if join.kind is JoinKind.INNER:
            return sides
        return [*sides, waiting_store(join.waiting, after_key), join_time_store(join.times)]

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the stores, a node for each side, and the one that joins."""
        for store in self._stores(step):
            compiler.add_store(store)
        sides = add_sides(step, compiler)
        compiler.runs(step, partial(StreamJoiner, self.join), sides, holds_ms=self.join.holds_ms)


@dataclass(frozen=True, slots=True)
class JoinWithSelf(Operation):
    """Joins a stream with itself; one store is enough (KIP-862)."""

    join: StreamJoin

    @property
    def verb(self) -> str:
        return self.join.kind.value

    def stores(self) -> tuple[str, ...]:
        return (self.join.sides[LEFT],)

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.add_store(self.join.side_store(LEFT, step.after_key))
        compiler.runs(step, partial(SelfJoiner, self.join))


class _Joining(FollowsTime):
    """The base of both processors: stores, their errors, and what is late for a join.

    If each record advances stream time, a late record is still joined with the records in the
    stores, as in Kafka Streams. Otherwise the content of the stores depends on the speed of other
    tasks, so a record that is later than the grace period by its own clock is dropped.
    """

    context: ProcessorContext

    def __init__(self, join: StreamJoin) -> None:
        super().__init__()
        self._join = join
        self._joiner = join.joiner
        self._write = [serde.serialize for serde in join.value_serdes]
        windows = join.windows
        self._before_ms = (windows.before_ms, windows.after_ms)
        self._after_ms = (windows.after_ms, windows.before_ms)
        self._grace_ms = windows.grace_ms

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._passed: int = NO_TIME
        """How far all inputs are known to be."""
        self._follows_records: bool = context.task_time.follows_records

    def _follow(self, stores: Sequence[WindowStore[Any, Any]], now: int) -> None:
        """Let what is in the stores expire by the time of the task."""
        if not self._follows_records:
            for store in stores:
                store.follow(now)

    def _go_on(self, time: int, stores: Sequence[WindowStore[Any, Any]]) -> bool:
        """Go on to a time of the task; return whether that is new."""
        now = time - self.context.hold_ms
        if now <= self._passed:
            return False
        self._passed = now
        if not self._follows_records:
            for store in stores:
                store.go_on(now - ENDS_MS)
        return True

    def _drops(self, timestamp: int, clock: int, now: int) -> bool:
        """Return whether a record comes too late, and count it; `now` is the time of the step."""
        own = max(timestamp, clock)
        until = timestamp + self._grace_ms
        if until >= max(own, now):
            return False
        self.context.drop(EXPIRED if own > until else EXPIRED_AFTER_IDLE)
        return True

    def _written_key(self, key: Any) -> bytes:
        try:
            return self._join.key_serde.serialize(key)
        except SerializationError as error:
            raise self._unwritable(error) from error

    def _written(self, side: int, value: Any) -> bytes:
        try:
            return self._write[side](value)
        except SerializationError as error:
            raise self._unwritable(error) from error

    def _all_written(self, values: Sequence[tuple[int, Any]]) -> list[bytes]:
        """Return values as bytes, each of which comes with its side."""
        write = self._write
        try:
            return [write[side](value) for side, value in values]
        except SerializationError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: SerializationError) -> SerializationError:
        return unwritable(f'{self._join.kind.value} "{self._join.name}"', error)

    def _recent(self, side: int) -> RecentWindows:
        """Return the store of a side, whose newest records are in memory."""
        store = self.context.get_state_store(self._join.sides[side])
        return RecentWindows(store, max(*self._before_ms, 0))


class StreamJoiner(_Joining, MeetingPoint):
    """Joins each record with those of the other side that are in its window, then keeps it.

    In a left or outer join, a record without a partner waits until no partner can come any more,
    grace included; then it goes out with its own headers. How long that is depends on its side
    (KAFKA-15417). Time is the largest timestamp of both sides.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        join = self._join
        self._sides = [self._recent(side) for side in (LEFT, RIGHT)]
        self._stores = [side.store for side in self._sides]
        self._read = [serde.deserialize for serde in join.value_serdes]
        self._keeps = (join.kind.keeps(LEFT), join.kind.keeps(RIGHT))
        self._delays_ms = [after_ms + self._grace_ms for after_ms in self._after_ms]
        self._unmatched: Unmatched | None = None
        now = NO_TIME
        if join.kind is not JoinKind.INNER:
            delays_ms = zip(self._keeps, self._delays_ms, strict=True)
            self._unmatched = Unmatched(
                context.get_state_store(join.waiting),
                [delay_ms if keeps else None for keeps, delay_ms in delays_ms],
            )
            self._time = JoinTime(context, context.get_state_store(join.times))
            now = self._time.now
        self._follow(self._stores, now)

    def process_record(self, record: Record) -> None:
        now = self._passed if self._unmatched is None else self._time.see(record.timestamp)
        key = b"" if record.key is None else self._written_key(record.key)
        clock = self.context.task_time.clock
        self._join_one(
            record.key,
            key,
            record.value,
            record.timestamp,
            record.headers,
            clock,
            now,
            self._sides,
            self._forward_now,
        )

    def process_in_order(self, batch: Batch) -> None:
        keys = [b"" if key is None else self._written_key(key) for key in items_of(batch.keys)]
        sides = [WindowBatch(side) for side in self._sides]
        self._load(sides, keys, batch)
        unmatched = self._unmatched
        if unmatched is None:
            results = self._met(batch, keys, sides)
        else:
            with unmatched.at_once():
                results = self._joined_one_by_one(batch, keys, sides)
        for side in sides:
            side.end()
        if unmatched is not None:
            self._time.see(max(items_of(batch.timestamps)))
        self.context.forward(results)

    def _met(self, batch: Batch, keys: Sequence[bytes], sides: Sequence[WindowBatch]) -> Batch:
        """Join a batch whose records have no results without a partner."""
        times, values = items_of(batch.timestamps), items_of(batch.values)
        kept = self._not_dropped(batch)
        written = self._all_written([values[place] for place in kept])
        records = [
            (values[place][0], keys[place], times[place], data)
            for place, data in zip(kept, written, strict=True)
        ]
        met = meet(sides, records, self._before_ms, self._after_ms)
        read, joiner = self._read, self._joiner
        joined, joined_times = [], []
        places = [kept[number] for number, _, _ in met]
        for place, (_, time, data) in zip(places, met, strict=True):
            side, value = values[place]
            other = read[1 - side](data)
            joined.append(joiner(value, other) if side == LEFT else joiner(other, value))
            joined_times.append(time if time > times[place] else times[place])
        return _results_of(batch, places, joined, joined_times)

    def _not_dropped(self, batch: Batch) -> Sequence[int]:
        """Return which records can have a partner, and count the others."""
        keys, values = items_of(batch.keys), items_of(batch.values)
        kept = [
            place
            for place, (key, (_, value)) in enumerate(zip(keys, values, strict=True))
            if key is not None and value is not None
        ]
        for _ in range(len(keys) - len(kept)):
            self.context.drop(NULL_KEY_OR_VALUE)
        if self._follows_records:
            return kept
        times, clocks, now = items_of(batch.timestamps), batch.clocks, self._passed
        return [
            place
            for place in kept
            if not self._drops(times[place], NO_CLOCK if clocks is None else clocks[place], now)
        ]

    def _joined_one_by_one(
        self, batch: Batch, keys: Sequence[bytes], sides: Sequence[WindowBatch]
    ) -> Batch:
        times = items_of(batch.timestamps)
        results = _Results()
        records = zip(
            items_of(batch.keys),
            keys,
            items_of(batch.values),
            times,
            repeat(()) if batch.headers is None else (each or () for each in batch.headers),
            batch.clocks or repeat(NO_CLOCK),
            self._time.moves(times),
            repeat(sides),
            repeat(results.add),
            strict=False,
        )
        places = batch.offsets or range(len(times))
        for results.place, record in zip(places, records, strict=True):
            self._join_one(*record)
        return results.batch(with_clocks=batch.clocks is not None)

    def _load(self, sides: Sequence[WindowBatch], keys: Sequence[bytes], batch: Batch) -> None:
        """Read the records of both sides that those of a batch may meet and are not in memory."""
        times = items_of(batch.timestamps)
        before_ms, after_ms = self._before_ms, self._after_ms
        if min(times) - max(before_ms) > max(side.read_until for side in sides):
            return
        for key, (side, value), timestamp in zip(keys, items_of(batch.values), times, strict=True):
            other = sides[1 - side]
            first = timestamp - before_ms[side]
            if first <= other.read_until and value is not None:
                other.expect(key, first, timestamp + after_ms[side])
        for each in sides:
            each.load()

    def _join_one(
        self,
        key: Any,
        key_data: bytes,
        side_and_value: tuple[int, Any],
        timestamp: int,
        headers: Headers,
        clock: int,
        now: int,
        sides: Sequence[Side],
        forward: Forward,
    ) -> None:
        """Join a record with those of the other side, and add it to its own.

        `key_data` is the key as bytes, and `now` is the time of the step.
        """
        side, value = side_and_value
        unmatched = self._unmatched
        if key is None or value is None:
            if value is not None and self._keeps[side]:
                alone = self._joined(side, value, None)
                forward(key, alone, timestamp, headers, clock)
            else:
                self.context.drop(NULL_KEY_OR_VALUE)
            return
        if not self._follows_records and self._drops(timestamp, clock, now):
            return
        if unmatched is not None and timestamp == now and self._follows_records:
            self._release(unmatched, now, forward)
        first, last = timestamp - self._before_ms[side], timestamp + self._after_ms[side]
        found = sides[1 - side].fetch_serialized(key_data, first, last)
        for time, data in found:
            if unmatched is not None and self._keeps[1 - side]:
                unmatched.discard(1 - side, time, key_data)
            joined = self._joined(side, value, self._read[1 - side](data))
            forward(key, joined, time if time > timestamp else timestamp, headers, clock)
        written = self._written(side, value)
        if unmatched is not None and self._keeps[side] and not found:
            if timestamp + self._delays_ms[side] < now:
                alone = self._joined(side, value, None)
                forward(key, alone, timestamp, headers, clock)
            else:
                unmatched.add(side, timestamp, key_data, written, headers)
        sides[side].put_one_serialized(key_data, timestamp, written)

    def _joined(self, side: int, value: Any, other: Any) -> Any:
        return self._joiner(value, other) if side == LEFT else self._joiner(other, value)

    def time_passed(self, time: int) -> None:
        if self._go_on(time, self._stores) and self._unmatched is not None:
            self._time.move(self._passed)
            self._release(self._unmatched, self._passed, self._forward_now)

    def _release(self, unmatched: Unmatched, now: int, forward: Forward) -> None:
        """Forward the records whose window has closed without a partner, before the current one."""
        for lone in unmatched.take_due(now):
            joined = self._joined(lone.side, self._read[lone.side](lone.value), None)
            key = self._join.key_serde.deserialize(lone.key)
            forward(key, joined, lone.timestamp, lone.headers, NO_CLOCK)

    def _forward_now(
        self, key: Any, value: Any, timestamp: int, headers: Headers, clock: int
    ) -> None:
        task_time = self.context.task_time
        clock, task_time.clock = task_time.clock, clock
        self.context.forward(Record(key, value, timestamp, headers))
        task_time.clock = clock


class SelfJoiner(_Joining, Processor):
    """Joins a stream with itself: the results and their order are those of a join of two streams.

    That is: each record as the left one with all before it, then as the right one, with itself
    among the others by time. A second store would have the record by then, so its time counts for
    what has expired.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._side = self._recent(LEFT)
        self._store = self._side.store
        self._retention_ms = self._store.retention_ms
        self._read = self._join.value_serdes[LEFT].deserialize
        self._follow([self._store], NO_TIME)

    def time_passed(self, time: int) -> None:
        self._go_on(time, [self._store])

    def process(self, record: Record) -> None:
        key, value, timestamp, joiner = record.key, record.value, record.timestamp, self._joiner
        if key is None or value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        if not self._follows_records and self._drops(
            timestamp, self.context.task_time.clock, self._passed
        ):
            return
        key_data = self._written_key(key)
        for time, other in self._found(key_data, timestamp, LEFT):
            self._forward(record, joiner(value, other), max(timestamp, time))
        expired = self._expired(timestamp)
        first = timestamp - self._before_ms[RIGHT]
        last = timestamp + self._after_ms[RIGHT]
        meets_itself = expired < timestamp and first <= timestamp <= last
        for time, other in self._found(key_data, timestamp, RIGHT):
            if time <= expired:
                continue
            if meets_itself and time > timestamp:
                self._forward(record, joiner(value, value), timestamp)
                meets_itself = False
            self._forward(record, joiner(other, value), max(timestamp, time))
        if meets_itself:
            self._forward(record, joiner(value, value), timestamp)
        self._side.put_one_serialized(key_data, timestamp, self._written(LEFT, value))

    def _forward(self, record: Record, joined: Any, timestamp: int) -> None:
        self.context.forward(Record(record.key, joined, timestamp, record.headers))

    def _found(self, key: bytes, timestamp: int, side: int) -> list[tuple[int, Any]]:
        """Return times and values of the records that one meets as a record of this side."""
        first, last = timestamp - self._before_ms[side], timestamp + self._after_ms[side]
        found = self._side.fetch_serialized(key, first, last)
        return [(time, self._read(data)) for time, data in found]

    def _expired(self, timestamp: int) -> int:
        """Return the last time that the store of a second stream would not have any more."""
        known = self._passed - ENDS_MS
        if self._follows_records:
            known = max(timestamp, self._store.stream_time)
        return known - self._retention_ms


class Side(Protocol):
    """The records of a side: `RecentWindows`, or as a batch sees them."""

    def fetch_serialized(
        self, key: bytes, first: int, last: int
    ) -> Sequence[tuple[int, bytes]]: ...
    def put_one_serialized(self, key: bytes, time: int, value: bytes) -> None: ...


Forward = Callable[[Any, Any, int, Headers, int], None]
"""Takes the key, value, timestamp, headers and clock of a result."""


class _Results:
    """The results of a batch, each with the place of the record that led to it."""

    def __init__(self) -> None:
        self.place = 0
        self._rows: list[tuple[Any, Any, int, Headers, int, int]] = []

    def add(self, key: Any, value: Any, timestamp: int, headers: Headers, clock: int) -> None:
        self._rows.append((key, value, timestamp, headers, clock, self.place))

    def batch(self, *, with_clocks: bool) -> Batch:
        if not self._rows:
            return Batch([], [], [])
        columns = (list(map(itemgetter(place), self._rows)) for place in range(6))
        keys, values, times, headers, clocks, places = columns
        has_headers = any(headers)
        return Batch(
            keys,
            values,
            times,
            headers if has_headers else None,
            places,
            clocks if with_clocks else None,
        )


def _results_of(
    batch: Batch, places: Sequence[int], values: Sequence[Any], times: Sequence[int]
) -> Batch:
    """Return results, each with the place of the record in the batch that led to it."""

    def column(items: Sequence[Any]) -> list[Any]:
        return [items[place] for place in places]

    headers = [] if batch.headers is None else column(batch.headers)
    return Batch(
        column(items_of(batch.keys)),
        values,
        times,
        headers if any(headers) else None,
        places if batch.offsets is None else column(batch.offsets),
        None if batch.clocks is None else column(batch.clocks),
    )
