"""Processors that cannot be called: what is said about them when a task starts, and the place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    AsyncProcessorContext,
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyBuilder,
    serdes,
)
from kafka_pipeline.streams.engine.running_node import init
from kafka_pipeline.testing import TopologyTestDriver

FILE = "tests/unit/streams/test_processor_methods.py"


class Idle(Processor):  # class Idle
    """Has no `process`."""


class IdleBatches(BatchProcessor):  # class IdleBatches
    """Has no `process`."""


class IdleAsync(AsyncProcessor):  # class IdleAsync
    """Has no `process`."""


class TakesTwo(Processor):
    def process(self, record: Record, other: str) -> None:  # type: ignore[override] # TakesTwo
        """Do nothing."""


class TakesNone(BatchProcessor):
    def process(self) -> None:  # type: ignore[override] # TakesNone
        """Do nothing."""


class InitWithoutContext(Processor):
    def init(self) -> None:  # type: ignore[override] # InitWithoutContext
        """Do nothing."""

    def process(self, record: Record) -> None:
        """Do nothing."""


class CloseWithReason(AsyncProcessor):
    async def process(self, record: Record) -> None:
        """Do nothing."""

    async def close(self, reason: str) -> None:  # type: ignore[override] # CloseWithReason
        """Do nothing."""


class AsyncInit(Processor):
    async def init(self, context: ProcessorContext) -> None:  # type: ignore[override] # AsyncInit
        """Do nothing."""

    def process(self, record: Record) -> None:
        """Do nothing."""


class NotAsync(AsyncProcessor):
    def process(self, record: Record) -> None:  # type: ignore[override] # NotAsync
        """Do nothing."""


class GeneratesInit(AsyncProcessor):
    def init(self, context: AsyncProcessorContext) -> Any:  # GeneratesInit
        yield

    async def process(self, record: Record) -> None:
        """Do nothing."""


class GeneratesClose(AsyncProcessor):
    async def process(self, record: Record) -> None:
        """Do nothing."""

    async def close(self) -> Any:  # GeneratesClose
        yield


class GeneratesResults(AsyncProcessor):
    async def process(self, record: Record) -> Any:  # GeneratesResults
        yield record


def line_of(mark: str) -> int:
    with open(__file__, encoding="utf-8") as lines:
        (line,) = (n for n, text in enumerate(lines, 1) if text.rstrip().endswith(f"# {mark}"))
    return line


def refusal_of(processor: Any) -> str:
    builder = TopologyBuilder()
    builder.add_source("Source", "in").add_processor("P", processor, "Source")
    with pytest.raises(StreamsError) as refused:
        TopologyTestDriver(builder)
    return str(refused.value)


@pytest.mark.parametrize(
    ("processor", "form"),
    [
        (Idle, "def process(self, record)"),
        (IdleBatches, "def process(self, batch)"),
        (IdleAsync, "async def process(self, record)"),
    ],
)
def test_a_class_without_process_is_refused_with_its_place(processor: type, form: str) -> None:
    name = processor.__name__
    place = f"{FILE}:{line_of(f'class {name}')} in {name}"
    assert refusal_of(processor) == (
        f'processor "P": the class {name} has no method process: write {form} ({place})'
    )


@pytest.mark.parametrize(
    ("processor", "call", "problem", "form"),
    [
        (
            TakesTwo,
            "process(record)",
            "missing a required argument: 'other'",
            "def process(self, record)",
        ),
        (TakesNone, "process(batch)", "too many positional arguments", "def process(self, batch)"),
        (
            InitWithoutContext,
            "init(context)",
            "too many positional arguments",
            "def init(self, context)",
        ),
        (CloseWithReason, "close()", "missing a required argument: 'reason'", "def close(self)"),
    ],
)
def test_a_method_that_takes_something_else_is_refused_with_its_place(
    processor: type, call: str, problem: str, form: str
) -> None:
    method, name = call.partition("(")[0], processor.__name__
    assert refusal_of(processor) == (
        f'processor "P": {method} of {name} cannot be called as {call}: {problem}. Write {form} '
        f"({FILE}:{line_of(name)} in {method})"
    )


def test_an_init_that_nothing_would_run_is_refused_with_its_place() -> None:
    assert refusal_of(AsyncInit) == (
        'processor "P": init of AsyncInit is a coroutine (async def), and calling it runs nothing: '
        "make it a plain method, or the class an AsyncProcessor "
        f"({FILE}:{line_of('AsyncInit')} in init)"
    )


@pytest.mark.parametrize(
    ("method", "processor", "made"),
    [
        ("init", GeneratesInit, "a generator (yield)"),
        ("close", GeneratesClose, "an asynchronous generator"),
        ("process", GeneratesResults, "an asynchronous generator"),
    ],
)
def test_a_method_with_yield_of_an_async_processor_is_refused_with_its_place(
    method: str, processor: type, made: str
) -> None:
    name = processor.__name__
    assert refusal_of(processor) == (
        f'processor "P": {method} of {name} is {made}, and calling it runs nothing: write it '
        f"without yield ({FILE}:{line_of(name)} in {method})"
    )


def test_a_process_that_is_no_coroutine_is_refused_with_its_place() -> None:
    assert refusal_of(NotAsync) == (
        'processor "P": process of NotAsync is not a coroutine: write '
        "async def process(self, record) "
        f"({FILE}:{line_of('NotAsync')} in process)"
    )


def test_process_may_be_an_attribute_and_may_take_more_that_has_a_default() -> None:
    seen: list[Any] = []

    class Made(Idle):
        def __init__(self) -> None:
            self.process = seen.append  # type: ignore[method-assign, assignment]

    class WithDefault(BatchProcessor):
        def process(self, batch: Batch, times: int = 1) -> None:
            seen.append(times)

    builder = TopologyBuilder()
    builder.add_source("Source", "in").add_processor("P", Made, "Source")
    builder.add_processor("Q", WithDefault, "Source")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in").pipe_input(None, b"v")
    assert [getattr(each, "value", each) for each in seen] == [b"v", 1]


class OwnInit(Processor):
    def init(self, context: ProcessorContext) -> None:
        """Do not call the `init` of the base."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(self.context.task_id))


