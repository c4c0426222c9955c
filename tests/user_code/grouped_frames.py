"""Functions of DataFrames with groups, for tests.

With `last`, they give the time of the last record of each group too, as a column `last time`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import DoubleType, StringType

LAST = "last time"

# Of a lambda, as Spark warns of type hints in a function for single values.
_shout = F.udf(lambda text: _shouted(text), StringType())


def _shouted(text: str | None) -> str | None:
    if text == "bad":
        raise ValueError("no good")
    return None if text is None else text.upper() + "!"


def _time(last: bool) -> list[Column]:
    return [F.unix_millis(F.max("timestamp")).alias(LAST)] if last else []


def _given(last: bool) -> list[str]:
    return [f"`{LAST}`"] if last else []


def _minute(time: Column) -> Column:
    return F.date_format(time, "HH:mm")


def per_hour(frame: DataFrame, least: int = 0) -> DataFrame:
    """Count the records of each customer per hour."""
    grouped = frame.groupBy("customer", F.window("timestamp", "1 hour"))
    counted = grouped.agg(F.count("*").alias("orders"))
    return counted.where(f"orders >= {least}").select(F.col("customer").alias("key"), "orders")


def totals(frame: DataFrame, last: bool = False) -> DataFrame:
    """Groups by key, with a condition on the results."""
    aggregates = [F.count("*").alias("c"), F.sum("amount").alias("s"), F.sum("n").alias("n")]
    return frame.groupBy("key").agg(*aggregates, *_time(last)).where("n > 9")


def by_customer(frame: DataFrame, last: bool = False) -> DataFrame:
    """Groups by a field, with an expression over aggregates."""
    grouped = frame.where("n <> 3").groupBy(F.col("customer").alias("key"))
    return grouped.agg(
        (F.sum("n") / F.count("*")).alias("a"),
        F.array_sort(F.collect_set("n")).alias("l"),
        *_time(last),
    )


def hourly(frame: DataFrame, group: str = "key", last: bool = False) -> DataFrame:
    """Tumbling windows."""
    grouped = frame.groupBy(group, F.window("timestamp", "1 hour").alias("w"))
    found = grouped.agg(F.sum("n").alias("s"), F.count("*").alias("c"), *_time(last))
    key = F.concat(F.coalesce(group, F.lit("-")), _minute(F.col("w.start"))).alias("key")
    return found.where("c > 1").select(key, "s", *_given(last))


def hopping(frame: DataFrame, last: bool = False) -> DataFrame:
    """Hopping windows that begin 15 minutes before each slide, or 5 minutes after it."""
    window = F.window("timestamp", "1 hour", "20 minutes", "-15 minutes")
    found = frame.groupBy("customer", window).agg(F.min("n").alias("m"), *_time(last))
    key = F.concat(F.coalesce("customer", F.lit("-")), _minute(F.col("window.start")))
    return found.select(key.alias("key"), "m", *_given(last))


def sessions(frame: DataFrame, last: bool = False) -> DataFrame:
    """Sessions of a key."""
    found = frame.groupBy("key", F.session_window("timestamp", "9 minutes")).agg(
        F.collect_list("amount").alias("l"), F.count("*").alias("c"), *_time(last)
    )
    key = F.concat("key", _minute(F.col("session_window.end"))).alias("key")
    return found.where("c > 1").select(key, "l", *_given(last))


def sessions_of_fields(frame: DataFrame, last: bool = False) -> DataFrame:
    """Sessions of fields."""
    grouped = frame.groupBy("n", F.session_window("timestamp", "25 minutes"), "customer")
    found = grouped.agg(F.count_distinct("price").alias("c"), *_time(last))
    names = F.coalesce("customer", F.lit("-")), F.coalesce("n", F.lit(9))
    key = F.concat(*names, _minute(F.col("session_window.start"))).alias("key")
    return found.select(key, "c", *_given(last))


def best(frame: DataFrame, slide: str = "1 hour", ties: bool = False) -> DataFrame:
    """The two largest of each customer and window; `ties` decide as the engine does."""
    rows = frame.withColumn("w", F.window("timestamp", "1 hour", slide))
    rows = rows.withColumn("loud", _shout("customer"))
    record = ["timestamp", "partition", "offset"] if ties else []
    over = W.partitionBy("customer", "w").orderBy(F.desc("n"), *record)
    last = F.unix_millis(F.max("timestamp").over(W.partitionBy("customer", "w")))
    numbered = rows.withColumn("place", F.row_number().over(over))
    if ties:
        numbered = numbered.withColumn(LAST, last)
    key = F.concat(F.coalesce("loud", F.lit("-")), _minute(F.col("w.start")), "place")
    return numbered.where("place <= 2").select(key.alias("key"), "n", "amount", *_given(ties))


def best_of_sessions(frame: DataFrame) -> DataFrame:
    """Numbers rows in sessions."""
    over = W.partitionBy("key", F.session_window("timestamp", "5 minutes")).orderBy("n")
    return frame.withColumn("place", F.row_number().over(over)).where("place <= 2")


def mixed(frame: DataFrame) -> DataFrame:
    """Groups by a column that is the key in some rows only."""
    rows = frame.unpivot("timestamp", [F.col("key"), F.col("customer")], "name", "key")
    return rows.groupBy("key").agg(F.count("*").alias("c"))


def rolled_up(frame: DataFrame, last: bool = False) -> DataFrame:
    """Groups of groups."""
    found = frame.rollup("customer", "n").agg(
        F.grouping_id().alias("g"), F.sum_distinct("amount").alias("s"), *_time(last)
    )
    names = F.col("g"), F.coalesce("customer", F.lit("-")), F.coalesce("n", F.lit(9))
    return found.select(F.concat(*names).alias("key"), "s", *_given(last))


def shouted(frame: DataFrame, last: bool = False) -> DataFrame:
    """A Python function below the groups."""
    grouped = frame.groupBy(_shout("customer").alias("key"))
    return grouped.agg(F.count("*").alias("c"), *_time(last))


def _with_tens(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tens = [None if n is None else 10 * n for n in batch["n"].to_pylist()]
        columns = {"customer": batch["customer"], "ten": pa.array(tens, pa.int64())}
        yield pa.RecordBatch.from_pydict({**columns, "at": batch["timestamp"]})


def mapped(frame: DataFrame, last: bool = False) -> DataFrame:
    """Arrow batches below the groups, which give their time themselves."""
    rows = frame.mapInArrow(_with_tens, "customer string, ten bigint, at timestamp")
    time = F.max("at").alias("timestamp")
    shown = [F.unix_millis(F.max("at")).alias(LAST)] if last else [time]
    return rows.groupBy(F.col("customer").alias("key")).agg(F.sum("ten").alias("s"), *shown)


def timeless(frame: DataFrame) -> DataFrame:
    """Arrow batches below the groups, without a time."""
    rows = frame.mapInArrow(_with_tens, "customer string, ten bigint, at timestamp")
    return rows.groupBy(F.col("customer").alias("key")).count()


def enriched(frame: DataFrame) -> DataFrame:
    """Groups by a column of a table that is joined by key."""
    cities = frame.sparkSession.table("cities")
    rows = frame.join(cities, frame["key"] == cities["key"], "left")
    grouped = rows.groupBy(F.coalesce("city", F.lit("-")).alias("key"))
    return grouped.agg(F.count("*").alias("c"), F.sum("n").alias("s"))


def distinct(frame: DataFrame) -> DataFrame:
    """Distinct rows."""
    return frame.where("n <> 1").select("key", "n").distinct()


def without_duplicates(frame: DataFrame) -> DataFrame:
    """Distinct rows, once a window."""
    hour = F.window("timestamp", "1 hour").alias("w")
    rows = frame.select(F.col("customer").alias("key"), "n", hour).dropDuplicates()
    return rows.select("key", "n", _minute(F.col("w.start")).alias("hour"))


def first_of_each(frame: DataFrame) -> DataFrame:
    """One of the rows with the same values in some columns."""
    return frame.select("key", "customer", "n").dropDuplicates(["key", "customer"])


def all_records(frame: DataFrame) -> DataFrame:
    """One group of everything."""
    return frame.agg(F.count("*").alias("c"))


def twice(frame: DataFrame) -> DataFrame:
    """Groups of groups' results."""
    return frame.groupBy("customer").count().groupBy("count").agg(F.count("*").alias("c"))


