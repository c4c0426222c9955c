"""A function of Spark over the numbered records of the chaos harness."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.user_code.numbered import BUCKETS, WINDOW_MS


def by_bucket(numbered: DataFrame) -> DataFrame:
    """Sum the numbers of each bucket per window; see `tests/chaos/dsl_ledger.py`."""
    number = F.substring("key", 2, 2).cast("int")
    rows = numbered.select(
        F.concat(F.lit("bucket"), number % BUCKETS).alias("bucket"), "value", "timestamp"
    )
    window = F.window("timestamp", f"{WINDOW_MS} milliseconds")
    summed = rows.groupBy("bucket", window).agg(F.sum(F.col("value").cast("bigint")).alias("total"))
    start = F.unix_millis(F.col("window.start"))
    return summed.select(
        F.col("bucket").alias("key"),
        F.concat_ws(" ", F.lit("sql bucket"), start, "total").alias("value"),
    )
