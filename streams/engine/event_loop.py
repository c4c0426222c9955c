"""An asyncio event loop on its own thread, for coroutines of user code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from kafka_pipeline.common.code.error_words import class_name
from kafka_pipeline.common.code.user_frames import place_in
from kafka_pipeline.streams.errors import StreamsError

T = TypeVar("T")

logger = structlog.get_logger()


class EventLoop:
    """Runs coroutines on its own thread, which starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        """Whether the loop is to end."""
        self._closed: list[threading.Thread] = []
        """The threads that were told to end."""

    @property
    def line(self) -> str:
        """The line of user code that the loop is at now, such as `shop.py:17 in process`.

        It is "" while the loop waits for something, as it should most of the time.
        """
        thread = self._thread
        return "" if thread is None or thread.ident is None else place_in(thread.ident)

    @property
    def ident(self) -> int:
        """Python's number of the loop's thread, which starts with the first call."""
        self._running()
        assert self._thread is not None, "it was started"
        return self._thread.ident or 0

    @property
    def hangs(self) -> bool:
        """Whether coroutines still run on a loop that is closed or no longer in use."""
        return bool(self.line) or any(thread.is_alive() for thread in self._closed)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback on the loop's thread; any thread may call this."""
        self._running().call_soon_threadsafe(callback, *args)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and wait for its result. Raises what the coroutine raises.

        After `timeout_s`, if that is given, the coroutine is cancelled. Then raises `TimeoutError`,
        or `StreamsError` if the loop is blocked by code that does not wait with `await`.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            if line := self.line:
                raise StreamsError(
                    f"a coroutine blocks the event loop at {line}: use `await` for what takes time"
                ) from error
            name = getattr(coroutine, "__qualname__", "a coroutine")
            raise TimeoutError(f"{name} took longer than {timeout_s:g} s") from None

    def close(self) -> None:
        """Cancel running coroutines, and end the thread once they have ended; does not block."""
        with self._lock:
            loop, self._loop, is_over = self._loop, None, self._is_over
            if self._thread is not None:
                self._closed = [*filter(threading.Thread.is_alive, self._closed), self._thread]
                self._thread = None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_end(is_over), loop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop, self._is_over = asyncio.new_event_loop(), threading.Event()
                arguments = self._loop, self._is_over
                self._thread = threading.Thread(
                    target=_run, args=arguments, name="event-loop", daemon=True
                )
                self._thread.start()
            return self._loop


async def _end(is_over: threading.Event) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    is_over.set()
    asyncio.get_running_loop().stop()


def _run(loop: asyncio.AbstractEventLoop, is_over: threading.Event) -> None:
    while not is_over.is_set():
        try:
            loop.run_forever()
        except BaseException as error:  # asyncio lets SystemExit of a task end its loop
            logger.warning("user code raised in a coroutine of its own", error=class_name(error))
        else:
            if not is_over.is_set():
                logger.warning("user code stopped the event loop, which continues")
    loop.close()
