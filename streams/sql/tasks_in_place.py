"""Computes RDDs in the thread that asks for them, as tasks of Spark would, but without a job.

A job costs some milliseconds that a small batch does not need. Spark serializes the plan, stores it
as blocks and hands it from thread to thread, and the executor reads all of it again. Here, the
plan's own objects compute the partitions, and a small batch is one call of py4j. Works on Spark 4.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.java_class import java_class
from kafka_pipeline.streams.sql.jvm_batches import JvmBatches, are_small, cut, framed
from kafka_pipeline.streams.sql.spec import SparkLostError

_MOST_IN_ANSWER = 8000
"""The characters in one answer. py4j writes longer ones in pieces of 8,192 bytes, and the second
one then waits until the first is acknowledged, which takes Linux 40 ms."""


class TasksInPlace:
    """Computes RDDs of one query in the driver's process, in one thread at a time."""

    def __init__(self, session: SparkSession, batches: JvmBatches) -> None:
        self._jvm: Any = session._jvm
        self._batches = batches
        self._tasks = java_class(self._jvm, "TasksInPlace").newInstance()
        self.is_cancelled = False

    @property
    def memory_used(self) -> int:
        """The bytes that tasks of all queries have of Spark's memory in this process."""
        used: int = self._tasks.memoryUsed()
        return used

    def results(self, rdd: Any, leaves: Sequence[Any]) -> PlanInPlace:
        """See `PlanRunner`. The RDD must not depend on a shuffle: only a job has one."""
        given = self._jvm.java.util.ArrayList()
        for leaf in leaves:
            given.add(leaf)
        return PlanInPlace(self, self._tasks.plan(rdd, given), self._batches)

    def cancel(self) -> None:
        """End from another thread what is computed; later calls fail too."""
        self.is_cancelled = True
        self._tasks.cancel()


class PlanInPlace:
    """See `Results`. Small tables, and what becomes of them, are part of calls."""

    def __init__(self, tasks: TasksInPlace, plan: Any, batches: JvmBatches) -> None:
        self._tasks = tasks
        self._plan = plan
        self._run = plan.run
        # py4j would ask each of its converters about each argument: a fifth of what a batch of few
        # records takes in this process. Bytes and numbers need none.
        self._run.converters = None
        self._batches = batches

    def of(self, tables: Sequence[pa.Table]) -> list[bytes]:
        """See `Results`. Raises what the RDD raises, and `SparkLostError` once it is cancelled."""
        try:
            if are_small(tables):
                return self._in_calls(tables)
            return self._through_sockets(tables)
        except Exception as error:
            if self._tasks.is_cancelled:
                raise SparkLostError("the query was cancelled") from error
            raise

    def _in_calls(self, tables: Sequence[pa.Table]) -> list[bytes]:
        parts: list[str] = [self._run(framed(tables), _MOST_IN_ANSWER)]
        while len(parts[-1]) == _MOST_IN_ANSWER:
            parts.append(self._plan.more(_MOST_IN_ANSWER))
        return cut(b64decode("".join(parts)))

    def _through_sockets(self, tables: Sequence[pa.Table]) -> list[bytes]:
        for leaf, table in enumerate(tables):
            self._plan.put(leaf, self._batches.put(table))
        return self._batches.served(self._plan.compute())
