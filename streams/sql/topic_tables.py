"""Tables of a query that follow topics: how a task keeps them, and finds the rows for a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from common.specs import Format
from streams.dsl.tables import TableFiller
from streams.processor import ProcessorContext, RecordRejectedError
from streams.record import Batch, Record
from streams.sql.columns import is_utf8, lookup_schema
from streams.sql.state_stores import table_store_name
from streams.stores import TimestampedKeyValueStore

_VERB = "the table"
"""How errors name the step that keeps a table."""

Store = TimestampedKeyValueStore[bytes, bytes]


class TopicTable(TableFiller):
    """Keeps the last record of each key; rejects records that Spark could not read.

    Those are keys and values that are not UTF-8, unless the format is `binary`, and values that are
    not JSON objects, if the table has columns of its own.
    """

    def __init__(self, table: str, format_: Format, has_columns: bool) -> None:
        super().__init__(table_store_name(table), _VERB, sends_old=False)
        self._is_text = format_ != "binary"
        self._has_columns = has_columns

    def process(self, batch: Batch) -> None:
        for index, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            if wrong := self._problem(key, value):
                if index:
                    super().process(batch.head(index))
                raise RecordRejectedError(wrong, batch, index)
        super().process(batch)

    def process_record(self, record: Record) -> None:
        if wrong := self._problem(record.key, record.value):
            raise RecordRejectedError(wrong)
        super().process_record(record)

    def _problem(self, key: bytes | None, value: bytes | None) -> str:
        """Return what is wrong with a record, or ""."""
        if self._is_text and not is_utf8(key):
            return "the key is not UTF-8"
        if value is None:
            return ""
        if (self._is_text or self._has_columns) and not is_utf8(value):
            return "the value is not UTF-8"
        return "the value is not a JSON object" if self._has_columns and not _is_map(value) else ""


class Lookup:
    """Finds the rows of a task's tables for the records of a batch."""

    def __init__(self, tables: Iterable[str], format_: Format, context: ProcessorContext) -> None:
        """Open the stores of these tables."""
        self._schema = lookup_schema(format_)
        self._stores: dict[str, Store] = {
            table: context.get_state_store(table_store_name(table)) for table in tables
        }

    def rows(self, batch: Batch) -> dict[str, pa.Table]:
        """Return the rows with the keys of the records, by table name; see `SparkQuery.run`."""
        if not self._stores:
            return {}
        keys = [key for key in dict.fromkeys(batch.keys) if key is not None]
        return {table: self._rows(store, keys) for table, store in self._stores.items()}

    def _rows(self, store: Store, keys: list[bytes]) -> pa.Table:
        content = zip(keys, store.get_all_serialized(keys), strict=True)
        found = [(key, *entry) for key, entry in content if entry is not None]
        arrays = [
            pa.array([row[0] for row in found], pa.binary()).cast(self._schema.types[0]),
            pa.array([row[1] for row in found], pa.binary()).cast(self._schema.types[1]),
            pa.array([row[2] for row in found], pa.timestamp("ms", tz="UTC")).cast(
                self._schema.types[2]
            ),
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _is_map(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode()), dict)
    except ValueError:
        return False
