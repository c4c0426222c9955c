"""Computes RDDs in the thread that asks for them, as tasks of Spark would, but without a job.

A job costs some milliseconds that a small batch does not need. Spark serializes the plan, stores it
as blocks and hands it from thread to thread, and the executor reads all of it again. Here, the
plan's own objects compute the partitions. Works through py4j, on Spark 4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.catalyst import scala_object
from kafka_pipeline.streams.sql.spec import SparkLostError

T = TypeVar("T")

_CANCELLED = "the query was cancelled"
_NUMBERS = count(1)
_NO_TASK = -1024
"""Spark's `BlockInfo.NON_TASK_WRITER`."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """An RDD and its partitions, by their indexes."""

    rdd: Any
    partitions: Sequence[Any]

    @classmethod
    def of(cls, rdd: Any) -> Partitions:
        """Take the partitions of an RDD, which must not depend on a shuffle: only a job has one."""
        return cls(rdd, [*rdd.partitions()])


class TasksInPlace:
    """Computes RDDs of one query in the driver's process, in one thread at a time."""

    def __init__(self, session: SparkSession) -> None:
        # Looked up once: each name of a package or class is a call to the JVM.
        jvm: Any = session._jvm
        spark = jvm.org.apache.spark
        self._memory = _memory_manager(session)
        self._current = scala_object(spark, "TaskContext")
        self._new_memory = spark.memory.TaskMemoryManager
        self._java_thread = jvm.java.lang.Thread.currentThread
        self._no_error = jvm.scala.Option.empty()
        self._properties = session._jsparkSession.sparkContext().getLocalProperties
        self._of_thread = threading.local()
        self._new_context = _NewContext(session)
        # The ids of Spark's tasks count up from 0.
        self._memory_id = -next(_NUMBERS)
        self._task_memory = self._new_memory(self._memory, self._memory_id)
        self._lock = threading.Lock()
        self._running: Any = None
        """The context of the task that runs."""
        self._runs_in: Any = None
        """The thread of the JVM that it runs in."""
        self._is_cancelled = False

    def compute(self, results: Partitions, take: Callable[[Any], T]) -> Sequence[T]:
        """Return what `take` makes of each partition, an Iterator of Scala that computes the items.

        Raises what the RDD raises, and `SparkLostError` once the query was cancelled.
        """
        return [
            self._computed(results.rdd, partition, index, take)
            for index, partition in enumerate(results.partitions)
        ]

    def cancel(self) -> None:
        """End a call of `compute` from another thread; later calls fail too."""
        with self._lock:
            self._is_cancelled = True
            if self._running is not None:
                self._running.markInterrupted(_CANCELLED)
                self._runs_in.interrupt()

    def _computed(self, rdd: Any, partition: Any, index: int, take: Callable[[Any], T]) -> T:
        """Compute a partition, by the steps of Spark's `TaskRunner` and `Task.run`."""
        thread, properties = self._thread()
        context = self._new_context(index, self._task_memory, properties)
        self._current.setTaskContext(context)
        try:
            self._note(context, thread)
            try:
                return take(rdd.iterator(partition, context))
            finally:
                self._note(None, None)
                context.markTaskCompleted(self._no_error)
        except Exception as error:
            if self._is_cancelled:
                raise SparkLostError(_CANCELLED) from error
            raise
        finally:
            self._current.unset()
            if self._task_memory.cleanUpAllAllocatedMemory():
                # It still counts the pages that operators have not released, as after an error.
                self._task_memory = self._new_memory(self._memory, self._memory_id)

    def _thread(self) -> tuple[Any, Any]:
        """Return the thread of the JVM that this one's calls run in, and its local properties."""
        found: tuple[Any, Any] | None = getattr(self._of_thread, "found", None)
        if found is None:
            found = self._of_thread.found = self._java_thread(), self._properties()
        return found

    def _note(self, context: Any, thread: Any) -> None:
        with self._lock:
            if self._is_cancelled and context is not None:
                raise SparkLostError(_CANCELLED)
            self._running, self._runs_in = context, thread


class _NewContext:
    """Makes contexts of tasks that are not part of a job.

    Their constructor takes a BigDecimal of Scala, the number of cores, which py4j turns into an int
    of Python. So a method handle turns it back.
    """

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        invoke, find_class = jvm.java.lang.invoke, jvm.java.lang.Class.forName
        int_, long, void = (
            getattr(jvm.java.lang, name).TYPE for name in ("Integer", "Long", "Void")
        )
        decimal = find_class("scala.math.BigDecimal")
        names = (
            "org.apache.spark.memory.TaskMemoryManager",
            "java.util.Properties",
            "org.apache.spark.metrics.MetricsSystem",
            "org.apache.spark.executor.TaskMetrics",
        )
        others = [decimal, find_class("scala.collection.immutable.Map")]
        types = [int_, int_, int_, long, int_, int_, *map(find_class, names), *others]
        lookup = invoke.MethodHandles.publicLookup()
        constructor = lookup.findConstructor(
            find_class("org.apache.spark.TaskContextImpl"),
            invoke.MethodType.methodType(void, _listed(jvm, types)),
        )
        to_decimal = lookup.findStatic(
            decimal, "int2bigDecimal", invoke.MethodType.methodType(decimal, _listed(jvm, [int_]))
        )
        gateway: Any = session.sparkContext._gateway
        filters = gateway.new_array(invoke.MethodHandle, 1)
        filters[0] = to_decimal
        self._new = invoke.MethodHandles.filterArguments(constructor, len(types) - 2, filters)
        metrics = jvm.org.apache.spark.executor.TaskMetrics.empty()
        resources = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        # Stage, attempt, partition, task, attempt, partitions … and the cores. With this id, blocks
        # of broadcasts are locked as by other threads of the driver, whose locks Spark also counts.
        values = [0, 0, 0, _NO_TASK, 0, 1, None, None, None, metrics, 1, resources]
        self._values = _listed(jvm, values)
        self._given: dict[int, Any] = {}
        """What was put among the values."""

    def __call__(self, partition: int, memory: Any, properties: Any) -> Any:
        """Return the context of a task that computes the partition with this index."""
        for place, value in ((2, partition), (6, memory), (7, properties)):
            if value is not self._given.get(place):
                self._given[place] = value
                self._values.set(place, value)
        return self._new.invokeWithArguments(self._values)


def _memory_manager(session: SparkSession) -> Any:
    """Return what Spark's tasks in this process share their memory by.

    py4j looks at all methods of a class to call one. PySpark does not have all classes that those
    of SparkEnv name, such as protobuf's. A method handle names its method.
    """
    jvm: Any = session._jvm
    invoke, find_class = jvm.java.lang.invoke, jvm.java.lang.Class.forName
    found = invoke.MethodType.methodType(find_class("org.apache.spark.memory.MemoryManager"))
    lookup = invoke.MethodHandles.publicLookup()
    method = lookup.findVirtual(find_class("org.apache.spark.SparkEnv"), "memoryManager", found)
    return method.invokeWithArguments(_listed(jvm, [session._jsparkSession.sparkContext().env()]))


def _listed(jvm: Any, values: Sequence[Any]) -> Any:
    listed = jvm.java.util.ArrayList()
    for value in values:
        listed.add(value)
    return listed
