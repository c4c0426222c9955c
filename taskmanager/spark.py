"""Spark under the TaskManager: one long-running, single-task job per PipelineThread.

In the TaskManager, only this module imports pyspark.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from pyspark import TaskContext

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.spark.start import ship_code, start_spark
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.taskmanager.spark_settings import SparkSettings, unguarded

_STOP_TIMEOUT_S = 2.0
_WHY_WORKERS_END = "It was killed, perhaps because memory ran out, or a library aborted it."

Body = Callable[[Iterable[int]], Iterator[int]]
"""The function that runs in a Spark task, over the elements of its partition."""

logger = structlog.get_logger()


class SparkRunner:
    """The Spark session of one TaskManager, and the jobs in which its PipelineThreads run."""

    def __init__(self, config: Config, tm_id: int, settings: SparkSettings) -> None:
        """Start Spark, which takes some seconds; on a cluster, ship the engine and the user's code.

        `prepare_spark` comes first. Raises `UnavailableError` if Spark does not start.
        """
        self._tm_id = tm_id
        self._no_queries = settings.no_queries
        self._stopping = False
        self._was_ended = False
        self._jobs: dict[int, threading.Thread] = {}
        if missing := unguarded(settings.values):
            logger.warning(
                "others can read what Spark sends to the executors and what these write to their "
                "disks, including the passwords of config.yaml: set these settings to true under "
                "spark: {conf}, see docs/how-to/deploy.md",
                settings=missing,
                master=config.spark.master,
            )
        self._session = start_spark(config, f"TaskManager {tm_id}", settings.values)
        self._context = self._session.sparkContext
        files = ship_code(self._session, config)
        if files:
            logger.info(
                "code shipped to the executors",
                files=files,
                application=self._context.applicationId,
            )

    @property
    def driver_host(self) -> str:
        """The address at which workers reach this process."""
        return str(self._context.getConf().get("spark.driver.host"))

    @property
    def bind_host(self) -> str:
        """This host's listening address; not `driver_host` behind a service or a NAT."""
        return str(self._context.getConf().get("spark.driver.bindAddress", self.driver_host))

    @property
    def executors(self) -> int:
        """The current number of Spark's executors; 0 with a local master."""
        return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def queries(self, code: UserCode, readable: Readable) -> SparkQueries:
        """Return the runner of tasks' queries; `code` has the functions that they may call."""
        return SparkQueries(self._session, code, readable, self._no_queries)

    @property
    def is_alive(self) -> bool:
        """Whether Spark's JVM and its application still run; a master may end the latter."""
        gateway = self._context._gateway
        has_jvm = gateway is None or gateway.proc is None or gateway.proc.poll() is None
        return has_jvm and not self._was_ended

    def launch(
        self,
        thread: int,
        tasks: Sequence[TaskId],
        body: Body,
        on_end: Callable[[str | None], None],
    ) -> None:
        """Run `body` in its own Spark task; returns at once.

        Spark's UI shows the thread with its current `tasks`, and later changes do not show: Spark
        reads a job's description only when the job starts. When the task has ended, another thread
        calls `on_end`, with the reason unless the task returned.
        """

        def run() -> None:
            reason = None
            try:
                name = description(self._tm_id, thread, tasks)
                self._context.setJobGroup(_group(thread), name)
                self._context.parallelize([thread], 1).mapPartitions(_once(body)).collect()
            except Exception as error:
                reason = _summary(error)
                self._was_ended = self._has_ended()
            if not self._stopping:
                on_end(reason)

        job = threading.Thread(target=run, name=f"spark-{thread}", daemon=True)
        self._jobs[thread] = job
        job.start()

    def cancel(self, thread: int) -> None:
        """Give up a thread's job, whatever its worker is doing; `on_end` is called."""
        self._context.cancelJobGroup(_group(thread))

    def stop(self) -> None:
        """End all jobs and Spark itself; blocks for one to three seconds."""
        self._stopping = True
        # A job that has just ended still reports to Spark, and logs errors if Spark is gone.
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for job in self._jobs.values():
            job.join(max(deadline_s - time.monotonic(), 0))
        if self.is_alive:
            # A thread that is just starting cannot be stopped, and its errors then mean nothing.
            self._context.setLogLevel("OFF")
            self._session.stop()

    def _has_ended(self) -> bool:
        try:
            return bool(self._context._jsc.sc().isStopped())
        except Exception:  # The JVM is gone, or PySpark has noticed that it is.
            return True


def description(tm_id: int, thread: int, tasks: Sequence[TaskId] = ()) -> str:
    """Return the description of a PipelineThread for Spark's UI."""
    names = [
        f"{task.processor}#{task.partition}" + (" (standby)" if task.standby else "")
        for task in tasks
    ]
    parts = [f"TaskManager {tm_id}", f"thread {thread}", ", ".join(names)]
    return " · ".join(filter(None, parts))


def _group(thread: int) -> str:
    return f"thread {thread}"


def _once(body: Body) -> Body:
    """Refuse Spark's own retries, which it makes if it blames the host for a lost executor.

    The TaskManager must learn of the loss; it starts the thread again.
    """

    def checked(elements: Iterable[int]) -> Iterator[int]:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise RuntimeError("the executor was lost")
        return body(elements)

    return checked


def _summary(error: Exception) -> str:
    """Return the most telling line of a Spark error: the last one before Java's stack."""
    message = str(error).split("\n\tat ")[0]
    # Spark's advice is about settings of queries; this worker runs tasks.
    message = re.sub(r"Consider setting 'spark\..*faulthandler.*", _WHY_WORKERS_END, message)
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][-300:]
