"""The other threads of a PipelineThread, for work that blocks and for user code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from kafka_pipeline.common.code.user_frames import place_in
from kafka_pipeline.common.errors import escaped
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.thread_events import Event

Job = Callable[[], None]


class UserThread:
    """Runs jobs in the order in which they were submitted; a job must not raise.

    A thread cannot be stopped while it runs user code. An abandoned thread ends when its current
    call returns, if ever, and runs no more jobs.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # A daemon, as it may never end.
        self._thread = threading.Thread(target=self._run, name="user-code", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """Python's id of the thread."""
        assert self._thread.ident is not None, "it was started"
        return self._thread.ident

    def submit(self, job: Job) -> None:
        """Run a job after all jobs that were submitted before it."""
        self._jobs.put(job)

    def abandon(self) -> list[Job]:
        """Leave the thread to its current call; return the jobs that it will not run."""
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


Then = Callable[[Any], Sequence[Event]]
"""Returns the core's events for a result, or for the error raised instead."""

PARALLEL_CALLS = 16
STANDBY_STARTS = 2
_END_WAIT_S = 1.0


class Pool(Enum):
    """The threads that do the work."""

    START = auto()
    """16 threads, separate from those for commits: a commit must not wait for a restore."""
    STANDBY_START = auto()
    """2 threads: copies can wait, whereas tasks need their state at once."""
    COMMIT = auto()
    """16 threads, so that tasks commit in parallel."""
    USER = auto()
    """The thread on which tasks take turns to run user code, or the thread of one task."""


@dataclass(eq=False, slots=True)
class BackgroundWork:
    """Work on another thread; `then` makes the loop's events from its result."""

    then: Then
    pool: Pool
    owner: TaskId | None = None
    """The task whose own thread does the work, in the pool `USER`."""
    late: Callable[[Any], None] = field(default=lambda _: None)
    job: Job = field(default=lambda: None)
    is_abandoned: bool = False
    """Whether nobody waits for it any more, although it has not ended."""


class Background:
    """The other threads of a PipelineThread; only its loop may call methods other than `wake`."""

    def __init__(self) -> None:
        self._done: SimpleQueue[Callable[[], Sequence[Event]]] = SimpleQueue()
        self._under_way: set[BackgroundWork] = set()
        self._user_threads: dict[TaskId | None, UserThread] = {}
        """By the task that has the thread to itself; `None` for the shared thread."""
        self._pools = {
            Pool.START: ThreadPoolExecutor(PARALLEL_CALLS, "start"),
            Pool.STANDBY_START: ThreadPoolExecutor(STANDBY_STARTS, "standby"),
            Pool.COMMIT: ThreadPoolExecutor(PARALLEL_CALLS, "commit"),
        }

    @property
    def is_busy(self) -> bool:
        """Whether any operation is in progress."""
        return bool(self._under_way)

    def submit(
        self,
        pool: Pool,
        work: Callable[[], Any],
        then: Then,
        late: Callable[[Any], None] = lambda _: None,
        owner: TaskId | None = None,
    ) -> BackgroundWork:
        """Run `work` on another thread; `events` later passes its result or error to `then`.

        If the work is abandoned meanwhile, the result or error goes to `late`, on another thread.
        In the pool `USER`, an `owner` gets a thread of its own, which `release` ends.
        """
        operation = BackgroundWork(then, pool, owner, late)
        self._under_way.add(operation)

        def job() -> None:
            try:
                result = work()
            except BaseException as error:
                result = escaped(error)
            self._done.put(partial(self._end, operation, result))

        operation.job = job
        if pool is Pool.USER:
            if owner not in self._user_threads:
                self._user_threads[owner] = UserThread()
            self._user_threads[owner].submit(job)
        else:
            self._pools[pool].submit(job)
        return operation

    def events(self, wait_s: float) -> Iterator[Event]:
        """Yield the events of finished work; if there are none, wait up to `wait_s` for some."""
        while True:
            try:
                done = self._done.get(timeout=wait_s) if wait_s else self._done.get_nowait()
            except Empty:
                return
            wait_s = 0
            yield from done()

    def wake(self, call: Callable[[], Sequence[Event]]) -> None:
        """Have `events` call this and yield the returned events. Any thread may use this method."""
        self._done.put(call)

    def user_line(self, owner: TaskId | None = None) -> str:
        """Return the line of user code that a user thread is at, such as `shop.py:17 in process`.

        Returns "" if that thread, the owner's or the shared one, runs no user code.
        """
        thread = self._user_threads.get(owner)
        return "" if thread is None else place_in(thread.ident)

    def abandon(self, operation: BackgroundWork) -> bool:
        """Stop waiting for an operation; another user thread takes over the work that follows.

        Jobs waiting for the same user thread are dropped. Returns whether the operation is still
        running. If not, it has ended or will never begin, and `late` is not called.
        """
        if operation not in self._under_way:
            return False
        self._under_way.discard(operation)
        operation.is_abandoned = True
        if operation.pool is not Pool.USER:
            return True
        dropped = self._user_threads.pop(operation.owner).abandon()
        self._under_way = {each for each in self._under_way if each.job not in dropped}
        operation.is_abandoned = operation.job not in dropped
        return operation.is_abandoned

    def release(self, owner: TaskId) -> None:
        """End the thread of a task, if it has one, after the submitted jobs."""
        if (thread := self._user_threads.pop(owner, None)) is not None:
            thread.close(0)

    def close(self) -> None:
        """End the threads: wait for commits, at most a second for user code, never for starts."""
        for pool, executor in self._pools.items():
            executor.shutdown(wait=pool is Pool.COMMIT, cancel_futures=True)
        end_s = time.monotonic() + _END_WAIT_S
        for thread in self._user_threads.values():
            thread.close(max(end_s - time.monotonic(), 0))

    def _end(self, operation: BackgroundWork, result: Any) -> Sequence[Event]:
        if operation in self._under_way:
            self._under_way.discard(operation)
            return operation.then(result)
        operation.is_abandoned = False
        self._pools[Pool.START].submit(operation.late, result)
        return ()
