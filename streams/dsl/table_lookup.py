"""Joins of a stream with a table or a global table: each record looks a value up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import JoinFunction, JoinKind
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.dsl.table_values import TableValues
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of

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
        """Add the processor."""
        compiler.builder.add_processor(
            step.name,
            partial(TableLookup, self.lookup),
            compiler.parents(step),
            stores=self.stores(),
            looks_up=bool(self.stores()),
        )
        compiler.produces(step, step.name)


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
