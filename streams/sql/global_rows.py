"""The rows of global tables, which follow topics as a whole, as Spark sees them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_pipeline.streams.sql.columns import lookup_schema
from kafka_pipeline.streams.sql.output import require_plain_types
from kafka_pipeline.streams.sql.spec import QuerySpec
from kafka_pipeline.streams.sql.tables import ROWS_IN_MEMORY, Rows
from kafka_pipeline.streams.sql.zone import new_session

STRICT = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
"""Options of Spark's reader of JSON: else the text "NaN" is a number."""


class GlobalRows:
    """The global tables of one query, as DataFrames whose rows are in memory."""

    def __init__(self, session: SparkSession, spec: QuerySpec) -> None:
        """Begin with empty tables."""
        self._session = new_session(session)
        for name, value in ROWS_IN_MEMORY.items():
            self._session.conf.set(name, value)
        self._schemas = spec.global_tables
        self._version = 0
        empty = lookup_schema(spec.format).empty_table()
        self._frames = {name: self._frame(name, empty) for name in self._schemas}

    def replace(self, name: str, rows: pa.Table) -> None:
        """Take other rows for a table."""
        self._frames[name] = self._frame(name, rows)
        self._version += 1

    def with_others(self, rows: Rows) -> Rows:
        """Return these tables and others; the version grows with those of both."""
        return Rows(rows.version + self._version, {**rows.frames, **self._frames})

    def _frame(self, name: str, rows: pa.Table) -> DataFrame:
        raw = self._session.createDataFrame(rows)
        schema = self._schemas[name]
        frame = parsed_table(raw, schema) if schema else raw
        require_plain_types(frame)
        return frame


def parsed_table(raw: DataFrame, schema: str) -> DataFrame:
    """Return a table with the fields of its JSON values as columns, between key and timestamp.

    A field that does not fit is null, as no record of a batch is to blame for it.
    """
    value = F.from_json(F.col("value").cast("string"), schema, STRICT).alias("value")
    return raw.select("key", value, "timestamp").select("key", "value.*", "timestamp")
