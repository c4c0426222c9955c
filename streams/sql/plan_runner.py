"""Has Spark compute plans: in the calling thread, or by jobs on the executors of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
        self._batches = JvmBatches(session)
        is_local = session._jsparkSession.sparkContext().isLocal()
        self._in_place = TasksInPlace(session, self._batches) if is_local else None
        jvm: Any = session._jvm
        self._collect, self._nothing = jvm.PythonRDD.collectAndServe, make.nothing

    def results(self, rdd: Any, leaves: Sequence[Any]) -> Results:
        """Return what an RDD gives; `leaves` are the partitions that get rows for each batch."""
        if self._in_place is not None:
            return self._in_place.results(rdd, leaves)
        replace = [getattr(leaf, "values_$eq") for leaf in leaves]
        return _Job(partial(self._collect, rdd), self._batches, replace, self._nothing)

    def cancel(self) -> None:
        """End from another thread what runs; later calls may fail too."""
        self._context.cancelJobsWithTag(self._tag)
        if self._in_place is not None:
            self._in_place.cancel()


class _Job:
    """See `Results`. The RDD is computed by a job for each batch."""

    def __init__(
        self,
        collect: Callable[[], Any],
        batches: JvmBatches,
        replace: Sequence[Callable[[Any], Any]],
        nothing: Any,
    ) -> None:
        """`replace` has a function for each leaf, which puts rows into it; `nothing` is no rows."""
        self._collect = collect
        self._batches = batches
        self._replace = replace
        self._nothing = nothing

    def of(self, tables: Sequence[pa.Table]) -> list[bytes]:
        """See `Results`. Raises whatever Spark raises."""
        try:
            for replace, table in zip(self._replace, tables, strict=True):
                replace(self._batches.put(table))
            return received(self._collect())
        finally:
            for replace in self._replace:
                replace(self._nothing)  # or Spark would keep the batch in memory
