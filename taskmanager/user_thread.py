"""A Python thread on which user code runs: one call after another, and replaceable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Job = Callable[[], None]


class UserThread:
    """Runs jobs in the order in which they come; each must not raise.

    A thread cannot be stopped while it runs user code. An abandoned thread ends when its call
    returns, if that ever happens, and runs no more jobs.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon, as it may never end.
        self._thread = threading.Thread(target=self._run, name="user-code", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """Python's number of the thread."""
        assert self._thread.ident is not None, "it was started"
        return self._thread.ident

    def submit(self, job: Job) -> None:
        """Run a job after all jobs that were submitted before it."""
        self._jobs.put(job)

    def abandon(self) -> list[Job]:
        """Leave the thread to its present call; return the jobs that it will not begin."""
        dropped = []
        try:
            while (job := self._jobs.get_nowait()) is not None:
                dropped.append(job)
        except Empty:
            pass
        self._jobs.put(None)
        return dropped

    def close(self, timeout_s: float) -> None:
        """End the thread when its jobs are done; wait up to `timeout_s` for that."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
