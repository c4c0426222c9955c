"""What waits for a commit of a table with a key: of each key, only the last change counts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_pipeline.streams.tables.columns import Columns

_NUMBER = "__number"


def last_changes(rows: Sequence[pa.RecordBatch], columns: Columns) -> pa.Table:
    """Return the last of the rows `of_changes` of each key, in the order of keys.

    Tasks that write the same rows lock them in the same order, so they seldom wait in a circle.
    """
    table = pa.Table.from_batches(rows, columns.of_changes)
    key = list(columns.key)
    numbers = pa.array(range(len(table)), pa.int64())
    numbered = table.select(key).append_column(_NUMBER, numbers)
    last = numbered.group_by(key, use_threads=False).aggregate([(_NUMBER, "max")])
    last = last.sort_by([(name, "ascending") for name in key])
    return table.take(last[f"{_NUMBER}_max"])
