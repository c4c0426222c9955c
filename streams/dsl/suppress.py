"""Suppression: which updates of a table are held back, and for how long (KIP-328)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Literal, NamedTuple, Self, get_args

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.change import OUT_OF_ORDER, Change
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.packing import pack, pack_headers, unpack, unpack_headers
from kafka_pipeline.streams.dsl.table_values import Found, TableReader, TableValues, unwritable
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import (
    InvalidArgumentError,
    SerializationError,
    StreamsError,
    TopologyError,
)
from kafka_pipeline.streams.event_time.step_time import (
    FollowsTime,
    StepTime,
    times_store,
    times_store_name,
)
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Headers, Record, in_columns, items_of
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, ValueAndTimestamp, key_value

WhenFull = Literal["emit_early", "fail"]


@dataclass(frozen=True, slots=True)
class Suppress:
    """How long `Table.suppress` holds updates back; make it with one of the class methods.

    The updates wait in a store, one for each key. Their size in bytes is that of keys, values and
    headers, and some 30 bytes each.
    """

    limit_ms: int | None
    """How long each key waits; `None` means until its window has closed."""
    max_records: int | None
    max_bytes: int | None
    when_full: WhenFull

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Self:
        """Forward the result of each window once, when the window has closed.

        That is when records for it are late in the windows upstream. Windows without a result
        forward nothing. More than `max_records` or `max_bytes` are an error.
        """
        where = "Suppress.until_window_closes"
        return cls(None, *_limits(where, max_records, max_bytes), "fail")

    @classmethod
    def until_time_limit(
        cls,
        limit_ms: Milliseconds,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: WhenFull = "emit_early",
    ) -> Self:
        """Forward the last update of each key `limit_ms` of stream time after the first one.

        With more than `max_records` or `max_bytes`, the keys that have waited longest go out early
        ("emit_early"), or the record is an error ("fail").
        """
        where = "Suppress.until_time_limit"
        if when_full not in get_args(WhenFull):
            raise InvalidArgumentError(
                f'{where} has when_full={when_full!r}: give "emit_early" or "fail"'
            )
        limits = _limits(where, max_records, max_bytes)
        return cls(whole_ms(where, "limit_ms", limit_ms, 0), *limits, when_full)


def _limits(
    where: str, max_records: int | None, max_bytes: int | None
) -> tuple[int | None, int | None]:
    for argument, value in (("max_records", max_records), ("max_bytes", max_bytes)):
        if value is not None and (type(value) is not int or value < 1):
            raise InvalidArgumentError(
                f"{where} has {argument}={value!r}: give a whole number, 1 or more, or leave it "
                "out for no limit"
            )
    return max_records, max_bytes


def close_delay_ms(step: Step, where: str) -> int:
    """Return how long after its end a window closes, for the windows that lead to a step.

    Of several, the longest counts. Raises `TopologyError` if a way to the step has no windows.
    """
    own = step.operation.close_delay_ms
    if own is not None:
        return own
    if not step.parents:
        raise TopologyError(
            f"{where} has Suppress.until_window_closes, but {step!r} leads to it without windows: "
            "suppress a table that windowed_by made, or use Suppress.until_time_limit"
        )
    return max(close_delay_ms(parent, where) for parent in step.parents)


def window_ms(step: Step) -> int:
    """Return how much older than the end of its window a result is that leads to a step."""
    if step.operation.close_delay_ms is not None:
        return step.operation.window_ms
    return max(map(window_ms, step.parents), default=0)


_NUMBERS = struct.Struct(">qqq")
_NOT_CHANGED: Any = object()
_OWN_BYTES = 28
"""What Kafka Streams counts for a record in addition to its key, values, topic and headers.

