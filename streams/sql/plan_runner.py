"""Has Spark compute plans: in the calling thread, or by jobs on the executors of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.compiled_plan import Results
from kafka_pipeline.streams.sql.jvm_batches import JvmBatches, received
from kafka_pipeline.streams.sql.tasks_in_place import TasksInPlace


class PlanRunner:
    """Computes the plans of one query. One thread at a time, but for `cancel`."""

    def __init__(self, session: SparkSession, make: Catalyst, tag: str) -> None:
        """The jobs of the query, with which its tables are read too, have the tag `tag`."""
        self._context = session.sparkContext
        self._tag = tag
        batches = JvmBatches(session, make)
        is_local = session._jsparkSession.sparkContext().isLocal()
        self._in_place = TasksInPlace(session, batches) if is_local else None
        jvm: Any = session._jvm
        self._as_job = _Jobs(jvm.PythonRDD.collectAndServe, batches, make.seq([]))

    def results(self, rdd: Any, leaves: Sequence[Any]) -> Results:
        """Return what an RDD gives; `leaves` are the partitions that get rows for each batch."""
        return (self._in_place or self._as_job).results(rdd, leaves)

    def cancel(self) -> None:
        """End from another thread what runs; later calls may fail too."""
        self._context.cancelJobsWithTag(self._tag)
        if self._in_place is not None:
            self._in_place.cancel()


class _Jobs:
    """Computes RDDs by jobs."""

    def __init__(self, collect: Callable[[Any], Any], batches: JvmBatches, nothing: Any) -> None:
        self.collect = collect
        self.batches = batches
        self.nothing = nothing

    def results(self, rdd: Any, leaves: Sequence[Any]) -> _Job:
        """See `PlanRunner`."""
        return _Job(self, rdd, [getattr(leaf, "values_$eq") for leaf in leaves])


class _Job:
    """See `Results`."""

    def __init__(self, jobs: _Jobs, rdd: Any, leaves: Sequence[Callable[[Any], Any]]) -> None:
        self._jobs = jobs
        self._rdd = rdd
        self._leaves = leaves

    def of(self, tables: Sequence[pa.Table]) -> list[bytes]:
        """See `Results`. Raises whatever Spark raises."""
        try:
            for put, table in zip(self._leaves, tables, strict=True):
                put(self._jobs.batches.put(table))
            return received(self._jobs.collect(self._rdd))
        finally:
            for put in self._leaves:
                put(self._jobs.nothing)  # or Spark would keep the batch in memory
