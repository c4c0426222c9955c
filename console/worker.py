"""Makes calls that wait for Kafka outside of the console's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.process.spare_threads import SpareThreads

T = TypeVar("T")


class BusyError(PipelineError):
    """Too many calls are in progress: try again when one has ended."""


class TooSlowError(PipelineError):
    """A call has exceeded its time limit; it continues, and may still have its effect."""


class Worker:
    """Makes up to `most` calls at a time, on threads of its own. For one event loop.

    A call that takes longer than `timeout_s` continues, and counts until it ends.
    """

    def __init__(self, name: str, most: int, timeout_s: float) -> None:
        self._threads = SpareThreads(name)
        self._most = most
        self._timeout_s = timeout_s
        self._running = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of a call, or raise its exception.

        Raises `BusyError` if there are too many calls, and `TooSlowError` if this one takes too
        long.
        """
        if self._running >= self._most:
            raise BusyError("something else is still being done: try again when it has ended")
        self._running += 1
        future = asyncio.wrap_future(self._threads.submit(call))
        future.add_done_callback(self._ended)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._timeout_s)
        except TimeoutError as error:
            raise TooSlowError(
                f"this takes longer than {self._timeout_s:.0f} s. It goes on, and may still be "
                "done: look at the page again in a while"
            ) from error

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if not future.cancelled():
            future.exception()  # or asyncio complains that nobody has looked at it