The topic is left out here: several records of a batch have none in common.
"""


class WaitingUpdate(NamedTuple):
    """The update of a key that waits; values are as they were written.

    `place` is the time by which it is sorted. `prior` is the value that was forwarded last.
    """

    place: int
    timestamp: int
    size: int
    prior: bytes | None
    new: bytes | None
    headers: Headers


def _write(waiting: WaitingUpdate) -> bytes:
    numbers = _NUMBERS.pack(waiting.place, waiting.timestamp, waiting.size)
    headers = pack_headers(waiting.headers) if waiting.headers else ()
    return pack((numbers, waiting.prior, None, waiting.new, *headers))


def _read(data: bytes) -> WaitingUpdate:
    numbers, prior, _, new, *headers = unpack(data)
    place, timestamp, size = _NUMBERS.unpack(numbers or b"")
    known = unpack_headers(headers) if headers else ()
    return WaitingUpdate(place, timestamp, size, prior, new, known)


_WAITING: Serde[WaitingUpdate] = Serde("suppressed", _write, _read)
"""The third part is unused: it was the old value of the last update."""


@dataclass(frozen=True, slots=True)
class SuppressTable(Operation):
    """Holds the updates of a table back; `wait_ms` is the limit, or when windows close.

    An update may be forwarded up to `holds_ms` of event time after it came.
    """

    verb = "suppress"

    suppress: Suppress
    wait_ms: int
    holds_ms: int
    store: str

    def stores(self) -> tuple[str, ...]:
        return (self.store, times_store_name(self.store))

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return True: lookups give the value that was forwarded last."""
        return True

    def compile(self, step: Step, compiler: Compiling) -> None:
        waiting = key_value(self.store, serdes.bytes, _WAITING).spread(after=step.after_key)
        until = "windows close" if self.suppress.limit_ms is None else "a time limit"
        compiler.add_store(waiting.of_parts((f"updates that wait until {until}",)))
        compiler.add_store(times_store(self.store))
        make = partial(Suppressor, self, step.key_serde, step.value_serde)
        compiler.runs(step, make, holds_ms=self.holds_ms)


