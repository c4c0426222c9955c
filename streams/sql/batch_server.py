"""The driver's side of `java/BatchServer.java`: starts it in Spark's JVM, and adds plans.

A job costs some milliseconds that a small batch does not need. Spark serializes the plan, stores it
as blocks and hands it from thread to thread, and the executor reads all of it again. With a local
master, the plan's own objects compute the partitions instead. Works on Spark 4.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID
from pyspark.sql import SparkSession

from kafka_pipeline.streams.spark.private_folder import private_folder
from kafka_pipeline.streams.sql.java_class import java_class
from kafka_pipeline.streams.sql.plan_calls import BatchSocket, PlanInJvm

_LONGEST_PARENT = 70
"""How many bytes may precede the name of the socket's folder; Linux takes 107 in all, macOS 103."""

_servers: WeakKeyDictionary[Any, BatchServer] = WeakKeyDictionary()
_lock = threading.Lock()


class BatchServer:
    """The server of a JVM, and this process's connections to it."""

    def __init__(self, jvm: Any) -> None:
        """Start it, in a folder that only this user may enter."""
        parent = tempfile.gettempdir()
        is_short = len(os.fsencode(parent)) <= _LONGEST_PARENT
        self.path = str(private_folder(parent if is_short else "/tmp") / "socket")
        self.java = java_class(jvm, "BatchServer").newInstance()
        gateway = JavaObject(GATEWAY_SERVER_OBJECT_ID, jvm._gateway_client).getGateway()
        self.java.listen(gateway, self.path)
        self._idle: deque[BatchSocket] = deque()

    @staticmethod
    def of(jvm: Any) -> BatchServer:
        """Return the server of a JVM, which has one."""
        with _lock:
            if jvm not in _servers:
                _servers[jvm] = BatchServer(jvm)
            return _servers[jvm]

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`. Any thread may ask."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = BatchSocket(self.path)
        try:
            answer = connection.ask(request)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer


class QueryPlans:
    """The plans of one query in the JVM, which computes one of them at a time."""

    def __init__(self, session: SparkSession, tag: str) -> None:
        """The jobs of the query, with which its tables are read too, have the tag `tag`."""
        self._context = session.sparkContext
        self._tag = tag
        self._jvm: Any = session._jvm
        self._server = BatchServer.of(self._jvm)
        self._is_local = bool(session._jsparkSession.sparkContext().isLocal())
        self._java = self._server.java.query(self._is_local)

    @property
    def socket_path(self) -> str:
        """The path of the socket that takes batches; "" unless workers are on this host."""
        return self._server.path if self._is_local else ""

    def ask(self, request: bytes | memoryview) -> memoryview:
        """See `Ask`."""
        return self._server.ask(request)

    @property
    def memory_used(self) -> int:
        """The bytes that tasks of all queries have of Spark's memory in this process."""
        used: int = self._java.memoryUsed()
        return used

    def add(self, rdd: Any, leaves: Sequence[Any]) -> PlanInJvm:
        """Return the plan of an RDD, whose `leaves` are partitions that get rows for each batch.

        Its tasks have the settings that this thread has now. With a local master, the RDD must not
        depend on a shuffle: only a job has one.
        """
        given = self._jvm.java.util.ArrayList()
        for leaf in leaves:
            given.add(leaf)
        return _KeptPlan(self._java.plan(rdd, given), self._server)

    def cancel(self) -> None:
        """End from another thread what runs; later calls fail too."""
        self._context.cancelJobsWithTag(self._tag)
        self._java.cancel()


class _KeptPlan(PlanInJvm):
    """A plan that the JVM forgets when this process does."""

    def __init__(self, java: Any, server: BatchServer) -> None:
        super().__init__(java._get_object_id(), server.ask)
        self._java = java
