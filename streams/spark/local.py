"""A Spark of this process, for tests without Kafka and for `pipeline validate`."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streams.spark.environment import LOOPBACK, QUIET, set_environment
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
        return SparkQueries(_session(self._code), self._code).open(spec)


def _session(code: UserCode) -> SparkSession:
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    set_environment(code.python_path)
    builder = SparkSession.builder.master("local[1]").appName("local queries")
    return builder.config(map={**QUIET, **LOOPBACK}).getOrCreate()
