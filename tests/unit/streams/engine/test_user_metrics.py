"""Counters and gauges of user code: `context.count` and `context.gauge`."""

from __future__ import annotations

import asyncio
from math import inf, nan
from sys import float_info
from typing import Any, cast

import numpy as np
import pytest

from kafka_pipeline import (
    AsyncProcessor,
    AsyncProcessorContext,
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsError,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.user_series import UserSeries
from kafka_pipeline.streams.engine.figures import MOST_SERIES, TaskFigures
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Nodes, Tasks, batch, calling, chain

SKIP = GroupSettings(on_error=OnError.SKIP)


def counting(*records: Any, process: Any) -> dict[UserSeries, float]:
    """Return what a task with one processor has counted."""
    task = Tasks(chain(process), SKIP)
    task.task.add(batch(records))
    while task.task.step(0, task.partitions).has_more:
        pass
    return task.task.take()[1].counted


def count_and_fail(context: ProcessorContext, record: Record) -> None:
    context.count("seen")
    context.count("cents", int(record.value), kind="refund")
    if record.value == b"200":
        raise ValueError("too much")


def test_what_a_rejected_record_has_counted_is_taken_back() -> None:
    found = counting(b"10", b"200", b"30", b"-1", b"0", process=calling(count_and_fail))
    assert found == {UserSeries("seen"): 3, UserSeries("cents", (("kind", "refund"),)): 40}


class Sums(BatchProcessor):
    def process(self, batch: Batch) -> None:
        for value in batch.values:
            self.context.count("cents", int(value))
        if b"200" in batch.values:
            raise ValueError("too much")


def test_records_of_a_batch_that_is_halved_count_once() -> None:
    assert counting(b"1", b"2", b"200", b"3", process=Sums) == {UserSeries("cents"): 6}


class Calling(AsyncProcessor):
    async def process(self, record: Record) -> Record:
        async def call(amount: int) -> None:
            await asyncio.sleep(0)
            self.context.count("cents", amount)

        await asyncio.gather(call(int(record.value)), call(1))
        if record.value == b"200":
            raise ValueError("too much")
        return record


def test_counts_of_calls_are_taken_back_with_their_records() -> None:
    builder = TopologyBuilder().add_source("source", "in")
    builder.add_processor("call", Calling, "source").add_sink("sink", "out", "call")
    with TopologyTestDriver(builder, settings={"source": SKIP}) as driver:
        source = driver.create_input_topic("in")
        for value in (b"10", b"200", b"30"):
            source.pipe_input(b"k", value)
        assert driver.counted("cents") == 42


def test_nothing_is_counted_outside_of_calls() -> None:
    class Early(Calling):
        async def init(self, context: AsyncProcessorContext) -> None:
            context.count("early")

    builder = TopologyBuilder().add_source("source", "in")
    builder.add_processor("call", Early, "source").add_sink("sink", "out", "call")
    with pytest.raises(StreamsError, match="measures outside of process"):
        TopologyTestDriver(builder)


def test_counters_are_not_sent() -> None:
    task = Tasks(chain(calling(count_and_fail)), SKIP)
    task.task.add(batch([b"1"]))
    task.task.step(0, task.partitions)
    outputs, figures = task.task.take()
    assert (outputs, figures.records_out, len(figures.counted)) == ([], 0, 2)
    assert task.task.take()[1].counted == {}


class Ticking(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda _: context.count("ticks"))

    def process(self, record: Record) -> None:
        pass


def test_the_driver_has_counters_of_all_labels_in_any_order() -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        context.count("orders", cast(float, np.int64(2)), country="fr", by="ann")
        context.count("orders", 0.5)

    builder = TopologyBuilder().add_source("source", "in")
    builder.add_processor("count", calling(process), "source")
    builder.add_processor("tick", Ticking, "source")
    with TopologyTestDriver(builder) as driver:
        assert driver.counted("orders") == 0
        driver.create_input_topic("in").pipe_input(b"k", b"v")
        driver.advance_wall_clock_time(10)
        assert driver.counted("orders", by="ann", country="fr") == 2
        assert (driver.counted("orders"), driver.counted("ticks")) == (0.5, 1)
        with pytest.raises(ValueError, match="unlike 'Orders'"):
            driver.counted("Orders")


@pytest.mark.parametrize(
    ("arguments", "labels", "problem"),
    [
        (("Orders",), {}, "the name of a counter or a gauge has up to 100 lower-case"),
        ((b"orders",), {}, "unlike b'orders'"),
        ((["orders"],), {}, "unhashable"),
        (("orders_total",), {}, "gets _total by itself, and no gauge has it: leave it out"),
        (("orders",), {"partition": "1"}, "each series has the label partition already"),
        (("orders",), {"__name__": "x"}, "unlike '__name__'"),
        (("orders",), {"größe": "x"}, "unlike 'größe'"),
        (("orders",), {"size": 3}, "the label size is a int: give it as a string"),
        (("orders", -1), {}, "adds -1 to the counter orders: counters only grow"),
        (("orders", nan), {}, "counters only grow, by finite numbers"),
        (("orders", inf), {}, "counters only grow, by finite numbers"),
        (("orders", "1"), {}, "adds '1' to the counter orders"),
    ],
)
def test_wrong_counters_reject_the_record(
    arguments: tuple[Any, ...], labels: dict[str, Any], problem: str
) -> None:
    nodes = Nodes(chain(calling(lambda context, _: context.count(*arguments, **labels))))
    (rejected,) = nodes.process(batch([b"a"]))
    assert problem in str(rejected.error)


def test_values_of_labels_may_come_from_records() -> None:
    """They are short, and half of a surrogate pair would make the report of them unreadable."""

    def process(context: ProcessorContext, record: Record) -> None:
        context.count("orders", country="\ud83d" + "x" * 200)

    ((found, amount),) = counting(b"1", process=calling(process)).items()
    assert amount == 1
    assert found.labels == (("country", "\\ud83d" + "x" * 74 + "…"),)


def test_labels_beyond_the_limit_count_as_other() -> None:
    total = TaskFigures()
    for transaction in range(20):
        figures = TaskFigures()
        for number in range(100):
            figures.count(UserSeries("orders", (("id", f"{transaction}-{number}"),)), 1)
        total += figures
    assert len(total.counted) == MOST_SERIES + 1
    assert total.counted[UserSeries("orders", (("id", "other"),))] == 2000 - MOST_SERIES
    assert sum(total.counted.values()) == 2000


def test_a_sum_stays_finite() -> None:
    figures = TaskFigures()
    for _ in range(2):
        figures.count(UserSeries("much"), float_info.max)
    assert figures.counted == {UserSeries("much"): float_info.max}


def measure_and_fail(context: ProcessorContext, record: Record) -> None:
    context.gauge("last", int(record.value))
    context.gauge("last", -int(record.value), sign="other")
    if record.value == b"200":
        raise ValueError("too much")


def measuring(*records: Any, process: Any) -> dict[UserSeries, float]:
    """Return what a task with one processor has set its gauges to."""
    task = Tasks(chain(process), SKIP)
    task.task.add(batch(records))
    while task.task.step(0, task.partitions).has_more:
        pass
    return task.task.take()[1].gauges


def test_gauge_has_its_last_value_of_a_record_that_was_not_rejected() -> None:
    other = UserSeries("last", (("sign", "other"),))
    process = calling(measure_and_fail)
    assert measuring(b"10", b"30", b"200", process=process) == {UserSeries("last"): 30, other: -30}
    assert measuring(b"200", b"5", process=process) == {UserSeries("last"): 5, other: -5}


def test_gauge_of_calls_has_the_value_of_the_last_result() -> None:
    class Measuring(AsyncProcessor):
        async def process(self, record: Record) -> Record:
            await asyncio.sleep(0.01 if record.value == b"1" else 0)
            self.context.gauge("last", int(record.value))
            return record

    builder = TopologyBuilder().add_source("source", "in")
    builder.add_processor("call", Measuring, "source").add_sink("sink", "out", "call")
    with TopologyTestDriver(builder) as driver:
        assert driver.gauge("last") is None
        source = driver.create_input_topic("in")
        source.pipe_input(b"k", b"1")
        source.pipe_input(b"k", b"2")
        assert driver.gauge("last") == 2


def test_a_later_transaction_sets_the_gauges_that_it_has_and_no_others() -> None:
    before, after = TaskFigures(), TaskFigures()
    before.set_gauge(UserSeries("a"), 1)
    before.set_gauge(UserSeries("b"), 1)
    after.set_gauge(UserSeries("b"), 0.5)
    assert (before + after).gauges == {UserSeries("a"): 1, UserSeries("b"): 0.5}


def test_gauges_beyond_the_limit_have_other_labels() -> None:
    figures = TaskFigures()
    for number in range(MOST_SERIES + 2):
        figures.set_gauge(UserSeries("size", (("id", f"{number}"),)), number)
    assert len(figures.gauges) == MOST_SERIES + 1
    assert figures.gauges[UserSeries("size", (("id", "other"),))] == MOST_SERIES + 1


@pytest.mark.parametrize("value", [nan, inf, -inf, "1", None])
def test_gauge_that_is_not_a_finite_number_rejects_the_record(value: Any) -> None:
    nodes = Nodes(chain(calling(lambda context, _: context.gauge("size", value))))
    (rejected,) = nodes.process(batch([b"a"]))
    assert f"sets the gauge size to {value!r}: give it a finite number" in str(rejected.error)


def test_a_global_store_counts_nothing() -> None:
    kept = stores.key_value("kept", serdes.string, serdes.string, logged=False)
    builder = TopologyBuilder()
    builder.add_global_store(kept, "source", "in", "fill", calling(lambda c, _: c.count("rows")))
    builder.add_source("others", "other").add_sink("sink", "out", "others")
    with TopologyTestDriver(builder) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        with pytest.raises(Exception, match="belongs to no task"):
            topic.pipe_input("k", "v")
