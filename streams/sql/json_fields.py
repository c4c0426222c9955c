"""Reads the fields of JSON values into Arrow columns, as Spark's `from_json` does.

Spark takes microseconds for each record, and Arrow a fraction of that. The result must be the same,
so a batch for which that is not sure is left to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.arrow_json import RowsWithColumns, joined_objects, read_objects
from kafka_pipeline.streams.sql.arrow_bytes import packed, unpacked

TYPES = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "double"})
"""Spark's names of the types that Arrow reads as Spark does, or refuses to read.

A FLOAT is rounded in another way, and DATE, TIMESTAMP and DECIMAL have formats of Spark's own.
"""

_LONGEST_NUMBER = 1000
_LONGEST_NAME = 50_000
"""Spark's reader refuses longer ones, in any field."""

_ZEROS = bytes.maketrans(b"123456789", b"000000000")


@dataclass(frozen=True, slots=True)
class JsonFields:
    """The fields of JSON values that a query needs as columns.

    All fields of the `schema` are checked; those that are `used` become columns.
    """

    schema: pa.Schema
    used: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"schema": packed(self.schema), "used": list(self.used)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> JsonFields | None:
        """Read what `to_json` gave, or nothing."""
        if values is None:
            return None
        return cls(unpacked(values["schema"]), tuple(values["used"]))


def read_fields(values: Sequence[bytes | None], schema: pa.Schema) -> pa.Table | None:
    """Return the fields of objects as columns with these `TYPES`.

    All fields of a null value are null. `None` if a value may not be an object, if a field may not
    fit, or if Spark may read a value in another way.
    """
    table = values.table(schema) if isinstance(values, RowsWithColumns) else None
    if table is None:
        table = _parsed(values, schema)
    if table is None:
        return None
    floats = (column for column in table.columns if column.type == pa.float64())
    return None if any(map(_may_be_another_float, floats)) else table


def _parsed(values: Sequence[bytes | None], schema: pa.Schema) -> pa.Table | None:
    joined = joined_objects(values)
    if joined is None or _may_exceed_limits(values):
        return None
    try:
        table = read_objects(joined, schema).select(schema.names)
        table.validate(full=True)  # half of a surrogate pair makes a string that is not UTF-8
    except pa.ArrowException:
        return None
    return table if len(table) == len(values) and table.schema == schema else None


def _may_exceed_limits(values: Sequence[bytes | None]) -> bool:
    long = [value for value in values if value is not None and len(value) > _LONGEST_NUMBER]
    # A number has at most three runs of digits.
    run = b"0" * (_LONGEST_NUMBER // 3 - 1)
    return any(len(value) > _LONGEST_NAME or run in value.translate(_ZEROS) for value in long)


def _may_be_another_float(column: pa.ChunkedArray) -> bool:
    """Whether a float is infinite, or `-0`, which Spark reads as the integer 0."""
    items = column.drop_null().to_numpy()
    return not np.isfinite(items).all() or bool(np.signbit(items[items == 0]).any())
