"""The newest dead letters, read once for all who look at them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.console.job import Job
from kafka_pipeline.console.worker import Worker
from kafka_pipeline.operations.latest_letters import LetterList

MOST_OFTEN_S = 5.0
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ReadLetters:
    """Dead letters, and when they were read by this host's clock."""

    list: LetterList
    read_at_ms: int


class LetterBoard:
    """Reads dead letters at most once in five seconds, and only if somebody asks.

    For one event loop.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the letters of a job; `clock` is in seconds, and only goes forward."""
        self._job = job
        self._clock = clock
        self._worker = Worker("console letters", 1, _TIMEOUT_S)
        self._reading: asyncio.Task[ReadLetters] | None = None
        self._began_at_s = 0.0

    async def current(self) -> ReadLetters:
        """Return letters that are at most five seconds old.

        Raises as `Job.letters` and `Worker.run`, again to all who ask within five seconds.
        """
        task = self._reading
        if task is None or (task.done() and self._clock() - self._began_at_s >= MOST_OFTEN_S):
            self._began_at_s = self._clock()
            task = self._reading = asyncio.create_task(self._read())
            task.add_done_callback(_look)
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Read again when somebody asks next, since letters were dealt with."""
        self._began_at_s = -math.inf

    async def _read(self) -> ReadLetters:
        found = await self._worker.run(self._job.letters)
        return ReadLetters(found, wall_clock_ms())


def _look(task: asyncio.Task[ReadLetters]) -> None:
    """Look at an error, or asyncio complains if all who asked have gone."""
    if not task.cancelled():
        task.exception()