class OwnInitOfBatches(BatchProcessor):
    def init(self, context: ProcessorContext) -> None:
        """Do not call the `init` of the base."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch.with_values([self.context.task_id for _ in batch.values]))


class OwnInitOfCalls(AsyncProcessor):
    async def init(self, context: AsyncProcessorContext) -> None:
        """Do not call the `init` of the base."""

    async def process(self, record: Record) -> Record:
        return record.with_value(self.context.task_id)


@pytest.mark.parametrize("kind", [OwnInit, OwnInitOfBatches, OwnInitOfCalls])
def test_a_processor_has_its_context_though_its_init_does_not_set_it(
    kind: type[Processor | BatchProcessor | AsyncProcessor],
) -> None:
    builder = TopologyBuilder().add_source("In", "in", value_serde=serdes.string)
    built = builder.add_processor("P", kind, "In").add_sink(
        "Out", "out", "P", value_serde=serdes.string
    )
    with TopologyTestDriver(built.build()) as driver:
        driver.create_input_topic("in", value_serde=serdes.string).pipe_input(b"k", "v")
        output = driver.create_output_topic("out", value_serde=serdes.string)
        assert [value for _, value in output.read_key_values()] == ["In_0"]


def test_a_processor_within_the_dsl_has_its_context_as_well() -> None:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    builder.stream("in").process_values(OwnInit).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v")
        output = driver.create_output_topic("out", serdes.string, serdes.string)
        assert len(output.read_key_values()) == 1


def test_a_context_that_a_class_has_set_itself_stays() -> None:
    class Own(OwnInit):
        def __init__(self) -> None:
            self.context = context

    context: Any = SimpleNamespace(task_id="own")
    processor = Own()
    init(processor, object())
    assert processor.context is context
