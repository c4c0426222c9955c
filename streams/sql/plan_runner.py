"""Has Spark compute plans: in the calling thread, or by jobs on the executors of a cluster."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.jvm_batches import JvmBatches, received
from kafka_pipeline.streams.sql.tasks_in_place import Partitions, TasksInPlace


class PlanRunner:
    """See `Runner`. One thread at a time, but for `cancel`."""

    def __init__(self, session: SparkSession, make: Catalyst, tag: str) -> None:
        """The jobs of the query, with which its tables are read too, have the tag `tag`."""
        jvm: Any = session._jvm
        self._context = session.sparkContext
        self._tag = tag
        self._batches = JvmBatches(session, make)
        self._collect = jvm.PythonRDD.collectAndServe
        is_local = session._jsparkSession.sparkContext().isLocal()
        self._in_place = TasksInPlace(session) if is_local else None

    def put(self, table: pa.Table, *, is_small: bool) -> Any:
        """See `Runner`."""
        return self._batches.put(table, is_small=is_small)

    def results(self, rdd: Any) -> Any:
        """Return an RDD as `compute` takes it."""
        return rdd if self._in_place is None else Partitions.of(rdd)

    def compute(self, results: Any, *, is_small: bool) -> list[bytes]:
        """See `Runner`. Raises whatever Spark raises."""
        if self._in_place is None:
            return received(self._collect(results))
        found = self._in_place.compute(results, partial(self._batches.take, is_small=is_small))
        return [*chain.from_iterable(found)]

    def cancel(self) -> None:
        """End from another thread what runs; later calls may fail too."""
        self._context.cancelJobsWithTag(self._tag)
        if self._in_place is not None:
            self._in_place.cancel()
