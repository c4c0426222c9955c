"""User code that raises what is no `Exception`: `on_error` decides, and nothing else ends.

Extensions in Rust raise panics (PyO3 3918), libraries call `sys.exit`, and coroutines are cancelled
(aiokafka 983, grpc 29248).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serde,
    StreamsBuilder,
    StreamsError,
    Topology,
    TopologyBuilder,
    serdes,
    windows,
)
from kafka_pipeline.common.errors import EscapedError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each

SKIP = {"source": GroupSettings(on_error=OnError.SKIP)}


class PanicException(BaseException):
    """What PyO3 raises, by that name."""


def panic(value: object = None, *_: object) -> Any:
    """Panic because of a value; there is nothing to return."""
    raise PanicException(f"called unwrap on {value!r}")


def leave(*_: object) -> Any:
    sys.exit(3)


class Processing(Processor):
    """Calls a function with the values that are `bad`, and forwards the others."""

    def __init__(self, fail: Callable[..., Any]) -> None:
        self.fail = fail

    def process(self, record: Record) -> None:
        if record.value == b"bad":
            self.fail(record.value)
        self.context.forward(record)


class ProcessingBatches(BatchProcessor):
    def __init__(self, fail: Callable[..., Any]) -> None:
        self.fail = fail

    def process(self, batch: Batch) -> None:
        if b"bad" in batch.values:
            self.fail(b"bad")
        self.context.forward(batch)


class Calling(AsyncProcessor):
    def __init__(self, fail: Callable[..., Any]) -> None:
        self.fail = fail

    async def process(self, record: Record) -> Record:
        await asyncio.sleep(0)
        if record.value == b"bad":
            self.fail(record.value)
        return record


def cancelled(*_: object) -> Any:
    raise asyncio.CancelledError("a client of mine has closed")


def cancelling(*_: object) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def one(supplier: Callable[[], Any], **source: Any) -> Topology:
    builder = TopologyBuilder()
    builder.add_source("source", "in", **source).add_processor("p", supplier, "source")
    return builder.add_sink("sink", "out", "p").build()


@pytest.mark.parametrize("fail", [panic, leave, cancelled])
@pytest.mark.parametrize("kind", [Processing, ProcessingBatches, Calling])
def test_a_record_is_skipped_and_those_after_it_are_processed(kind: Any, fail: Any) -> None:
    with TopologyTestDriver(one(lambda: kind(fail)), settings=SKIP) as driver:
        topic = driver.create_input_topic("in")
        for value in (b"first", b"bad", b"last"):
            topic.pipe_input(None, value)
        found = driver.create_output_topic("out").read_key_values()
        assert found == [(None, b"first"), (None, b"last")]
        assert driver.metrics["skipped_records_total"] == 1


def test_a_coroutine_that_cancels_itself_is_an_error_too() -> None:
    class Cancelling(Calling):
        async def process(self, record: Record) -> Record:
            found = await super().process(record)
            await asyncio.sleep(0)
            return found

    with TopologyTestDriver(one(lambda: Cancelling(cancelling)), settings=SKIP) as driver:
        topic = driver.create_input_topic("in")
        for value in (b"bad", b"last"):
            topic.pipe_input(None, value)
        assert driver.create_output_topic("out").read_key_values() == [(None, b"last")]


def test_a_task_of_a_coroutine_does_not_end_the_event_loop() -> None:
    class Leaving(AsyncProcessor):
        async def process(self, record: Record) -> Record:
            async def leave_later() -> None:
                sys.exit(3)

            self.later = asyncio.create_task(leave_later())
            await asyncio.sleep(0.01)
            return record

    with TopologyTestDriver(one(Leaving)) as driver:
        topic = driver.create_input_topic("in")
        for value in (b"first", b"last"):
            topic.pipe_input(None, value)
        assert len(driver.create_output_topic("out").read_key_values()) == 2


def test_the_error_names_what_was_raised_and_its_words_are_data() -> None:
    with TopologyTestDriver(one(lambda: Processing(panic))) as driver:
        topic = driver.create_input_topic("in")
        with pytest.raises(EscapedError) as raised:
            topic.pipe_input(None, b"bad")
        assert str(raised.value) == (
            "PanicException, which is not an Exception: called unwrap on b'bad'"
        )
        assert raised.value.shown == "PanicException, which is not an Exception"
        assert isinstance(raised.value.__cause__, PanicException)
        reason = (
            r"the task source_0 has stopped: record in\[0\]@0: PanicException, which is not an "
            r"Exception: called unwrap on .* \(.*test_escapes.py:\d+ in panic, processor \"p\"\)"
        )
        with pytest.raises(StreamsError, match=reason):
            topic.pipe_input(None, b"next")


def by(step: Callable[[Any], Any]) -> Topology:
    """Return the DSL's topology of a step, with text as keys and values."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    step(builder.stream("in", name="source")).to("out")
    return builder.build()


