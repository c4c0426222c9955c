"""Joins of two streams: records meet if their times are close enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from kafka_pipeline.streams.clocks import NO_CLOCK
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import LEFT, RIGHT, JoinFunction, JoinKind, add_sides
from kafka_pipeline.streams.dsl.packing import pack, pack_headers, unpack, unpack_headers
from kafka_pipeline.streams.dsl.table_lookup import NULL_KEY_OR_VALUE
from kafka_pipeline.streams.dsl.table_values import unwritable
from kafka_pipeline.streams.dsl.waiting import Items, Waiting, waiting_store
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
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, WindowStore, window
from kafka_pipeline.streams.stores.window_batch import WindowBatch


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

    def _stores(self, after_key: int) -> list[StoreBuilder[Any, Any]]:
        join = self.join
        sides = [join.side_store(side, after_key) for side in (LEFT, RIGHT)]
        if join.kind is JoinKind.INNER:
            return sides
        return [*sides, waiting_store(join.waiting, after_key), join_time_store(join.times)]

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the stores, a node for each side, and the one that joins."""
        for store in self._stores(step.after_key):
            compiler.add_store(store)
        sides = add_sides(step, compiler)
        compiler.builder.add_processor(
            step.name,
            partial(StreamJoiner, self.join),
            sides,
            stores=self.stores(),
            holds_ms=self.join.holds_ms,
        )
        compiler.produces(step, step.name)


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
        compiler.builder.add_processor(
            step.name,
            partial(SelfJoiner, self.join),
            compiler.parents(step),
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


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

    def _keep(self, store: WindowStore[Any, Any], record: Record, value: Any) -> None:
        """Put a record into the store of its side."""
        try:
            store.put(record.key, value, record.timestamp)
        except SerializationError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: SerializationError) -> SerializationError:
        return unwritable(f'{self._join.kind.value} "{self._join.name}"', error)

    def _forward(self, record: Record, joined: Any, timestamp: int) -> None:
        self.context.forward(Record(record.key, joined, timestamp, record.headers))

    def _found(
        self, store: WindowStore[Any, Any], record: Record, side: int
    ) -> list[tuple[int, Any]]:
        """Return times and values of the records of the other side that a record meets."""
        first = max(0, record.timestamp - self._before_ms[side])
        last = record.timestamp + self._after_ms[side]
        return store.fetch_list(record.key, first, last) if first <= last else []


