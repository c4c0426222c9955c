"""The number of files that the processes of a TaskManager may open, and that they need."""

from __future__ import annotations

import resource

import structlog

# Measured with one broker: 328 for Spark's JVM, of which 284 are its jars.
_SPARK = 400
# Measured with one broker: 20 for a worker, 8 for a task, 6 more for each of its stores. Further
# brokers, and files that RocksDB has not compacted yet, need more.
_WORKER = 100
_TASK = 20
_THREAD = 20


class OpenFiles:
    """The limit of this process and its children; warns once if it is too low."""

    def __init__(self, threads: int, limit: int) -> None:
        self._threads = threads
        self._limit = limit
        self._log = structlog.get_logger()
        self._was_told = limit == resource.RLIM_INFINITY

    def check(self, tasks: int) -> None:
        """Log a warning if the limit is too low for this total of tasks on all PipelineThreads."""
        need = needed(self._threads, tasks)
        if self._was_told or need <= self._limit:
            return
        self._was_told = True
        self._log.warning(
            "the limit of open files is too low: raise it (`ulimit -n`, or LimitNOFILE of systemd)",
            limit=self._limit,
            needed=need,
            tasks=tasks,
            threads=self._threads,
        )


def needed(threads: int, tasks: int) -> int:
    """Return the limit that a TaskManager needs when its PipelineThreads share its tasks evenly.

    The limit applies to each process, so the largest process counts. That is Spark's JVM, with some
    files for each thread, or the worker of the thread with the most tasks.
    """
    most = -(-tasks // threads)
    return max(_SPARK + _THREAD * threads, _WORKER + _TASK * most)
