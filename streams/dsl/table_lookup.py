"""Joins of a stream with a table: each record looks a value up, at once or later (KIP-923)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import JoinFunction, JoinKind
from kafka_pipeline.streams.dsl.packing import pack, pack_headers, unpack, unpack_headers
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.dsl.table_values import TableValues, unwritable
from kafka_pipeline.streams.dsl.waiting import Waiting, waiting_store
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.event_time.step_time import (
    FollowsTime,
    StepTime,
    times_store,
    times_store_name,
)
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.serdes import Serde

NULL_KEY_OR_VALUE = "null key or value"

KeyFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Lookup:
    """How records look up values: under their own keys, or under what `key` returns for them."""

    kind: JoinKind
    joiner: JoinFunction
    values: TableValues
    key: KeyFunction | None = None


@dataclass(frozen=True, slots=True)
class JoinTable(Operation):
    """Joins each record of a stream with the value that the table has at that moment."""

    lookup: Lookup

    @property
    def verb(self) -> str:
        return self.lookup.kind.value

    @property
    def takes_null_keys(self) -> bool:
        """Whether records without a key have results: those of a left join have (KIP-962)."""
        return self.lookup.kind is JoinKind.LEFT

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores that the table's values are in."""
        return self.lookup.values.stores

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.runs(step, partial(TableLookup, self.lookup), looks_up=bool(self.stores()))


class TableLookup(EitherWay):
    """Looks up the value for each record and forwards what the joiner makes of both.

    In a versioned table, that is the value that was valid at the time of the record (KIP-914).
    """

    def __init__(self, lookup: Lookup) -> None:
        self._verb = lookup.kind.value
        self._is_left = lookup.kind is JoinKind.LEFT
        self._joiner = lookup.joiner
        self._values = lookup.values
        self._key = lookup.key

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        table = self._values.open(context)
        self._is_versioned = table.is_versioned
        self._get, self._get_as_of, self._get_all = table.get, table.get_as_of, table.get_all

    def process(self, batch: Batch) -> None:
        if self._is_versioned:
            self.process_each(batch)
            return
        values = items_of(batch.values)
        wanted: Sequence[Any] = items_of(batch.keys)
        if self._key is not None:
            wanted = [
                None if v is None else self._key(k, v) for k, v in zip(wanted, values, strict=True)
            ]
        found = iter(self._get_all([key for key in wanted if key is not None]))
        joined, kept = list[Any](), list[bool]()
        for key, value in zip(wanted, values, strict=True):
            entry = None if key is None else next(found)
            if value is None or (key is None and not self._is_left):
                self.context.drop(NULL_KEY_OR_VALUE)
            elif entry is not None or self._is_left:
                joined.append(self._joiner(value, None if entry is None else entry[0]))
                kept.append(True)
                continue
            kept.append(False)
        self.context.forward(selected(batch, kept).with_values(joined))

    def process_record(self, record: Record) -> None:
        key, value = record.key, record.value
        if value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        wanted = key if self._key is None else self._key(key, value)
        if wanted is None and not self._is_left:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        self.join(record, wanted)

    def join(self, record: Record, wanted: Any) -> None:
        """Forward the result for a record; no value is found for a key of `None`."""
        if wanted is None:
            found = None
        elif self._is_versioned:
            found = self._get_as_of(wanted, record.timestamp)
        else:
            found = self._get(wanted)
        if found is not None:
            joined = self._joiner(record.value, found.value)
        elif self._is_left:
            joined = self._joiner(record.value, None)
        else:
            return
        self.context.forward(Record(record.key, joined, record.timestamp, record.headers))


_SIDE = 0


@dataclass(frozen=True, slots=True)
class Delay:
    """The grace period of a join, and the store in which records wait for it."""

    name: str
    grace_ms: int
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    @property
    def waiting(self) -> str:
        """The store of the records that wait."""
        return f"{self.name}-waiting"


@dataclass(frozen=True, slots=True)
class JoinTableLater(JoinTable):
    """Joins each record of a stream with the table once stream time has passed the grace period."""

    delay: Delay

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores: those of the table, and the step's own."""
        delay = self.delay
        return (*self.lookup.values.stores, delay.waiting, times_store_name(delay.name))

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.add_store(waiting_store(self.delay.waiting, step.after_key))
        compiler.add_store(times_store(self.delay.name))
        compiler.runs(
            step, partial(DelayedLookup, self.lookup, self.delay), holds_ms=self.delay.grace_ms + 1
        )


class DelayedLookup(TableLookup, FollowsTime):
    """Keeps records until stream time is later than theirs by the grace period.

    Stream time is that of the records that were kept. Records that come later than the grace
    period, and records without a key, are joined at once.
    """

    def __init__(self, lookup: Lookup, delay: Delay) -> None:
        super().__init__(lookup)
        self._delay = delay

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._waiting = Waiting(context.get_state_store(self._delay.waiting))
        times = context.get_state_store(times_store_name(self._delay.name))
        self._time = StepTime(context, times, on_undo=self._forget)

    def _forget(self) -> None:
        self._first: int | None = 0
        """No record with an earlier time waits; `None` if no record waits."""

    def process(self, batch: Batch) -> None:
        self.process_each(batch)

    def join(self, record: Record, wanted: Any) -> None:
        """Keep a record, or join it at once; join those whose time has come."""
        timestamp, grace_ms = record.timestamp, self._delay.grace_ms
        late_by = max(self._time.now, self._time.clock)
        if wanted is None or timestamp < late_by - grace_ms:
            super().join(record, wanted)
            return
        self._keep(record)
        self._time.see(timestamp)
        if self._first is None or timestamp < self._first:
            self._first = timestamp
        self._release_due()

    def time_passed(self, time: int) -> None:
        now = self._time.after_hold(time)
        if now > self._time.now:
            self._time.move(now)
            self._release_due()

    def _release_due(self) -> None:
        due_at = self._time.now - self._delay.grace_ms
        if not self._time.follows_records:
            due_at -= 1  # another record may have this very time
        if self._first is not None and self._first <= due_at:
            self._release(due_at)

    def _keep(self, record: Record) -> None:
        delay = self._delay
        try:
            key = delay.key_serde.serialize(record.key)
            value = delay.value_serde.serialize(record.value)
        except SerializationError as error:
            where = f'{self._verb} "{delay.name}"'
            raise unwritable(where, error) from error
        item = pack([value, *pack_headers(record.headers)])
        self._waiting.add(record.timestamp, _SIDE, key, item)

    def _release(self, due_at: int) -> None:
        due = []
        first, self._first = self._first or 0, None
        for timestamp, _, key, items in self._waiting.since(first):
            if timestamp > due_at:
                self._first = timestamp
                break
            due.append((timestamp, key, items))
        for timestamp, key_data, items in due:
            self._waiting.discard(timestamp, _SIDE, key_data)
            key = self._delay.key_serde.deserialize(key_data)
            for item in items:
                value_data, *headers = unpack(item or b"")
                value = self._delay.value_serde.deserialize(value_data or b"")
                record = Record(key, value, timestamp, unpack_headers(headers))
                with self._time.own_clocks():
                    super().join(record, key)
