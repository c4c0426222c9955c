"""Processors that take their time, as those do that call a service or a model."""

from __future__ import annotations

import asyncio
import time

from kafka_pipeline import (
    AsyncProcessor,
    Processor,
    ProcessorContext,
    Record,
    RecordRejectedError,
)


class Slow(Processor):
    """Passes records on, `seconds` after it got each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process(self, record: Record) -> None:
        """Wait, then pass the record on."""
        time.sleep(self._seconds)
        self.context.forward(record)


class SlowAsync(AsyncProcessor):
    """The same for many records at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def process(self, record: Record) -> Record:
        """Wait, then return the record."""
        await asyncio.sleep(self._seconds)
        return record


class AsyncSum(AsyncProcessor):
    """Adds a constant to values, as `type: sum` does, a while after it got them."""

    def __init__(self, constant: int, seconds: float) -> None:
        self._constant = constant
        self._seconds = seconds

    async def process(self, record: Record) -> Record:
        """Wait, then return the sum."""
        await asyncio.sleep(self._seconds)
        if record.key is not None and record.key.startswith(b"cancel"):
            raise asyncio.CancelledError
        try:
            number = int(record.value)
        except (TypeError, ValueError):
            raise RecordRejectedError("the value is not an integer") from None
        return record.with_value(b"%d" % (number + self._constant))


class NeverReady(Processor):
    """Looks for something in `init` that is not there."""

    def init(self, context: ProcessorContext) -> None:
        """Raise."""
        super().init(context)
        raise KeyError("model")

    def process(self, record: Record) -> None:
        """Never be called."""
        raise AssertionError("it is never ready")
