"""The event loop of a task, and what blocks it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.errors import StreamsError

LONG_S = 10.0


@pytest.fixture
def may_return() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def block(may_return: threading.Event) -> None:
    may_return.wait(LONG_S)


def test_a_coroutine_that_blocks_is_named_with_its_line(may_return: threading.Event) -> None:
    loop = EventLoop()
    with pytest.raises(StreamsError, match=r"blocks the event loop at .*py:\d+ in block: use"):
        loop.run(block(may_return), 0.2)
    loop.close()
    assert loop.hangs
    assert loop.run(asyncio.sleep(0, "goes on")) == "goes on", "on another thread"
    may_return.set()
    while loop.hangs:
        threading.Event().wait(0.01)
    loop.close()


def test_a_coroutine_that_waits_for_too_long_is_no_block() -> None:
    loop = EventLoop()
    with pytest.raises(TimeoutError, match=r"^sleep took longer than 0\.1 s$"):
        loop.run(asyncio.sleep(LONG_S), 0.1)
    assert (loop.line, loop.hangs) == ("", False)
    loop.close()


def test_a_coroutine_that_took_too_long_does_not_go_on() -> None:
    """Else that of the next start would run next to it."""
    cancelled = threading.Event()

    async def connect() -> None:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    loop = EventLoop()
    with pytest.raises(TimeoutError):
        loop.run(connect(), 0.1)
    assert cancelled.wait(LONG_S / 2)
    loop.close()


def test_a_coroutine_that_stops_the_loop_does_not_end_the_others() -> None:
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "goes on"

    loop = EventLoop()
    assert loop.run(stop(), LONG_S) == "goes on"
    loop.close()
    while loop.hangs:
        threading.Event().wait(0.01)