class Suppressor(EitherWay, FollowsTime):
    """Keeps the last update of each key, and forwards it when its time has come.

    A later update of a waiting key keeps the key's place in the queue. The old value of a change is
    what was forwarded before: that is what steps downstream have to take out. Out-of-order updates
    of a versioned table are dropped: they must not replace newer ones. The queue is in memory; it
    is rebuilt from the store at the start, and after the engine has undone writes.
    """

    def __init__(
        self, operation: SuppressTable, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        self._name = operation.store
        self._suppress = operation.suppress
        self._wait_ms = operation.wait_ms
        self._by_window = operation.suppress.limit_ms is None
        limits = (operation.suppress.max_records, operation.suppress.max_bytes)
        self._has_limits = limits != (None, None)
        self._key_serde = key_serde
        self._value_serde = value_serde

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, WaitingUpdate] = context.get_state_store(self._name)
        times = context.get_state_store(times_store_name(self._name))
        self._time = StepTime(context, times)
        self._generation: int | None = None

    def process(self, batch: Batch) -> None:
        if self._has_limits:
            # Each record may be one too many.
            self.process_each(batch)
            return
        self._catch_up()
        due: list[Record] = []
        for record, now in zip(batch.records(), self._time.moves(batch), strict=True):
            self._take(record)
            due_at = self._due_at(now)
            while self._places and self._places[0][0] <= due_at:
                result = self._first()
                if result is not None:
                    due.append(result)
                self._remove_first()
        self._write()
        self._time.see(max(items_of(batch.timestamps)))
        if due:
            with self._time.own_clocks():
                self.context.forward(in_columns(due))

    def process_record(self, record: Record) -> None:
        self._catch_up()
        self._time.see(record.timestamp)
        self._take(record)
        self._write()
        self._forward_due()
        if self._is_full():
            if self._suppress.when_full == "fail":
                raise StreamsError(self._full())
            while self._is_full():
                self._forward_first()

    def time_passed(self, time: int) -> None:
        now = self._time.after_hold(time)
        if now <= self._time.now:
            return
        self._catch_up()
        self._time.move(now)
        self._forward_due()

    def _due_at(self, now: int) -> int:
        """Return the last place of an update that is to be forwarded at a time."""
        due_at = now - self._wait_ms
        # Another record may have this very time, and windows may include their ends.
        return due_at if self._time.follows_records else due_at - 1

    def _forward_due(self) -> None:
        due_at = self._due_at(self._time.now)
        while self._places and self._places[0][0] <= due_at:
            self._forward_first()

    def _catch_up(self) -> None:
        """Read again what waits if the engine has undone writes."""
        if self._store.generation == self._generation:
            return
        self._bytes = 0
        self._places: list[tuple[int, bytes]] = []
        self._changes: dict[bytes, WaitingUpdate | None] = {}
        """What is to be written to the store."""
        with self._store.all() as found:
            for key, waiting in found:
                self._places.append((waiting.place, key))
                self._bytes += waiting.size
        heapify(self._places)
        self._generation = self._store.generation

    def _waiting(self, key: bytes) -> WaitingUpdate | None:
        found: WaitingUpdate | None = self._changes.get(key, _NOT_CHANGED)
        return self._store.get(key) if found is _NOT_CHANGED else found

    def _write(self) -> None:
        changes, self._changes = self._changes, {}
        self._store.put_all(changes)

    def _take(self, record: Record) -> None:
        """Let an update wait, in the place of an earlier one of its key."""
        change = record.value
        if not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        write, old, new = self._value_serde.serialize, change.old, change.new
        try:
            key = self._key_serde.serialize(record.key)
            old = None if old is None else write(old)
            new = None if new is None else write(new)
        except SerializationError as error:
            raise unwritable(f'suppress "{self._name}"', error) from error
        before = self._waiting(key)
        if before is None:
            place = record.key.window.end if self._by_window else record.timestamp
            prior = old
            heappush(self._places, (place, key))
        else:
            place, prior = before.place, before.prior
            self._bytes -= before.size
        size = self._size(key, (prior, new), record.headers)
        self._bytes += size
        self._changes[key] = WaitingUpdate(
            place, record.timestamp, size, prior, new, record.headers
        )

    @staticmethod
    def _size(key: bytes, values: Sequence[bytes | None], headers: Headers) -> int:
        size = _OWN_BYTES + len(key)
        for value in values:
            if value is not None:
                size += len(value)
        for name, value in headers:
            size += len(name) + len(value or b"")
        return size

    def _forward_first(self) -> None:
        """Forward the update that has waited longest, then remove it.

        While it is forwarded, lookups still give the value before it, as in Kafka Streams.
        """
        result = self._first()
        if result is not None:
            with self._time.own_clocks():
                self.context.forward(result)
        self._remove_first()
        self._write()

    def _first(self) -> Record | None:
        """Return the update that has waited longest, `None` if it is not to be forwarded."""
        _, key = self._places[0]
        waiting = self._waiting(key)
        assert waiting is not None, "what has a place is in the store"
        if waiting.new is None and self._by_window:
            return None
        read = self._value_serde.deserialize
        old, new = (None if v is None else read(v) for v in (waiting.prior, waiting.new))
        owner = self._key_serde.deserialize(key)
        return Record(owner, Change(new, old), waiting.timestamp, waiting.headers)

    def _remove_first(self) -> None:
        _, key = heappop(self._places)
        waiting = self._waiting(key)
        assert waiting is not None, "what has a place is in the store"
        self._bytes -= waiting.size
        self._changes[key] = None

    def _is_full(self) -> bool:
        records, size = self._suppress.max_records, self._suppress.max_bytes
        return (records is not None and len(self._places) > records) or (
            size is not None and self._bytes > size
        )

    def _full(self) -> str:
        return (
            f'suppress "{self._name}" is full: {len(self._places)} keys with {self._bytes} bytes '
            f"wait, and max_records is {self._suppress.max_records}, max_bytes is "
            f"{self._suppress.max_bytes}; raise the limit, or let keys go out early"
        )


@dataclass(frozen=True, slots=True)
class SuppressedValues(TableValues):
    """The values of a table with suppression: what was forwarded last."""

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    parent: TableValues

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store, *self.parent.stores)

    def open(self, context: ProcessorContext) -> TableReader:
        return _Suppressed(self, context.get_state_store(self.store), self.parent.open(context))


class _Suppressed(TableReader):
    def __init__(
        self,
        values: SuppressedValues,
        store: KeyValueStore[bytes, WaitingUpdate],
        parent: TableReader,
    ) -> None:
        self._write_key = values.key_serde.serialize
        self._read_value = values.value_serde.deserialize
        self._store = store
        self._parent = parent

    def get(self, key: Any) -> Found:
        waiting = self._store.get(self._write_key(key))
        if waiting is None:
            return self._parent.get(key)
        if waiting.prior is None:
            return None
        return ValueAndTimestamp(self._read_value(waiting.prior), -1)

    def has_expired(self, key: Any) -> bool:
        return self._parent.has_expired(key)
