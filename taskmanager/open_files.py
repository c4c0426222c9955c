"""The number of files that the processes of a TaskManager may open, and that they need."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from kafka_pipeline.common.errors import UnavailableError

# Measured with one broker: 328 for Spark's JVM, of which 284 are its jars.
_SPARK = 400
# Measured with one broker: 20 for a worker, 8 for a task, 6 more for each of its stores. Further
# brokers, and files that RocksDB has not compacted yet, need more.
_WORKER = 100
_TASK = 20
_THREAD = 20

_REMEDY = "raise it (`ulimit -n`, or LimitNOFILE of systemd)"
AT_ITS_LIMIT = f"the process has reached its limit of open files and sockets: {_REMEDY}"


class OpenFiles:
    """The limit of this process and its children; warns once if it is too low."""

    def __init__(self, threads: int, limit: int) -> None:
        self._threads = threads
        self._limit = limit
        self._log = structlog.get_logger()
        self._was_told = False

    def check(self, tasks: int) -> None:
        """Log a warning if the limit is too low for this total of tasks on all PipelineThreads."""
        need = self._lacking(tasks)
        if self._was_told or not need:
            return
        self._was_told = True
        self._log.warning(
            f"the limit of open files is too low: {_REMEDY}",
            limit=self._limit,
            needed=need,
            tasks=tasks,
            threads=self._threads,
        )

    @contextmanager
    def for_spark(self) -> Iterator[None]:
        """Check the limit for Spark's JVM; add it to an `UnavailableError` if it is too low.

        What Spark and Java say themselves is often about something else.
        """
        self.check(tasks=0)
        try:
            yield
        except UnavailableError as error:
            need = self._lacking(tasks=0)
            if not need:
                raise
            raise UnavailableError(
                f"{error}\nThe limit of open files is {self._limit}, and {need} are needed: "
                f"{_REMEDY}"
            ) from error

    def _lacking(self, tasks: int) -> int:
        """Return the limit that this total of tasks needs if the present one is too low, else 0."""
        need = needed(self._threads, tasks)
        return 0 if self._limit == resource.RLIM_INFINITY or need <= self._limit else need


def want_of_files() -> str:
    """Return what to do if this process cannot open one more file or socket, or "".

    librdkafka only logs that, and its calls time out.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            return AT_ITS_LIMIT
        if error.errno == errno.ENFILE:
            return "the host has reached its limit of open files: raise fs.file-max"
    return ""


def needed(threads: int, tasks: int) -> int:
    """Return the limit that a TaskManager needs when its PipelineThreads share its tasks evenly.

    The limit applies to each process, so the largest process counts. That is Spark's JVM, with some
    files for each thread, or the worker of the thread with the most tasks.
    """
    most = -(-tasks // threads)
    return max(_SPARK + _THREAD * threads, _WORKER + _TASK * most)
