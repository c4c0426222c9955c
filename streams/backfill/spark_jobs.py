"""Bounded work on Spark: tasks that end, each in its own Spark task."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.spark.environment import DEFAULTS, EXECUTOR_JVM, LOCAL
from kafka_pipeline.streams.spark.start import prepare_spark, ship_code, start_spark
from kafka_pipeline.streams.spark.zone import adopted
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.queries import SparkQueries

T = TypeVar("T")
R = TypeVar("R")


class BoundedJobs:
    """A Spark session for bounded work; one that already runs in this process is used.

    It keeps its settings but for the time zone, which this process has from then on.
    """

    def __init__(self, config: Config) -> None:
        """Start Spark, configured like a TaskManager's, which takes some seconds.

        On a cluster, the engine and the user's code are shipped to the executors. Raises
        `UnavailableError` without Java 17 or if Spark does not start, and `ConfigError` if others
        in this process have Spark in another time zone.
        """
        running = SparkSession.getActiveSession()
        self._is_own = running is None
        self._code = UserCode.of(config)
        self._readable = Readable.of(config)
        self._session = adopted(running, config.spark.conf) if running else _start(config)
        self._context = self._session.sparkContext
        self._group = uuid.uuid4().hex

    @property
    def slots(self) -> int:
        """How many tasks usually run in parallel."""
        return int(self._context.defaultParallelism)

    def queries(self) -> SparkQueries:
        """Return an object that runs queries in this process."""
        return SparkQueries(self._session, self._code, self._readable)

    def run(self, tasks: Sequence[T], body: Callable[[T], R], description: str) -> list[R]:
        """Return the results of `body` for each task; blocks until all are done, or `cancel`."""
        if not tasks:
            return []
        self._context.setJobGroup(self._group, description, interruptOnCancel=True)
        try:
            return self._context.parallelize(tasks, len(tasks)).map(body).collect()
        except Exception as error:
            reason = str(error).split("\n\tat ")[0].strip().splitlines()
            raise UnavailableError(
                f"Spark has lost the job {description!r}, start it again: "
                f"{reason[-1] if reason else type(error).__name__}"
            ) from error

    def cancel(self) -> None:
        """Cancel the running tasks; to be called from another thread."""
        self._context.cancelJobGroup(self._group)

    def stop(self) -> None:
        """Stop Spark, if it was started here."""
        if self._is_own:
            self._session.stop()


def _start(config: Config) -> SparkSession:
    place = LOCAL if config.spark.is_local else {"spark.executor.extraJavaOptions": EXECUTOR_JVM}
    settings = {
        **DEFAULTS,
        **place,
        **config.spark.conf,
        "spark.master": config.spark.master,
        # A second copy of a task that writes a topic would fence the first one.
        "spark.speculation": "false",
    }
    prepare_spark(config, settings)
    session = start_spark(config, "backfill", settings)
    ship_code(session, config)
    return session
