"""Threads for calls that may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

IDLE_S = 10.0

T = TypeVar("T")
_Jobs = SimpleQueue[Callable[[], None]]


class SpareThreads:
    """Makes each call on a thread of its own, which is reused once the call has returned.

    A call that never returns costs one thread, and delays no other call. A thread ends after ten
    idle seconds, so there is nothing to close. All threads are daemons.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Jobs] = []
        """The queues from which idle threads get their calls; the last one is used next."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Start a call at once. May be called from any thread."""
        future = Future[T]()
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is None:
            jobs = SimpleQueue()
            threading.Thread(target=self._work, args=(jobs,), name=self._name, daemon=True).start()
        jobs.put(partial(self._make, call, future, jobs))
        return future

    def _make(self, call: Callable[[], T], future: Future[T], jobs: _Jobs) -> None:
        try:
            result = call()
        except BaseException as error:
            self._await_next(jobs)
            future.set_exception(error)
        else:
            self._await_next(jobs)
            future.set_result(result)

    def _await_next(self, jobs: _Jobs) -> None:
        """Mark this thread as idle before the caller continues: it may need a thread at once."""
        with self._lock:
            self._idle.append(jobs)

    def _work(self, jobs: _Jobs) -> None:
        while True:
            try:
                jobs.get(timeout=IDLE_S)()
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
