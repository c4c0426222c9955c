"""The Python thread on which user code runs: one call after another, and replaceable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Job = Callable[[], None]


class UserThread:
    """Runs jobs in the order in which they come; each must not raise.

    A thread cannot be ended while it runs user code. One that is abandoned ends when its call
    returns, if it ever does, and runs nothing more.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon, as it may never end.
        self._thread = threading.Thread(target=self._run, name="user-code", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run a job after those that were submitted before."""
        self._jobs.put(job)

    def abandon(self) -> list[Job]:
        """Leave the thread to the call that it is in; return the jobs that it will not begin."""
        dropped = []
        try:
            while (job := self._jobs.get_nowait()) is not None:
                dropped.append(job)
        except Empty:
            pass
        self._jobs.put(None)
        return dropped

    def close(self, timeout_s: float) -> None:
        """End the thread when its jobs are done; wait for that, but not longer than `timeout_s`."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
