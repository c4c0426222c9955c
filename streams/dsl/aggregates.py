"""Aggregates of a stream and of a table, without windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from kafka_pipeline.streams.dsl.aggregate_functions import (
    AggregateFunctions,
    Fold,
    counting,
    nothing,
)
from kafka_pipeline.streams.dsl.change import Change, ChangeColumn
from kafka_pipeline.streams.dsl.graph import Compiling, Step
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.dsl.table_steps import KeepsTable, Materialized
from kafka_pipeline.streams.dsl.table_values import (
    TableReader,
    TableSerdes,
    TimestampedTable,
    unwritable,
)
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of

NULL_KEY_OR_VALUE = "null key or value"


class _Aggregator(KeepsTable):
    """Keeps an aggregate of each key in the store of a table, and forwards its changes."""

    def __init__(
        self,
        store: str,
        verb: str,
        functions: AggregateFunctions,
        serdes: TableSerdes,
        sends_old: bool,
    ) -> None:
        super().__init__(store, verb, sends_old)
        self._functions = functions
        self._write_key = serdes.key.serialize
        self._fold = Fold(functions, serdes.value, sends_old)

    def add(self, record: Record) -> None:
        """Add the value of a record to the aggregate of its key."""
        key, value, timestamp = record.key, record.value, record.timestamp
        store, functions = self._store, self._functions
        found = store.get(key)
        old = None
        if found is None:
            new = functions.first(key, value)
        else:
            old = kept(store, key) if self._sends_old else None
            new = functions.adder(key, value, found.value)
            timestamp = max(timestamp, found.timestamp)
        is_latest = store.put(key, new, timestamp)
        if is_latest is not None:
            change = Change(new, old, is_latest)
            self.context.forward(Record(key, change, timestamp, record.headers))

    def add_all(self, store: TimestampedTable, batch: Batch) -> None:
        """Add the values of a batch; `store` is that of the aggregates."""
        keys, values, times = map(items_of, (batch.keys, batch.values, batch.timestamps))
        try:
            places = list(map(self._write_key, keys))
            found = store.get_all_stored(list(dict.fromkeys(places)))
            folded = self._fold.add(places, zip(keys, values, times, strict=True), found)
        except SerializationError as error:
            raise unwritable(store.where, error) from error
        store.put_serialized(folded.changes)
        changes = ChangeColumn(folded.new, folded.old)
        self.context.forward(Batch(keys, changes, folded.times, batch.headers, None, batch.clocks))


class StreamAggregator(_Aggregator):
    """Adds each record to the aggregate of its key. Null keys and values are dropped."""

    def process(self, batch: Batch) -> None:
        store = self._store
        if not isinstance(store, TimestampedTable):
            # Some versions are dropped, and some are not the latest one.
            self.process_each(batch)
            return
        self.add_all(store, without_nulls(batch, self.context))

    def process_record(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.drop(NULL_KEY_OR_VALUE)
            return
        self.add(record)


def without_nulls(batch: Batch, context: ProcessorContext) -> Batch:
    """Return the records that have a key and a value; drop and count the others."""
    usable = [
        key is not None and value is not None
        for key, value in zip(items_of(batch.keys), items_of(batch.values), strict=True)
    ]
    for _ in range(usable.count(False)):
        context.drop(NULL_KEY_OR_VALUE)
    return selected(batch, usable)


def kept(store: TableReader, key: Any) -> Any:
    """Return a copy of the aggregate of `key` that no function of the user has in hand."""
    found = store.get(key)
    return None if found is None else found.value


class TableAggregator(_Aggregator):
    """Takes the old value of each change out of its group's aggregate, and adds the new one."""

    def __init__(
        self,
        store: str,
        verb: str,
        functions: AggregateFunctions,
        serdes: TableSerdes,
        sends_old: bool,
    ) -> None:
        assert functions.subtractor is not None
        self._of_values = functions
        self._subtract = functions.subtractor
        of_changes = AggregateFunctions(nothing, self._changed)
        super().__init__(store, verb, of_changes, serdes, sends_old)

    def process(self, batch: Batch) -> None:
        store = self._store
        assert isinstance(store, TimestampedTable), "an aggregate of a table has no history"
        self.add_all(store, batch)

    def process_record(self, record: Record) -> None:
        self.add(record)

    def _changed(self, key: Any, change: Change, aggregate: Any) -> Any:
        """Return the aggregate of a group after a change, `None` for none."""
        if change.old is not None and aggregate is not None:
            aggregate = self._subtract(key, change.old, aggregate)
        if change.new is None:
            return aggregate
        if aggregate is None:
            return self._of_values.first(key, change.new)
        return self._of_values.adder(key, change.new, aggregate)


@dataclass(frozen=True, slots=True)
class _Aggregate(Materialized):
    """Aggregates the values of each key, by the processor `aggregator`."""

    needs_time = False
    aggregator: ClassVar[type[_Aggregator]]

    functions: AggregateFunctions = field(default_factory=counting)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.functions.parts

    def supplier(self, step: Step, compiler: Compiling) -> Callable[[], EitherWay]:
        return partial(
            self.aggregator,
            self.store,
            self.method,
            self.functions,
            TableSerdes(step.key_serde, step.value_serde),
            compiler.sends_old_values(step),
        )


class AggregateStream(_Aggregate):
    """Aggregates the values of each key of a stream."""

    aggregator = StreamAggregator


class AggregateTable(_Aggregate):
    """Aggregates the values of each group of a table; `functions` has a subtractor."""

    aggregator = TableAggregator