def bad(then: Callable[..., Any], good: Any) -> Callable[..., Any]:
    """Return a function that fails for records that are bad."""
    return lambda *given: then(given) if "bad" in given else good


STEPS: dict[str, Callable[[Any], Any]] = {
    "predicate": lambda stream: stream.filter(bad(panic, True)),
    "mapper": lambda stream: stream.map_values(bad(panic, "out")),
    "key selector": lambda stream: stream.select_key(bad(panic, "k")),
    "peek": lambda stream: stream.peek(bad(panic, None)),
    "aggregator": lambda stream: (
        stream.group_by_key().aggregate(lambda: "", bad(panic, "a"), name="Sum").to_stream()
    ),
    "initializer of windows": lambda stream: (
        stream.filter(lambda _, value: value == "bad")
        .group_by_key()
        .windowed_by(windows.tumbling(5, grace_ms=0))
        .aggregate(panic, lambda *_: "", name="Windows")
        .to_stream()
        .map(lambda key, value: (key.key, value))
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_functions_of_the_dsl(step: Callable[[Any], Any]) -> None:
    with TopologyTestDriver(by(step), settings=SKIP) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        for value in ("first", "bad", "last"):
            topic.pipe_input("k", value)
        assert driver.metrics["skipped_records_total"] == 1
        assert driver.metrics["records_in_total"] == 3


def test_serdes_partitioners_and_extractors() -> None:
    def read(data: bytes) -> bytes:
        return panic(data) if data == b"bad" else data

    def extract(record: Any, _: int) -> int:
        return panic(record) if record.value == b"old" else 7

    def partition(topic: str, key: Any, value: Any, count: int) -> set[int]:
        return leave() if value == b"lost" else {0}

    builder = TopologyBuilder()
    builder.add_source(
        "source", "in", value_serde=Serde("mine", bytes, read), timestamp_extractor=extract
    )
    builder.add_sink("sink", "out", "source", value_serde=serdes.bytes, partitioner=partition)
    with TopologyTestDriver(builder.build(), settings=SKIP) as driver:
        topic = driver.create_input_topic("in")
        for value in (b"first", b"bad", b"old", b"lost", b"last"):
            topic.pipe_input(None, value)
        found = driver.create_output_topic("out").read_key_values()
        assert found == [(None, b"first"), (None, b"last")]
        assert driver.metrics["skipped_records_total"] == 3


class Punctual(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, panic)

    def process(self, record: Record) -> None:
        self.context.forward(record)


def test_punctuations_fail_the_task_as_other_errors_do() -> None:
    driver = TopologyTestDriver(one(Punctual), settings=SKIP)
    with driver, pytest.raises(EscapedError, match="PanicException"):
        driver.advance_wall_clock_time(20)


class Opening(Processor):
    def init(self, context: ProcessorContext) -> None:
        leave()

    def process(self, record: Record) -> None:
        """Do nothing."""


class Closing(Processor):
    def process(self, record: Record) -> None:
        """Do nothing."""

    def close(self) -> None:
        leave()


def test_suppliers_init_and_close() -> None:
    with pytest.raises(Exception, match="SystemExit"):
        TopologyTestDriver(one(leave))
    with pytest.raises(EscapedError, match="SystemExit"):
        TopologyTestDriver(one(Opening))
    driver = TopologyTestDriver(one(Closing))
    with pytest.raises(EscapedError, match="SystemExit"):
        driver.close()


def test_what_interrupts_is_no_error() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    driver = TopologyTestDriver(one(lambda: Processing(interrupt)), settings=SKIP)
    with driver, pytest.raises(KeyboardInterrupt):
        driver.create_input_topic("in").pipe_input(None, b"bad")


def test_records_that_wait_when_a_test_is_interrupted_are_not_processed() -> None:
    """They were processed after the close, and the error of that hid Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    builder = TopologyBuilder()
    builder.add_source("a", re.compile("in"))
    builder.add_processor("first", lambda: Processing(interrupt), "a")
    builder.add_source("b", re.compile("i[n]")).add_processor("second", Each, "b")
    builder.add_sink("out", "out", "second")
    driver = TopologyTestDriver(builder, partitions={"in": 1})
    with pytest.raises(KeyboardInterrupt), driver:
        driver.create_input_topic("in").pipe_input(None, b"bad")
    assert driver.create_output_topic("out").size == 0
