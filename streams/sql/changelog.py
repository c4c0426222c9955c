"""Queries over a changelog: what a batch of upserts changes in the table that it is of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.clocks import clocks_by_time
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, in_columns, items_of
from kafka_pipeline.streams.sql.columns import batch_of, moments
from kafka_pipeline.streams.sql.join_records import Mask
from kafka_pipeline.streams.sql.json_values import have_same_fields
from kafka_pipeline.streams.sql.processor import SparkProcessor
from kafka_pipeline.streams.sql.retraction import CHANGE, CHANGE_TIME
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import RECORD
from kafka_pipeline.streams.sql.state_stores import CHANGELOG
from kafka_pipeline.streams.stores import TimestampedKeyValueStore


class Read(Protocol):
    """Reads records as `table_of` does."""

    def __call__(self, batch: Batch, *, as_fields: bool = True) -> tuple[pa.Table, str]:
        """Return the records, and what is wrong; unless `as_fields`, Spark is to read JSON."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows that a table has lost, and the indexes of the records that did it."""

    rows: Batch
    places: Sequence[int]


class KeptChangelog:
    """The newest record of each key that a task has read, in a store.

    Each record is a change of its own, also if the next one of its key is in the same batch. So
    results, and what is rejected, do not depend on batches.
    """

    def __init__(self, context: ProcessorContext, name: str = CHANGELOG) -> None:
        self._store: TimestampedKeyValueStore[bytes, bytes] = context.get_state_store(name)

    def changes(
        self,
        batch: Batch,
        table: pa.Table,
        read: Read,
        *,
        by_time: bool,
        fields: Collection[str],
    ) -> tuple[pa.Table, Batch]:
        """Return the rows that the table gets and loses, and the records to keep for it.

        The rows have `CHANGE` and `CHANGE_TIME`. An update by which nothing differs, see `differ`,
        neither gives rows nor is kept. The `table` has the records of the batch, all of which have
        a key, as `read` gives them.
        """
        lost = self.lost(batch)
        removed, table = read_lost(lost, batch, table, read)
        differs = differ(lost, batch, removed, table, by_time=by_time, fields=fields)
        places = np.asarray(lost.places, np.int64)
        is_lost, is_new = pa.array(differs[places]), pa.array(differs & are_there(batch))
        times = moments(items_of(batch.timestamps))
        rows = pa.concat_tables(
            [
                _with_changes(removed.filter(is_lost), -1, times.take(places).filter(is_lost)),
                _with_changes(table.filter(is_new), 1, times.filter(is_new)),
            ]
        )
        return rows, batch if differs.all() else selected(batch, differs.tolist())

    def lost(self, batch: Batch) -> Lost:
        """Return the former records of the keys in a batch, each of which has a key."""
        wanted = list(dict.fromkeys(batch.keys))
        known = dict(zip(wanted, self._store.get_all_serialized(wanted), strict=True))
        keys, values, times, places = list[bytes](), list[bytes](), list[int](), list[int]()
        records = zip(batch.keys, batch.values, items_of(batch.timestamps), strict=True)
        for place, (key, value, time) in enumerate(records):
            former = known[key]
            if former is not None:
                keys.append(key)
                values.append(former[0])
                times.append(former[1])
                places.append(place)
            known[key] = None if value is None else (value, time)
        return Lost(Batch(keys, values, times), places)

    def keep(self, batch: Batch) -> None:
        """Keep the records of a batch."""
        self._store.put_values(batch.keys, batch.values, items_of(batch.timestamps))


def read_lost(lost: Lost, batch: Batch, table: pa.Table, read: Read) -> tuple[pa.Table, pa.Table]:
    """Return the lost rows, and the records of the batch, as tables with the same columns.

    The `table` has the records as `read` gives them. Raises `ConfigError` if a row that was kept
    cannot be read any more.
    """
    removed, wrong = read(lost.rows) if len(lost.rows) else (table.slice(0, 0), "")
    if removed.column_names != table.column_names:
        # One of them has values that only Spark reads.
        table, _ = read(batch, as_fields=False)
        removed, wrong = read(lost.rows, as_fields=False)
    if wrong:
        raise ConfigError(
            f"a record that was kept cannot be read any more ({wrong}), as the format has "
            "changed: go back to the former one, or give the processor another id"
        )
    return removed, table


def differ(
    lost: Lost,
    batch: Batch,
    removed: pa.Table,
    table: pa.Table,
    *,
    by_time: bool,
    fields: Collection[str],
) -> Mask:
    """Return all records of a batch but the updates that equal the record that they replace.

    `removed` and `table` are those of `read_lost`. They have the columns that a query reads, of
    which the bytes are compared: 0.0 differs from -0.0. Of JSON values that Spark is to read, these
    `fields` are compared. Times differ only if they are compared `by_time`.
    """
    found = np.ones(len(batch), np.bool_)
    if not len(removed):
        return found
    others = ("timestamp", "value") if fields else ("timestamp",)
    names = [name for name in table.column_names if name not in others]
    has_json = bool(fields) and "value" in table.column_names
    codec = RowCodec(pa.schema(map(table.schema.field, names)))
    tables = removed.select(names), table.select(names).take(pa.array(lost.places, pa.int64()))
    # A query may read no column.
    formers, rows = (codec.encode(each) if names else [b""] * len(removed) for each in tables)
    before, times = items_of(lost.rows.timestamps), items_of(batch.timestamps)
    for index, (place, former, row) in enumerate(zip(lost.places, formers, rows, strict=True)):
        is_same = former == row and not (by_time and before[index] != times[place])
        value = batch.values[place]
        if is_same and has_json and value is not None:
            is_same = have_same_fields(lost.rows.values[index], value, fields)
        found[place] = value is None or not is_same
    return found


def are_there(batch: Batch) -> Mask:
    """Return which records have a value, and so do not delete their key."""
    return np.array([value is not None for value in batch.values], np.bool_)


class PassingProcessor(SparkProcessor):
    """A query without groups over a changelog: it passes deletions on.

    A record without a value, and one that gives no row, deletes what its key had.
    """

    def results(self, batch: Batch, table: pa.Table) -> Batch:
        """Return the results and deletions, in the order of the records that they stem from."""
        numbers = pa.array(range(len(table)), pa.int64())
        found = self.rows(
            batch, table.append_column(RECORD, numbers).filter(pa.array(are_there(batch)))
        )
        given, of_record = batch_of(found), found[RECORD].to_pylist()
        rows = dict[int, list[Record]]()
        for number, result in zip(of_record, given.records(), strict=True):
            rows.setdefault(number, []).append(result)
        times = items_of(batch.timestamps)
        for number, key in enumerate(batch.keys):
            if number not in rows and key is not None:
                rows[number] = [Record(key, None, times[number])]
        made = [each for number in sorted(rows) for each in rows[number]]
        passed = in_columns(made)
        passed.clocks = clocks_by_time(batch, passed.timestamps)
        return passed


def _with_changes(table: pa.Table, change: int, times: pa.Array) -> pa.Table:
    changes = pa.repeat(pa.scalar(change, pa.int64()), len(table))
    return table.append_column(CHANGE, changes).append_column(CHANGE_TIME, times)
