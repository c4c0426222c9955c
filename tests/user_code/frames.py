"""Functions for `type: dataframe`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tests.user_code.deadly import end_process


def _shout(text: str) -> str:
    if text == "bad":
        raise ValueError("no good")
    return text.upper() + "!"


# Of a lambda, as Spark warns of type hints in a function for single values; with a type as an
# object, as the name of one would need a Spark that runs already.
shout = F.udf(lambda text: _shout(text), StringType())


def loud(frame: DataFrame, suffix: str = "") -> DataFrame:
    """A Python function on each value."""
    return frame.select("key", F.concat(shout("value"), F.lit(suffix)).alias("value"))


def counted(frame: DataFrame) -> DataFrame:
    """What no batch can know."""
    return frame.groupBy("key").count()


def nothing(frame: DataFrame) -> None:
    """What forgets to return its result."""
    frame.select("value")


def failing(frame: DataFrame) -> DataFrame:
    """What cannot be called."""
    raise KeyError("model")


def single(frame: DataFrame) -> DataFrame:
    """What puts the only row of a table into the plan."""
    (row,) = frame.sparkSession.table("names").collect()
    return frame.select(F.concat("value", F.lit(row.name)).alias("value"))


def hanging(frame: DataFrame, fifo: str) -> DataFrame:
    """Never ends with the value "hang", and shows that it has begun."""

    def hang(value: str) -> str:
        if value != "hang":
            return value
        Path(fifo).write_text("began", encoding="utf-8")
        time.sleep(600)
        return value

    return frame.select(F.udf(lambda value: hang(value), StringType())("value").alias("value"))


def _reverse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = [value[::-1] for value in batch["value"].to_pylist()]
        yield pa.RecordBatch.from_pydict({"value": values, "timestamp": batch["timestamp"]})


def _only_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["value"])


def reversed_values(frame: DataFrame) -> DataFrame:
    """Arrow batches, with their timestamps."""
    return frame.mapInArrow(_reverse, "value string, timestamp timestamp")


def timeless(frame: DataFrame) -> DataFrame:
    """Arrow batches, without their timestamps."""
    return frame.mapInArrow(_only_values, "value string")


def numbers(frame: DataFrame) -> DataFrame:
    """A Python function whose error quotes the value."""
    return frame.select(F.udf(lambda text: str(int(text)), StringType())("value").alias("value"))


def _survived(value: str) -> str:
    end_process(value.encode())
    return value


def deadly(frame: DataFrame) -> DataFrame:
    """A Python function that ends its process on some values."""
    survived = F.udf(lambda value: _survived(value), StringType())
    return frame.select("key", survived("value").alias("value"))


def _survivors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for value in batch["value"].to_pylist():
            end_process(value.encode())
        yield batch.select(["value", "timestamp"])


def deadly_batches(frame: DataFrame) -> DataFrame:
    """The same in Arrow batches."""
    return frame.mapInArrow(_survivors, "value string, timestamp timestamp")


def cast_to_int(frame: DataFrame) -> DataFrame:
    """A cast that fails in Spark, which knows the line here."""
    return frame.select(F.col("value").cast("int").cast("string").alias("value"))
