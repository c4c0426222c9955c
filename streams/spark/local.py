"""A Spark of this process, for tests without Kafka and for `pipeline validate`."""

from __future__ import annotations

import os
import sys
from functools import cache

from pyspark.sql import SparkSession

from common.java import find_java
from streams.spark.queries import SparkQueries
from streams.spark.spec import Query, QuerySpec
from streams.user_code import UserCode


class LocalQueries:
    """Queries on a session `local[1]` that starts with the first one, in some seconds.

    It ends with the process. One that runs already in this process is used as it is.
    """

    def __init__(self, code: UserCode) -> None:
        self._code = code

    def open(self, spec: QuerySpec) -> Query:
        """See `Queries.open`. Raises `UnavailableError` without Java 17 as well."""
        return SparkQueries(_session(), self._code).open(spec)


@cache
def _session() -> SparkSession:
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("local queries")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
