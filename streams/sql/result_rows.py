"""Results that one stage of a query gives to the next one in the same task, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.record import Batch


@dataclass(slots=True, kw_only=True)
class ResultRows(Batch):
    """Results as a `table`, which has all that the next stage reads; keys and values are null.

    `is_alone` says whether one record alone is to blame if Spark fails on them.
    """

    table: pa.Table
    is_alone: bool

    @classmethod
    def of_table(cls, table: pa.Table, *, is_alone: bool) -> ResultRows:
        """Return the results of a query. Raises `StreamsError` if one has no timestamp."""
        if table["timestamp"].null_count:
            raise StreamsError("the query gives a record whose timestamp is null")
        times = np.asarray(table["timestamp"].cast(pa.int64())) // 1000
        nothing = [None] * len(table)
        return cls(nothing, nothing, times.tolist(), table=table, is_alone=is_alone)
