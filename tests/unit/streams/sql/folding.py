"""Records through queries with GROUP BY: batch by batch with kept state, and all at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_distinct import DistinctOfTable
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import COLUMNS, QuerySpec
from kafka_pipeline.streams.sql.state_shape import (
    OPEN_FROM,
    Merged,
    PreparedAggregation,
    Reading,
    StateShape,
)
from kafka_pipeline.streams.sql.state_stores import DISTINCT, state_stores
from tests.unit.streams.sql.grouped_job import columns_of

SCHEMA = "customer STRING, amount DOUBLE, n INT, price DECIMAL(10, 2), tags ARRAY<STRING>"
MINUTE_US = 60_000_000

Row = Mapping[str, Any]


def opened(local: LocalQueries, query: str, **others: Any) -> PreparedAggregation:
    """Open a query on JSON records."""
    spec = QuerySpec(query, format="json", schema=SCHEMA, keeps_distinct=True)
    return local.open_aggregation(replace(spec, **others))


def records(rows: Sequence[Row], start: int = 0) -> pa.Table:
    """Return rows as JSON records; `at` is their minute, otherwise they are a minute apart."""
    fields = [{name: value for name, value in row.items() if name != "at"} for row in rows]
    times = [row.get("at", start + index) * MINUTE_US for index, row in enumerate(rows)]
    return pa.table(
        {
            "key": pa.nulls(len(rows), pa.string()),
            "value": pa.array([json.dumps(each) for each in fields], pa.string()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(start, start + len(rows)), pa.int64()),
            OPEN_FROM: pa.array([-(2**50)] * len(rows), pa.timestamp("us", tz="UTC")),
        }
    )


def merged_of(query: PreparedAggregation, rows: pa.Table) -> Merged:
    """Merge rows."""
    return Merged.of(query.shape, query.merge(rows))


def shape_of_values(
    values: Mapping[str, pa.DataType], readings: Mapping[str, Reading] = {}
) -> StateShape:
    """Return the shape of groups `g` with one buffer and these columns of values."""
    return StateShape(
        groups=pa.schema([("g", pa.string())]),
        buffers=pa.schema([("c", pa.int64())]),
        values=pa.schema(values.items()),
        output=pa.schema([]),
        window=None,
        window_column="",
        order_column="",
        last_time="",
        key_column="g",
        is_distinct=False,
        best=0,
        ranked="",
        loses_rows=False,
        empty=pa.table({"c": pa.array([0], pa.int64())}),
        content="{}",
        readings=readings,
    )


def rows_with_values(shape: StateShape, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of a shape: each has its group, and then a list for each column of values."""
    groups, *values = zip(*rows, strict=True)
    lists = [
        pa.array(
            [[{f"_{at}": x for at, x in enumerate(v)} for v in each] for each in column], field.type
        )
        for column, field in zip(values, shape.values, strict=True)
    ]
    return pa.table([pa.array(groups), pa.array([1] * len(rows)), *lists], schema=shape.rows)


def distinct_store(grouping: GroupingSpec) -> tuple[ProcessorContext, Any]:
    """Return the store of distinct values, in memory, after a context that has it."""
    (builder,) = (each for each in state_stores(grouping) if each.name == DISTINCT)
    store: Any = builder.build(builder.open_in_memory())
    context = SimpleNamespace(get_state_store={DISTINCT: store}.__getitem__)
    return cast("ProcessorContext", context), store


