"""Spark under the TaskManager: one long-running, single-task job per PipelineThread.

Together with the package `streams.spark`, all that imports pyspark.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from common.config import SparkConfig
from common.errors import ConfigError, UnavailableError
from streams.spark.environment import LOG_SETTINGS, set_environment
from streams.spark.queries import SparkQueries
from streams.user_code import UserCode

SLOTS_PER_THREAD = 2
"""One for the PipelineThread, which never ends, and one for the queries of its tasks."""

_LOCAL = re.compile(r"local(?:\[(\*|[0-9]+)(?:\s*,\s*[0-9]+)?\])?")
# No record passes through the JVM but those of queries. With the second compiler (C2), batches took
# more CPU time in their first minute: 10 records 47 ms against 29, 100,000 records 69 against 57.
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_STOP_TIMEOUT_S = 2.0

logger = structlog.get_logger()


class SparkRunner:
    """The Spark session of one TaskManager, and the jobs that its PipelineThreads live in."""

    def __init__(
        self, config: SparkConfig, tm_id: int, threads: int, python_path: Sequence[Path] = ()
    ) -> None:
        """Start Spark, which takes some seconds.

        Raises `UnavailableError` without Java 17 or if Spark does not start, `ConfigError` for a
        local master with fewer slots than `threads`.
        """
        set_environment(python_path)
        self._tm_id = tm_id
        builder = SparkSession.builder.appName(f"TaskManager {tm_id}")
        settings = _settings(config, threads)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            self._session = builder.getOrCreate()
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise UnavailableError(
                f"Spark does not start with master {settings['spark.master']}: {reason}"
            ) from error
        self._context = self._session.sparkContext
        slots = self._context.defaultParallelism
        is_full = _LOCAL.fullmatch(settings["spark.master"]) is not None and slots <= threads
        self._no_slot = (
            f"spark.master {settings['spark.master']} of config.yaml leaves no slot for queries "
            f"beside {threads} threads: use local[*] or local[{SLOTS_PER_THREAD * threads}]"
            if is_full
            else ""
        )
        self._stopping = False
        self._jobs: dict[int, threading.Thread] = {}

    @property
    def driver_host(self) -> str:
        """The address at which workers reach this process."""
        return str(self._context.getConf().get("spark.driver.host"))

    def queries(self, code: UserCode) -> SparkQueries:
        """Return what runs queries of tasks here; `code` has the functions that they may call."""
        return SparkQueries(self._session, code, self._no_slot)

    @property
    def is_alive(self) -> bool:
        """Whether the JVM that was started for this session still runs."""
        gateway = self._context._gateway
        return gateway is None or gateway.proc is None or gateway.proc.poll() is None

    def launch(
        self,
        thread: int,
        body: Callable[[Iterable[int]], Iterator[int]],
        on_end: Callable[[str | None], None],
    ) -> None:
        """Run `body` in a Spark task of its own; returns at once.

        `on_end` is called from another thread when the task has ended, with the reason if that
        was not by returning.
        """

        def run() -> None:
            reason = None
            try:
                self._context.setJobDescription(f"TaskManager {self._tm_id} · thread {thread}")
                self._context.parallelize([thread], 1).mapPartitions(body).collect()
            except Exception as error:
                reason = _summary(error)
            if not self._stopping:
                on_end(reason)

        job = threading.Thread(target=run, name=f"spark-{thread}", daemon=True)
        self._jobs[thread] = job
        job.start()

    def stop(self) -> None:
        """End all jobs and Spark itself; blocks for one to three seconds."""
        self._stopping = True
        # A job that has just ended still reports to Spark, and complains if that is gone.
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for job in self._jobs.values():
            job.join(max(deadline_s - time.monotonic(), 0))
        if self.is_alive:
            self._session.stop()


def _settings(config: SparkConfig, threads: int) -> dict[str, str]:
    master = config.master
    local = _LOCAL.fullmatch(master)
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if local:
        slots = local[1] or "1"
        if slots == "*":
            master = f"local[{max(SLOTS_PER_THREAD * threads, os.cpu_count() or 1)}]"
        elif int(slots) < threads:
            raise ConfigError(
                f"spark.master {master} has {slots} slots, but {threads} threads need one each: "
                f"use local[*] or local[{SLOTS_PER_THREAD * threads}]"
            )
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings | {
        "spark.driver.extraJavaOptions": (
            f"{_SMALL_JVM} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
        ),
        **config.conf,
        "spark.master": master,
        # A PipelineThread that ends is started again by the TaskManager, which knows its tasks.
        "spark.task.maxFailures": "1",
        # A second copy of a task would fence the first one.
        "spark.speculation": "false",
    }


def _summary(error: Exception) -> str:
    """Return the line of a Spark error that says most: the last one before Java's stack."""
    message = str(error).split("\n\tat ")[0]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][-300:]
