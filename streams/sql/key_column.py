"""Which grouping column is the key of the records, for a state that is spread over other tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.state_shape import StateShape, packed, unpacked


def kept_content(shape: StateShape, route: str) -> str:
    """Return what a state is kept for, with what `KeyColumn` needs.

    The `route` says how the records of a group meet.
    """
    keys = {"key_column": shape.key_column, "key_columns": packed(shape.keys), "route": route}
    return json.dumps({**json.loads(shape.content), **keys}, sort_keys=True)


class KeyColumn:
    """Finds the key of the records of a group in the group's key in a store."""

    def __init__(self, content: str) -> None:
        """Raise `ValueError` if the content does not say which column that is."""
        values = json.loads(content)
        if not values.get("key_column"):
            raise ValueError("it was kept by a version that did not record which column is the key")
        self._column = values["key_column"]
        self._codec = RowCodec(unpacked(values["key_columns"]))

    def of(self, keys: Sequence[bytes]) -> pa.BinaryArray:
        """Return the key of the records of each group. Raises `ValueError` for other bytes."""
        column = self._codec.decode(keys)[self._column].combine_chunks()
        found: pa.BinaryArray = column.cast(pa.binary())
        return found
