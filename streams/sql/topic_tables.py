"""Tables of a query that follow topics: how a task keeps them, and finds the rows for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import pyarrow as pa
import structlog

from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.streams.dsl.table_steps import TableFiller
from kafka_pipeline.streams.engine.mixed import LookupTable
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.sql.columns import is_utf8, lookup_schema, moments
from kafka_pipeline.streams.sql.large_exponents import decimal_fields, exponent_problem
from kafka_pipeline.streams.sql.spec import VISIBLE_FROM, VISIBLE_UNTIL, Prepared, QuerySpec
from kafka_pipeline.streams.sql.strict_json import problem
from kafka_pipeline.streams.stores import TimestampedKeyValueStore, VersionedKeyValueStore

_VERB = "the table"
"""How errors name the step that keeps a table."""

logger = structlog.get_logger()
Store = TimestampedKeyValueStore[bytes, bytes]
History = VersionedKeyValueStore[bytes, bytes]


class TopicTable(TableFiller, LookupTable):
    """Keeps the records of a table in its store; rejects those that Spark could not read.

    Those are keys and values that are not UTF-8, unless the format is `binary`, and values that are
    not JSON objects, if the table has columns of its own by a `schema`.
    """

    def __init__(self, store: str, format_: Format, schema: str, history_ms: int | None) -> None:
        super().__init__(store, _VERB, sends_old=False)
        self._needs = format_ != "binary", schema
        self.history_ms = inf if history_ms is None else history_ms

    def process(self, batch: Batch) -> None:
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            if wrong := _problem(key, value, *self._needs):
                if index:
                    super().process(batch.head(index))
                raise RecordRejectedError(wrong, batch, index)
        super().process(batch)

    def process_each(self, batch: Batch) -> None:
        """Process records one by one, which were looked at before."""
        for record in batch.records():
            super().process_record(record)

    def process_record(self, record: Record) -> None:
        if wrong := _problem(record.key, record.value, *self._needs):
            raise RecordRejectedError(wrong)
        super().process_record(record)


class TopicTableLookup:
    """Finds the rows of a task's tables for the records of a batch."""

    def __init__(self, spec: QuerySpec, query: Prepared, context: ProcessorContext) -> None:
        """Open the stores of the tables of a query."""
        self._query = query
        self._schema = lookup_schema(spec.format)
        self._stores: dict[str, Store] = {
            name: _store_of(name, context)
            for name in spec.topic_tables
            if name not in spec.versioned_tables
        }
        self._histories: dict[str, History] = {
            name: _store_of(name, context, has_history=True) for name in spec.versioned_tables
        }
        self._globals: dict[str, Store] = {
            name: _store_of(name, context) for name in spec.global_tables
        }
        self._generations = dict.fromkeys(self._globals, -1)
        self._schemas = spec.global_tables
        self._is_text = spec.format != "binary"

    def rows(self, batch: Batch) -> dict[str, pa.Table]:
        """Return the rows with the keys of the records, by table name; see `SparkQuery.run`.

        Of a table with a history, these are all versions that records may see between the first
        and the last time of their key. If the content of a global table has changed, replaces it as
        a whole first.
        """
        for name, store in self._globals.items():
            if (generation := store.generation) != self._generations[name]:
                self._query.replace(name, self._all_rows(name, store))
                self._generations[name] = generation
        keys = [key for key in dict.fromkeys(batch.keys) if key is not None] if self._stores else []
        times = _times_of_keys(batch) if self._histories else {}
        return {
            **{name: self._found(store, keys) for name, store in self._stores.items()},
            **{name: self._versions(store, times) for name, store in self._histories.items()},
        }

    def _found(self, store: Store, keys: list[bytes]) -> pa.Table:
        content = zip(keys, store.get_all_serialized(keys), strict=True)
        return self._table([(key, *entry) for key, entry in content if entry is not None])

    def _versions(self, store: History, times: Mapping[bytes, tuple[int, int]]) -> pa.Table:
        found = [
            (key, version)
            for key, (first, last) in times.items()
            for version in store.get_serialized(key, first, last)
        ]
        table = self._table([(key, each.value, each.timestamp) for key, each in found])
        since = moments([each.visible_from for _, each in found])
        until = moments([each.visible_until for _, each in found])
        return table.append_column(VISIBLE_FROM, since).append_column(VISIBLE_UNTIL, until)

    def _all_rows(self, name: str, store: Store) -> pa.Table:
        """Return the rows of a global table, without those that Spark could not read."""
        with store.all() as entries:
            rows = [(key, found.value, found.timestamp) for key, found in entries]
        schema = self._schemas[name]
        right = [row for row in rows if not _problem(row[0], row[1], self._is_text, schema)]
        if len(right) < len(rows):
            logger.warning(
                "records left out of a table", table=name, records=len(rows) - len(right)
            )
        return self._table(right)

    def _table(self, rows: Sequence[tuple[bytes, bytes, int]]) -> pa.Table:
        arrays = [
            pa.array([row[0] for row in rows], pa.binary()).cast(self._schema.types[0]),
            pa.array([row[1] for row in rows], pa.binary()).cast(self._schema.types[1]),
            moments([row[2] for row in rows]),
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _store_of(table: str, context: ProcessorContext, *, has_history: bool = False) -> Any:
    return context.get_state_store(TopicTableSpec.store_name(table, has_history=has_history))


def _times_of_keys(batch: Batch) -> dict[bytes, tuple[int, int]]:
    """Return the smallest and the largest timestamp of the records of each key."""
    times: dict[bytes, tuple[int, int]] = {}
    for key, time in zip(batch.keys, items_of(batch.timestamps), strict=True):
        if key is not None:
            first, last = times.get(key, (time, time))
            times[key] = (min(first, time), max(last, time))
    return times


def _problem(key: bytes | None, value: bytes | None, is_text: bool, schema: str) -> str:
    """Return what is wrong with a record of a table, or ""."""
    if is_text and not is_utf8(key):
        return "the key is not UTF-8"
    if value is None:
        return ""
    if (is_text or schema) and not is_utf8(value):
        return "the value is not UTF-8"
    if not schema:
        return ""
    return problem(value) or exponent_problem(value, decimal_fields((schema,)))
