"""Results that one stage of a query gives to the next one in the same task, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import times_at

_RESULTS_OF_RECORD = 1 << 20
"""The number of places that the results of a record have among all results of a task."""

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class ResultRows(Batch):
    """Results as a `table`, which has all that the next stage reads; keys and values are null.

    `is_alone` says whether one record alone is to blame if Spark fails on them.
    """

    table: pa.Table
    is_alone: bool

    @classmethod
    def of_table(
        cls, table: pa.Table, partition: int, records: Numbers, read_at: Numbers, *, is_alone: bool
    ) -> ResultRows:
        """Return results, which are in the order of their `records`, those having these offsets.

        Where the next stage asks for the offset of a result, it gets a number that grows with the
        offset of its record, and with its place among the results of that. So the first one of two
        that tie is the one that came first, as it would be in a topic. Raises `StreamsError` if one
        has no timestamp.
        """
        if table["timestamp"].null_count:
            raise StreamsError("the query gives a record whose timestamp is null")
        size = len(table)
        times = times_at(table["timestamp"])
        first = np.searchsorted(records, records)
        place = np.minimum(np.arange(size) - first, _RESULTS_OF_RECORD - 1)
        offsets = read_at * _RESULTS_OF_RECORD + place
        table = table.append_column("partition", pa.array(np.full(size, partition, np.int32)))
        table = table.append_column("offset", pa.array(offsets))
        nothing = [None] * size
        return cls(nothing, nothing, times.tolist(), table=table, is_alone=is_alone)
