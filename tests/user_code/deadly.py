"""User code that ends the process of its worker, as a fault in a C library does."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal

from kafka_pipeline import AsyncProcessor, Processor, ProcessorContext, PunctuationType, Record


def end_process(how: bytes) -> None:
    """End the process in the way that a value begins with; return for any other value."""
    if how.startswith(b"segfault"):
        ctypes.string_at(0)
    if how.startswith(b"abort"):
        os.abort()
    if how.startswith(b"exit"):
        os._exit(3)
    if how.startswith(b"kill"):
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Processor):
    """Forwards each record, unless its value ends the process."""

    def process(self, record: Record) -> None:
        end_process(record.value)
        self.context.forward(record)


class Harmless(Processor):
    """Forwards each record, whatever its value."""

    def process(self, record: Record) -> None:
        self.context.forward(record)


class DeadlyCalls(AsyncProcessor):
    """The same in coroutines."""

    max_in_flight = 8

    async def process(self, record: Record) -> Record:
        await asyncio.sleep(0.001)
        end_process(record.value)
        return record


class DeadlyTimer(Processor):
    """Forwards each record, but its punctuation ends the process."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(200, PunctuationType.WALL_CLOCK_TIME, lambda now: end_process(b"abort"))

    def process(self, record: Record) -> None:
        self.context.forward(record)
