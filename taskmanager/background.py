"""What a PipelineThread's loop has other threads do, and how it learns that they have."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from taskmanager.user_thread import Job, UserThread

PARALLEL_CALLS = 16
STANDBY_STARTS = 2
_END_WAIT_S = 1.0


class Pool(Enum):
    """Who does it."""

    START = auto()
    """One of 16: a commit must not wait for a restore."""
    STANDBY_START = auto()
    """One of 2: copies can wait for those who need the state at once."""
    COMMIT = auto()
    """One of 16, so that tasks commit side by side."""
    USER = auto()
    """The only one that runs the turns of user code."""


@dataclass(eq=False, slots=True)
class Operation:
    """Something that another thread does; `then` is called by the loop, with what it returned."""

    then: Callable[[Any], None]
    pool: Pool
    late: Callable[[Any], None] = field(default=lambda _: None)
    job: Job = field(default=lambda: None)


class Background:
    """Other threads at work for a PipelineThread's loop. The loop makes all calls but `wake`."""

    def __init__(self) -> None:
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._under_way: set[Operation] = set()
        self._user_thread = UserThread()
        self._pools = {
            Pool.START: ThreadPoolExecutor(PARALLEL_CALLS, "start"),
            Pool.STANDBY_START: ThreadPoolExecutor(STANDBY_STARTS, "standby"),
            Pool.COMMIT: ThreadPoolExecutor(PARALLEL_CALLS, "commit"),
        }

    @property
    def is_busy(self) -> bool:
        """Whether anything goes on."""
        return bool(self._under_way)

    def submit(
        self,
        pool: Pool,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        late: Callable[[Any], None] = lambda _: None,
    ) -> Operation:
        """Have something done; `settle` calls `then` with what it returned, or the exception.

        If it was abandoned meanwhile, another thread calls `late` with that instead.
        """
        operation = Operation(then, pool, late)
        self._under_way.add(operation)

        def job() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            self._done.put(partial(self._end, operation, result))

        operation.job = job
        if pool is Pool.USER:
            self._user_thread.submit(job)
        else:
            self._pools[pool].submit(job)
        return operation

    def settle(self, wait_s: float) -> None:
        """Deal with what was done; wait up to `wait_s` for it if there is none yet."""
        try:
            self._done.get(timeout=wait_s)() if wait_s else self._done.get_nowait()()
            while True:
                self._done.get_nowait()()
        except Empty:
            pass

    def wake(self, call: Callable[[], None]) -> None:
        """Let `settle` make a call. May be called by any thread."""
        self._done.put(call)

    def abandon(self, operation: Operation) -> bool:
        """Wait for an operation no longer; another user thread takes over what is to come.

        What waits for the same user thread is dropped. Returns whether the operation goes on: if
        not, it has ended, or will never begin, and `late` is not called.
        """
        if operation not in self._under_way:
            return False
        self._under_way.discard(operation)
        if operation.pool is not Pool.USER:
            return True
        dropped = self._user_thread.abandon()
        self._user_thread = UserThread()
        self._under_way = {each for each in self._under_way if each.job not in dropped}
        return operation.job not in dropped

    def close(self) -> None:
        """End the threads; wait for commits, a second at most for user code, never for starts."""
        for pool, executor in self._pools.items():
            executor.shutdown(wait=pool is Pool.COMMIT, cancel_futures=True)
        self._user_thread.close(_END_WAIT_S)

    def _end(self, operation: Operation, result: Any) -> None:
        if operation in self._under_way:
            self._under_way.discard(operation)
            operation.then(result)
        else:
            self._pools[Pool.START].submit(operation.late, result)
