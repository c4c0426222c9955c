"""The keys under which the rows of a join without bounds of time meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.dsl.packing import pack
from kafka_pipeline.streams.sql.join_records import Mask
from kafka_pipeline.streams.sql.join_shape import JoinShape
from kafka_pipeline.streams.sql.row_codec import RowCodec


def may_meet(rows: pa.Table, columns: Sequence[str]) -> Mask:
    """Return the rows in which none of these columns is null: a null is equal to nothing."""
    found = np.ones(len(rows), np.bool_)
    for name in columns:
        found &= np.asarray(rows[name].is_valid())
    return found


class MeetingKeys:
    """Finds the keys of rows that meet by the keys of their records, and perhaps by columns too.

    With columns, a key has the length of the record's key, that key, and the columns: a state with
    such keys can be spread over other tasks.
    """

    def __init__(self, shape: JoinShape) -> None:
        assert shape.join.regular is not None, "it has no bounds of time"
        self._has_columns = shape.join.regular.also_by_columns
        self._columns = RowCodec(shape.equal)

    def of(self, rows: pa.Table, keys: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the key of each row, `None` if it has no partner. `keys` are the records' keys."""
        if not self._has_columns:
            return list(keys)
        columns = self._columns.encode(rows)
        found = may_meet(rows, self._columns.schema.names).tolist()
        return [
            pack([key]) + more if may and key is not None else None
            for key, more, may in zip(keys, columns, found, strict=True)
        ]
