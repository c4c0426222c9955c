"""Tables of a query that follow topics: how a task keeps them, and finds the rows for a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import structlog

from common.specs import Format, TopicTableSpec
from streams.dsl.tables import TableFiller
from streams.processor import ProcessorContext, RecordRejectedError
from streams.record import Batch, Record
from streams.sql.columns import is_utf8, lookup_schema
from streams.sql.spec import QuerySpec
from streams.stores import TimestampedKeyValueStore

_VERB = "the table"
"""How errors name the step that keeps a table."""

logger = structlog.get_logger()
Store = TimestampedKeyValueStore[bytes, bytes]


class TopicTable(TableFiller):
    """Keeps the last record of each key; rejects records that Spark could not read.

    Those are keys and values that are not UTF-8, unless the format is `binary`, and values that are
    not JSON objects, if the table has columns of its own.
    """

    def __init__(self, table: str, format_: Format, has_columns: bool) -> None:
        super().__init__(TopicTableSpec.store_of(table), _VERB, sends_old=False)
        self._needs = format_ != "binary", has_columns

    def process(self, batch: Batch) -> None:
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            if wrong := _problem(key, value, *self._needs):
                if index:
                    super().process(batch.head(index))
                raise RecordRejectedError(wrong, batch, index)
        super().process(batch)

    def process_record(self, record: Record) -> None:
        if wrong := _problem(record.key, record.value, *self._needs):
            raise RecordRejectedError(wrong)
        super().process_record(record)


class Replaceable(Protocol):
    """A query with global tables."""

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `SparkQuery.replace`."""


class Lookup:
    """Finds the rows of a task's tables for the records of a batch."""

    def __init__(self, spec: QuerySpec, query: Replaceable, context: ProcessorContext) -> None:
        """Open the stores of the tables of a query."""
        self._query = query
        self._schema = lookup_schema(spec.format)
        self._stores = {name: _store_of(name, context) for name in spec.topic_tables}
        self._globals = {name: _store_of(name, context) for name in spec.global_tables}
        self._generations = dict.fromkeys(self._globals, -1)
        self._has_columns = {name for name, schema in spec.global_tables.items() if schema}
        self._is_text = spec.format != "binary"

    def rows(self, batch: Batch) -> dict[str, pa.Table]:
        """Return the rows with the keys of the records, by table name; see `SparkQuery.run`.

        If the content of a global table has changed, replaces it as a whole first.
        """
        for name, store in self._globals.items():
            if (generation := store.generation) != self._generations[name]:
                self._query.replace(name, self._all_rows(name, store))
                self._generations[name] = generation
        keys = [key for key in dict.fromkeys(batch.keys) if key is not None] if self._stores else []
        return {name: self._found(store, keys) for name, store in self._stores.items()}

    def _found(self, store: Store, keys: list[bytes]) -> pa.Table:
        content = zip(keys, store.get_all_serialized(keys), strict=True)
        return self._table([(key, *entry) for key, entry in content if entry is not None])

    def _all_rows(self, name: str, store: Store) -> pa.Table:
        """Return the rows of a global table, without those that Spark could not read."""
        with store.all() as entries:
            rows = [(key, found.value, found.timestamp) for key, found in entries]
        has_columns = name in self._has_columns
        right = [row for row in rows if not _problem(row[0], row[1], self._is_text, has_columns)]
        if len(right) < len(rows):
            logger.warning(
                "records left out of a table", table=name, records=len(rows) - len(right)
            )
        return self._table(right)

    def _table(self, rows: Sequence[tuple[bytes, bytes, int]]) -> pa.Table:
        times = pa.array([row[2] for row in rows], pa.timestamp("ms", tz="UTC"))
        arrays = [
            pa.array([row[0] for row in rows], pa.binary()).cast(self._schema.types[0]),
            pa.array([row[1] for row in rows], pa.binary()).cast(self._schema.types[1]),
            times.cast(self._schema.types[2]),
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _store_of(table: str, context: ProcessorContext) -> Store:
    store: Store = context.get_state_store(TopicTableSpec.store_of(table))
    return store


def _problem(key: bytes | None, value: bytes | None, is_text: bool, has_columns: bool) -> str:
    """Return what is wrong with a record of a table, or ""."""
    if is_text and not is_utf8(key):
        return "the key is not UTF-8"
    if value is None:
        return ""
    if (is_text or has_columns) and not is_utf8(value):
        return "the value is not UTF-8"
    return "the value is not a JSON object" if has_columns and not _is_map(value) else ""


def _is_map(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode()), dict)
    except ValueError:
        return False
