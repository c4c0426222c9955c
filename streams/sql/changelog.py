"""Queries over a changelog: what a batch of upserts changes in the table that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.clocks import clocks_by_time
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.sql.columns import batch_of, moments
from kafka_pipeline.streams.sql.processor import SparkProcessor
from kafka_pipeline.streams.sql.retraction import CHANGE, CHANGE_TIME
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

    def changes(self, batch: Batch, table: pa.Table, read: Read) -> pa.Table:
        """Return the rows that the table gets and loses, with `CHANGE` and `CHANGE_TIME`.

        The `table` has the records of the batch, all of which have a key, as `read` gives them.
        """
        lost = self.lost(batch)
        removed, table = read_lost(lost, batch, table, read)
        is_there, times = are_there(batch), moments(items_of(batch.timestamps))
        return pa.concat_tables(
            [
                _with_changes(removed, -1, times.take(pa.array(lost.places, pa.int64()))),
                _with_changes(table.filter(is_there), 1, times.filter(is_there)),
            ]
        )

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


def are_there(batch: Batch) -> pa.BooleanArray:
    """Return which records have a value, and so do not delete their key."""
    return pa.array([value is not None for value in batch.values], pa.bool_())


class PassingProcessor(SparkProcessor):
    """A query without groups over a changelog: it passes deletions on.

    A record without a value, and one that gives no row, deletes what its key had.
    """

    def results(self, batch: Batch, table: pa.Table) -> Batch:
        """Return the results and deletions, in the order of the records that they stem from."""
        numbers = pa.array(range(len(table)), pa.int64())
        found = self.rows(batch, table.append_column(RECORD, numbers).filter(are_there(batch)))
        given, of_record = batch_of(found), found[RECORD].to_pylist()
        rows = dict[int, list[Record]]()
        for number, result in zip(of_record, given.records(), strict=True):
            rows.setdefault(number, []).append(result)
        times = items_of(batch.timestamps)
        for number, key in enumerate(batch.keys):
            if number not in rows and key is not None:
                rows[number] = [Record(key, None, times[number])]
        made = [each for number in sorted(rows) for each in rows[number]]
        passed = Batch(
            [each.key for each in made],
            [each.value for each in made],
            [each.timestamp for each in made],
            None if given.headers is None else [each.headers or None for each in made],
        )
        passed.clocks = clocks_by_time(batch, passed.timestamps)
        return passed


def _with_changes(table: pa.Table, change: int, times: pa.Array) -> pa.Table:
    changes = pa.repeat(pa.scalar(change, pa.int64()), len(table))
    return table.append_column(CHANGE, changes).append_column(CHANGE_TIME, times)
