"""Reads something from Kafka on request, once for all who ask within some seconds."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.console.worker import Worker

MOST_OFTEN_S = 5.0
_TIMEOUT_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """What was read, and when, by this host's clock."""

    found: T
    read_at_ms: int


class SharedReads(Generic[T]):
    """Reads on request, at most once in five seconds.

    For one event loop.
    """

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        """Read by a `call` on threads with this name."""
        self._call = call
        self._worker = Worker(name, 1, _TIMEOUT_S)
        self._reading: asyncio.Task[Read[T]] | None = None
        self._began_at_s = 0.0

    async def current(self) -> Read[T]:
        """Return what is at most five seconds old.

        Raises as the call and `Worker.run`, with the same error for all requests in five seconds.
        """
        task = self._reading
        if task is None or (task.done() and time.monotonic() - self._began_at_s >= MOST_OFTEN_S):
            self._began_at_s = time.monotonic()
            task = self._reading = asyncio.create_task(self._read())
            task.add_done_callback(_look)
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Read again at the next request, since something was changed."""
        self._began_at_s = -math.inf

    async def _read(self) -> Read[T]:
        return Read(await self._worker.run(self._call), wall_clock_ms())


def _look(task: asyncio.Task[Read[T]]) -> None:
    """Retrieve an error, or asyncio complains if all requests for it were cancelled."""
    if not task.cancelled():
        task.exception()