def pivoted(frame: DataFrame) -> DataFrame:
    """A column for each customer."""
    return frame.groupBy("key").pivot("customer", ["a", "b"]).sum("n")


def sorted_groups(frame: DataFrame) -> DataFrame:
    """Groups in an order."""
    return frame.groupBy("key").count().orderBy("count")


def random_groups(frame: DataFrame) -> DataFrame:
    """Groups that differ from run to run."""
    return frame.groupBy((F.rand() * 3).cast("int").alias("key")).count()


def shouted_after(frame: DataFrame) -> DataFrame:
    """A Python function above the groups."""
    counted = frame.groupBy("customer").agg(F.count("*").alias("c"))
    return counted.select(_shout("customer").alias("key"), "c")


def with_months(frame: DataFrame) -> DataFrame:
    """Sessions whose gap has no certain length."""
    return frame.groupBy("key", F.session_window("timestamp", "1 month")).count()


def with_gap(frame: DataFrame, gap: str) -> DataFrame:
    """Sessions with a gap."""
    return frame.groupBy("key", F.session_window("timestamp", gap)).agg(F.count("*").alias("c"))


def with_window(frame: DataFrame, times: list[str], group: str = "key") -> DataFrame:
    """Windows of these times."""
    found = frame.groupBy(group, F.window("timestamp", *times)).agg(F.count("*").alias("c"))
    return found.select("c")


