"""Replaces a worker's other threads and event loop: their work runs in sequence, without threads.

The world chooses when queued work begins. Other owners may interrupt it, and its result is
delivered later still. So the loop sees the same orders of events as with real threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.taskmanager.background import Background, BackgroundWork, Pool, Then
from kafka_pipeline.taskmanager.thread_events import Event
from tests.memory.clock import Clock

T = TypeVar("T")

_INSIDE_A_WAIT = 0.3
"""How often work runs while the loop waits for it, and not concurrently with the loop."""
_TICK_S = 0.01


@dataclass(eq=False, slots=True)
class _Line:
    """The jobs of one thread, or of all threads of a pool."""

    jobs: deque[Callable[[], None]] = field(default_factory=deque)
    is_single: bool = False
    is_running: bool = False


class BackgroundInTurn(Background):
    """A `Background` that works when `run` is called; `events` delivers some results."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._results: deque[Callable[[], Sequence[Event]]] = deque()
        self._open: set[BackgroundWork] = set()
        self._lines: dict[tuple[Pool, TaskId | None], _Line] = {
            (pool, None): _Line() for pool in Pool if pool is not Pool.USER
        }

    @property
    def is_busy(self) -> bool:
        """See `Background.is_busy`."""
        return bool(self._open)

    def user_line(self, owner: TaskId | None = None) -> str:
        """See `Background.user_line`; there is no thread for user code."""
        return ""

    @property
    def can_run(self) -> bool:
        """Whether any work can begin now."""
        return bool(self._ready())

    def run(self) -> None:
        """Do one piece of work."""
        line = self._random.choice(self._ready())
        job = line.jobs.popleft()
        was_running, line.is_running = line.is_running, True
        try:
            job()
        finally:
            line.is_running = was_running

    def submit(
        self,
        pool: Pool,
        work: Callable[[], Any],
        then: Then,
        late: Callable[[Any], None] = lambda _: None,
        owner: TaskId | None = None,
    ) -> BackgroundWork:
        """See `Background.submit`."""
        operation = BackgroundWork(then, pool, owner, late)
        self._open.add(operation)

        def job() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            self._results.append(partial(self._finish, operation, result))

        operation.job = job
        line = self._lines.setdefault((pool, owner), _Line(is_single=True))
        line.jobs.append(job)
        return operation

    def events(self, wait_s: float) -> Iterator[Event]:
        """See `Background.events`; it may deliver a part, as if the rest came just after."""
        if wait_s and not self._results:
            if self.can_run and self._random.random() < _INSIDE_A_WAIT:
                self.run()
            else:
                self._clock.advance(wait_s)
        if self._results:
            for _ in range(self._random.randint(1, len(self._results))):
                yield from self._results.popleft()()

    def wake(self, call: Callable[[], Sequence[Event]]) -> None:
        """See `Background.wake`."""
        self._results.append(call)

    def abandon(self, operation: BackgroundWork) -> bool:
        """See `Background.abandon`."""
        if operation not in self._open:
            return False
        self._open.discard(operation)
        operation.is_abandoned = True
        if operation.pool is not Pool.USER:
            return True
        dropped = self._lines.pop((Pool.USER, operation.owner)).jobs
        self._open = {each for each in self._open if each.job not in dropped}
        operation.is_abandoned = operation.job not in dropped
        return operation.is_abandoned

    def release(self, owner: TaskId) -> None:
        """See `Background.release`."""
        self._lines.pop((Pool.USER, owner), None)

    def close(self) -> None:
        """Forget all work."""
        self._results.clear()
        for line in self._lines.values():
            line.jobs.clear()

    def _ready(self) -> list[_Line]:
        return [
            line
            for line in self._lines.values()
            if line.jobs and not (line.is_single and line.is_running)
        ]

    def _finish(self, operation: BackgroundWork, result: Any) -> Sequence[Event]:
        if operation in self._open:
            self._open.discard(operation)
            return operation.then(result)
        operation.is_abandoned = False
        self._lines[Pool.START, None].jobs.append(partial(operation.late, result))
        return ()


class EventLoopInTurn(EventLoop):
    """An event loop that only advances when `run_once` is called, and uses the shared clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._events: asyncio.AbstractEventLoop | None = None

    @property
    def is_running(self) -> bool:
        """Whether anything has ever run on it."""
        return self._events is not None

    @property
    def ident(self) -> int:
        """See `EventLoop.ident`: everything runs on this thread."""
        return threading.get_ident()

    def run_once(self) -> None:
        """Run all callbacks that are ready."""
        if self._events is not None:
            self._events.call_soon(self._events.stop)
            self._events.run_forever()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """See `EventLoop.call_soon`."""
        self._get().call_soon(callback, *args)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """See `EventLoop.run`."""
        task = self._get().create_task(coroutine)
        while not task.done():
            self._clock.advance(_TICK_S)
            self.run_once()
        return task.result()

    def close(self) -> None:
        """See `EventLoop.close`."""
        if self._events is None:
            return
        self.run_once()
        while tasks := asyncio.all_tasks(self._events):
            for task in tasks:
                task.cancel()
            self.run_once()
        self._events.close()
        self._events = None

    def _get(self) -> asyncio.AbstractEventLoop:
        if self._events is None:
            self._events = asyncio.new_event_loop()
            self._events.time = self._clock.monotonic  # type: ignore[method-assign]
        return self._events


class EventLoopsInTurn:
    """The event loops of a worker's tasks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loops: list[EventLoopInTurn] = []

    def new(self) -> EventLoopInTurn:
        """Return the event loop of one more task."""
        self._loops.append(EventLoopInTurn(self._clock))
        return self._loops[-1]

    @property
    def is_running(self) -> bool:
        """Whether anything runs on them."""
        return any(loop.is_running for loop in self._loops)

    def run_once(self) -> None:
        """Run all callbacks that are ready."""
        for loop in list(self._loops):
            loop.run_once()

    def close(self) -> None:
        """Close all of them."""
        for loop in self._loops:
            loop.close()
