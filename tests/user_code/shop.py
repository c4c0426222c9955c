"""Code of a user that fails in each place where it can; a comment names each line that raises."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable
from typing import Any

from kafka_pipeline import (
    AsyncProcessor,
    AsyncProcessorContext,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
)
from kafka_pipeline.streams.timestamps import RecordView

PRICES: dict[str, int] = {}

logger = logging.getLogger(__name__)


def line_of(mark: str) -> int:
    """Return the number of the line that ends with `# raises: <mark>`."""
    with open(__file__, encoding="utf-8") as file:
        (number,) = (n for n, text in enumerate(file, 1) if text.endswith(f"# raises: {mark}\n"))
    return number


def price(record: Any) -> int:
    return PRICES[record.value]  # raises: price


class Enrich(Processor):
    """Looks a price up, in a function of its own."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(price(record)))  # raises: enrich


class Parse(Processor):
    """Fails inside of a library."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(json.loads(record.value)))  # raises: parse


class Translating(Processor):
    """Raises an exception of its own in place of another one."""

    def process(self, record: Record) -> None:
        try:
            price(record)
        except KeyError as error:
            raise ValueError("no price") from error  # raises: translating


class Pass(Processor):
    """Forwards what comes, and logs it."""

    def process(self, record: Record) -> None:
        logger.debug("passed on")
        self.context.forward(record)  # raises: pass


class Endless(Processor):
    """Calls itself until Python stops it."""

    def process(self, record: Record) -> None:
        self._down(record)

    def _down(self, record: Record) -> None:
        self._down(record)  # raises: endless


def logged(process: Callable[..., None]) -> Callable[..., None]:
    """Decorate a method so that it raises before it runs."""

    @functools.wraps(process)
    def wrapper(*args: Any) -> None:
        raise PermissionError("not today")  # raises: wrapper

    return wrapper


class Decorated(Processor):
    """Fails in a wrapper that knows no `self`."""

    @logged
    def process(self, record: Record) -> None:
        self.context.forward(record)


class Begin(Pass):
    """Fails in `init`."""

    def init(self, context: ProcessorContext) -> None:
        raise FileNotFoundError("model.bin")  # raises: init


class Connect(Pass):
    """Fails in `init`, with words that only exist at run time."""

    def init(self, context: ProcessorContext) -> None:
        raise ConnectionError(f"no answer from {context.application_id}:5432")  # raises: connect


class EnrichAsync(AsyncProcessor):
    """Looks a price up in a coroutine."""

    async def process(self, record: Record) -> Record:
        await asyncio.sleep(0)
        return record.with_value(price(record))


class PassAsync(AsyncProcessor):
    """Returns what comes, and logs it."""

    async def process(self, record: Record) -> Record:
        logger.debug("passed on")
        return record


class BeginAsync(PassAsync):
    """Fails in an `init` that is a coroutine."""

    async def init(self, context: AsyncProcessorContext) -> None:
        raise FileNotFoundError("model.bin")  # raises: init of a coroutine


class Storeless(Pass):
    """Asks for a store that it does not have."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("Prices")  # raises: store


class End(Pass):
    """Fails in `close`."""

    def close(self) -> None:
        raise RuntimeError("still busy")  # raises: close


class Tick(Pass):
    """Fails in a punctuation that is a method."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.flush)

    def flush(self, time: int) -> None:
        raise RuntimeError("no flush")  # raises: flush


def tick(time: int) -> None:
    """Fail as a punctuation that knows no processor."""
    raise RuntimeError("no tick")  # raises: tick


class TickByFunction(Pass):
    """Fails in a punctuation that is a function."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, tick)


def supply() -> Processor:
    raise ConnectionError("no registry")  # raises: supplier


def read(data: bytes) -> Any:
    return PRICES[data.decode()]  # raises: read


def write(value: Any) -> bytes:
    return bytes(str(PRICES[value]), "ascii")  # raises: write


def time_of(record: RecordView, partition_time: int) -> int:
    return PRICES[str(record.offset)]  # raises: extractor


def choose_topic(record: Record) -> str:
    return f"prices_{PRICES['topic']}"  # raises: chooser


def choose_partitions(topic: str, key: Any, value: Any, count: int) -> set[int]:
    return {PRICES["partition"]}  # raises: partitioner