def of_vectors(frame: DataFrame) -> DataFrame:
    """Groups by a column of a user-defined type."""
    from pyspark.ml.functions import array_to_vector

    vector = array_to_vector(F.array(F.col("n").cast("double")))
    return frame.groupBy(vector.alias("v")).agg(F.count("*").alias("c")).select("c")


def ungrouped(frame: DataFrame) -> DataFrame:
    """No groups at all."""
    return frame.select("key", "n")


def mean_in_python(frame: DataFrame) -> DataFrame:
    """Use an aggregate function in Python."""

    def mean(column: pd.Series) -> float:
        return float(column.mean())

    mean.__annotations__ = {"column": pd.Series, "return": float}
    aggregating: Any = pandas_udf
    function = aggregating(mean, DoubleType())
    return frame.groupBy("customer").agg(function("n").alias("mean"))


def by_pandas(frame: DataFrame) -> DataFrame:
    """Hand whole groups to pandas."""

    def same(group: pd.DataFrame) -> pd.DataFrame:
        return group

    grouped = frame.select("customer", "n").groupBy("customer")
    return grouped.applyInPandas(same, "customer string, n int")


def within_watermark(frame: DataFrame) -> DataFrame:
    """Drop duplicates by the state of Spark's own streams."""
    return frame.withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["customer"])


def by_state(frame: DataFrame) -> DataFrame:
    """Hand groups to pandas, with the state of Spark's own streams."""

    def same(
        _key: tuple[str], groups: Iterator[pd.DataFrame], _state: GroupState
    ) -> Iterator[pd.DataFrame]:
        yield from groups

    grouped = frame.select("customer", "n").groupBy("customer")
    schema = "customer string, n int"
    return grouped.applyInPandasWithState(same, schema, "n int", "append", "NoTimeout")


def with_cities(frame: DataFrame) -> DataFrame:
    """Join the table `c`; the join is the last step."""
    cities = frame.sparkSession.table("c").withColumnRenamed("key", "place").drop("timestamp")
    records = frame.drop("partition", "offset")
    return records.join(cities, records["key"] == cities["place"])
