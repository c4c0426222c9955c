"""Functions of DataFrames with groupBy, for tests."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DoubleType


def per_hour(frame: DataFrame, least: int = 0) -> DataFrame:
    """Count the records of each customer per hour."""
    grouped = frame.groupBy("customer", F.window("timestamp", "1 hour"))
    counted = grouped.agg(F.count("*").alias("orders"))
    return counted.where(f"orders >= {least}").select(F.col("customer").alias("key"), "orders")


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