class Folding:
    """A query whose state is in a dictionary, as bytes."""

    def __init__(self, query: PreparedAggregation) -> None:
        self._query = query
        self._groups = RowCodec(query.shape.groups)
        self._buffers = RowCodec(query.shape.buffers)
        self.state: dict[bytes, bytes] = {}
        context, _ = distinct_store(GroupingSpec(keeps_distinct=True))
        self.distinct = DistinctOfTable(query.shape, context)

    def add(self, table: pa.Table) -> Merged:
        """Merge a batch into the state, and return the results of its groups."""
        partial = self._query.partial(table)
        groups = self._groups.encode(partial)
        unseen = self.distinct.unseen(partial, Groups(groups, [0] * len(groups), groups))
        known = [key for key in groups if key in self.state]
        rows = pa.concat_tables([self._kept(known), unseen])
        merged = merged_of(self._query, rows)
        keys = self._groups.encode(merged.rows)
        self.state |= zip(keys, self._buffers.encode(merged.rows), strict=True)
        return merged

    def results(self) -> list[tuple[bytes | None, Any, int]]:
        """Return key, value and time (ms) of all groups that have a result."""
        return results_of(merged_of(self._query, self._kept(list(self.state))))

    def _kept(self, keys: Sequence[bytes]) -> pa.Table:
        groups = self._groups.decode(keys)
        buffers = self._buffers.decode([self.state[key] for key in keys])
        shape = self._query.shape
        values = [pa.array([[]] * len(keys), field.type) for field in shape.values]
        return pa.Table.from_arrays([*groups.columns, *buffers.columns, *values], schema=shape.rows)


def results_of(merged: Merged) -> list[tuple[bytes | None, Any, int]]:
    """Return key, value and time (ms) of the groups that have a result."""
    is_now = pa.array(merged.has_result & ~merged.is_former)
    rows = merged.results.filter(is_now).to_pylist()
    return [(row.get("key"), json.loads(row["value"]), row["timestamp"]) for row in rows]


def all_at_once(query: str, table: pa.Table) -> list[tuple[bytes | None, Any, int]]:
    """Return what Spark gives for all records; `{last}` in the query adds their last time."""
    frame = _parsed(table)
    frame.createOrReplaceTempView("input")
    last = ", unix_millis(max(timestamp)) AS `last time`"
    query = query.replace("{last}", last)
    return _collected(frame.sparkSession.sql(query))


def frame_at_once(
    function: Callable[..., DataFrame], table: pa.Table, **config: Any
) -> list[tuple[bytes | None, Any, int]]:
    """Return what a function gives for all records; it adds their last time as `last time`."""
    return _collected(function(_parsed(table), **config))


def plain_session() -> SparkSession:
    """Return a session for what plain Spark gives, for a few rows at once."""
    session = SparkSession(SparkContext.getOrCreate()).newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    # Compiling would take longer than the few rows do.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def _parsed(table: pa.Table) -> DataFrame:
    session = plain_session()
    parsed = F.from_json("value", SCHEMA).alias("value")
    others = [name for name in COLUMNS if name in table.column_names and name != "value"]
    frame: DataFrame = session.createDataFrame(table).select(parsed, *others)
    return frame.select("value.*", *others)


def _collected(found: DataFrame) -> list[tuple[bytes | None, Any, int]]:
    names = [name for name in found.columns if name not in ("key", "last time")]
    value = F.to_json(F.struct(*(F.col(name) for name in names)), {"ignoreNullFields": "false"})
    key = F.col("key") if "key" in found.columns else F.lit(None)
    rows = found.select(key.cast("string").cast("binary"), value, "last time").collect()
    return [(key and bytes(key), json.loads(text), last) for key, text, last in rows]


def make_view(topic: str, rows: Sequence[Row], schema: str) -> None:
    """Give Spark all records of a topic, whose values are JSON, as a view."""
    session = SparkSession(SparkContext._active_spark_context)  # type: ignore[arg-type]
    keys, values, times = columns_of(rows)
    text = [
        (None if k is None else k.decode(), None if v is None else v.decode(), t)
        for k, v, t in zip(keys, values, times, strict=True)
    ]
    frame = session.createDataFrame(text, "key STRING, value STRING, at BIGINT")
    parsed = F.from_json("value", schema).alias("v")
    frame = frame.select("key", F.timestamp_millis("at").alias("timestamp"), parsed)
    frame.select("key", "timestamp", "v.*").createOrReplaceTempView(topic)