class StreamJoiner(_Joining, MeetingPoint):
    """Joins each record with those of the other side that are in its window, then keeps it.

    In a left or outer join, a record without a partner waits until no partner can come any more,
    grace included; then it goes out with its own headers. How long that is depends on its side
    (KAFKA-15417). Time is the largest timestamp of both sides.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        join = self._join
        self._stores: list[WindowStore[Any, Any]] = [
            context.get_state_store(name) for name in join.sides
        ]
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
        self._join_one(record, key, clock, now, self._stores, self._forward_now)

    def process_in_order(self, batch: Batch) -> None:
        times = items_of(batch.timestamps)
        keys = [b"" if key is None else self._written_key(key) for key in items_of(batch.keys)]
        sides = [WindowBatch(store) for store in self._stores]
        self._load(sides, keys, batch)
        nows = [self._passed] * len(times) if self._unmatched is None else self._time.moves(times)
        clocks = batch.clocks or [NO_CLOCK] * len(times)
        places = batch.offsets or range(len(times))
        results = _Results()
        records = zip(batch.records(), keys, clocks, nows, places, strict=True)
        with nullcontext() if self._unmatched is None else self._unmatched.at_once():
            for record, key, clock, now, results.place in records:
                self._join_one(record, key, clock, now, sides, results.add)
        for side in sides:
            side.end()
        if self._unmatched is not None:
            self._time.see(max(times))
        self.context.forward(results.batch(with_clocks=batch.clocks is not None))

    def _load(self, sides: Sequence[WindowBatch], keys: Sequence[bytes], batch: Batch) -> None:
        """Read the records of both sides that those of a batch may meet."""
        columns = (keys, items_of(batch.values), items_of(batch.timestamps))
        before_ms, after_ms = self._before_ms, self._after_ms
        for key, (side, value), timestamp in zip(*columns, strict=True):
            other = sides[1 - side]
            first = timestamp - before_ms[side]
            if first <= other.stored_until and value is not None:
                other.expect(key, first, timestamp + after_ms[side])
        for each in sides:
            each.load()

    def _join_one(
        self,
        record: Record,
        key_data: bytes,
        clock: int,
        now: int,
        sides: Sequence[Side],
        forward: Forward,
    ) -> None:
        """Join a record with those of the other side, and add it to its own.

        `key_data` and `clock` are those of the record, and `now` is the time of the step.
        """
        side, value = record.value
        key, timestamp, unmatched = record.key, record.timestamp, self._unmatched
        if key is None or value is None:
            if value is not None and self._keeps[side]:
                alone = self._joined(side, value, None)
                forward(key, alone, timestamp, record.headers, clock)
            else:
                self.context.drop(NULL_KEY_OR_VALUE)
            return
        if not self._follows_records and self._drops(timestamp, clock, now):
            return
        if unmatched is not None and timestamp == now and self._follows_records:
            self._release(unmatched, now, forward)
        read = self._read[1 - side]
        first, last = timestamp - self._before_ms[side], timestamp + self._after_ms[side]
        found = sides[1 - side].fetch_serialized(key_data, first, last)
        for time, data in found:
            if unmatched is not None:
                unmatched.discard(1 - side, time, key_data)
            joined = self._joined(side, value, read(data))
            forward(key, joined, max(timestamp, time), record.headers, clock)
        written = self._written(side, value)
        if unmatched is not None and self._keeps[side] and not found:
            if timestamp + self._delays_ms[side] < now:
                alone = self._joined(side, value, None)
                forward(key, alone, timestamp, record.headers, clock)
            else:
                unmatched.add(side, timestamp, key_data, written, record.headers)
        sides[side].put_one_serialized(key_data, timestamp, written)

    def _joined(self, side: int, value: Any, other: Any) -> Any:
        return self._joiner(value, other) if side == LEFT else self._joiner(other, value)

    def _written_key(self, key: Any) -> bytes:
        try:
            return self._join.key_serde.serialize(key)
        except SerializationError as error:
            raise self._unwritable(error) from error

    def _written(self, side: int, value: Any) -> bytes:
        try:
            return self._join.value_serdes[side].serialize(value)
        except SerializationError as error:
            raise self._unwritable(error) from error

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
        self._store: WindowStore[Any, Any] = context.get_state_store(self._join.sides[LEFT])
        self._retention_ms: int = self._store.retention_ms
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
        for time, other in self._found(self._store, record, LEFT):
            self._forward(record, joiner(value, other), max(timestamp, time))
        expired = self._expired(timestamp)
        first = timestamp - self._before_ms[RIGHT]
        last = timestamp + self._after_ms[RIGHT]
        meets_itself = expired < timestamp and first <= timestamp <= last
        for time, other in self._found(self._store, record, RIGHT):
            if time <= expired:
                continue
            if meets_itself and time > timestamp:
                self._forward(record, joiner(value, value), timestamp)
                meets_itself = False
            self._forward(record, joiner(other, value), max(timestamp, time))
        if meets_itself:
            self._forward(record, joiner(value, value), timestamp)
        self._keep(self._store, record, value)

    def _expired(self, timestamp: int) -> int:
        """Return the last time that the store of a second stream would not have any more."""
        known = self._passed - ENDS_MS
        if self._follows_records:
            known = max(timestamp, self._store.stream_time)
        return known - self._retention_ms


class Side(Protocol):
    """The records of a side: a `WindowStore` as it is, or as a batch sees it."""

    def fetch_serialized(
        self, key: bytes, time_from: int, time_to: int
    ) -> Sequence[tuple[int, bytes]]: ...
    def put_one_serialized(self, key: bytes, window_start: int, value: bytes) -> None: ...


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
        keys, values, times, headers, clocks, places = map(list, zip(*self._rows, strict=True))
        has_headers = any(headers)
        return Batch(
            keys,
            values,
            times,
            headers if has_headers else None,
            places,
            clocks if with_clocks else None,
        )


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
