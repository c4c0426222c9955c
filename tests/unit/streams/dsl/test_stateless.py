"""Steps of a stream that keep no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import Record, StreamsBuilder, StreamsError, serdes
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import Input, Output, builder, outputs, run

IN: list[Input] = [("in", "a", "1 2", 5), ("in", "b", "3", 4), ("in", None, "", 6)]

REUSED: list[Any] = []


def refilled(items: list[Any]) -> list[Any]:
    """Return the same list in each call, with these items."""
    REUSED[:] = items
    return REUSED


STEPS: dict[str, tuple[Callable[[Stream], Stream], list[Output]]] = {
    "KStreamFilterTest.testFilter": (
        lambda s: s.filter(lambda key, value: value != "3"),
        [("a", "1 2", 5), (None, "", 6)],
    ),
    "KStreamFilterTest.testFilterNot": (
        lambda s: s.filter_not(lambda key, value: value != "3"),
        [("b", "3", 4)],
    ),
    "KStreamMapTest.testMap": (
        lambda s: s.map(lambda key, value: (value, key)),
        [("1 2", "a", 5), ("3", "b", 4), ("", None, 6)],
    ),
    "KStreamMapValuesTest.testFlatMapValues": (
        lambda s: s.map_values(len, value_serde=serdes.json).map_values(str),
        [("a", "3", 5), ("b", "1", 4), (None, "0", 6)],
    ),
    "KStreamFlatMapTest.testFlatMap": (
        lambda s: s.flat_map(lambda key, value: [(each, key) for each in value.split()]),
        [("1", "a", 5), ("2", "a", 5), ("3", "b", 4)],
    ),
    "KStreamFlatMapValuesTest.testFlatMapValues": (
        lambda s: s.flat_map_values(str.split),
        [("a", "1", 5), ("a", "2", 5), ("b", "3", 4)],
    ),
    "KStreamSelectKeyTest.testSelectKey": (
        lambda s: s.select_key(lambda key, value: value or None),
        [("1 2", "1 2", 5), ("3", "3", 4), (None, "", 6)],
    ),
    "KStreamImplTest.shouldMergeTwoStreams": (
        lambda s: s.filter(lambda k, v: v == "3").merge(s.filter(lambda k, v: v != "3")),
        [("a", "1 2", 5), ("b", "3", 4), (None, "", 6)],
    ),
    "KStreamRepartitionTest.shouldInvokePartitionerWhenSet": (
        lambda s: s.repartition(partitioner=lambda topic, key, value, count: {0}),
        [("a", "1 2", 5), ("b", "3", 4)],
    ),
    "RelaxedNullKeyRequirementJoinTest."
    "testDropNullKeyRecordsForRepartitionNodesWithNoRelaxedJoinDownstream": (
        lambda s: s.repartition(name="Again"),
        [("a", "1 2", 5), ("b", "3", 4)],
    ),
    "a generator is as good as a list": (
        lambda s: s.flat_map_values(lambda value: (each for each in value.split())),
        [("a", "1", 5), ("a", "2", 5), ("b", "3", 4)],
    ),
    "flat_map may return the same list again": (
        lambda s: s.flat_map(lambda key, value: refilled([(each, key) for each in value.split()])),
        [("1", "a", 5), ("2", "a", 5), ("3", "b", 4)],
    ),
    "flat_map_values may return the same list again": (
        lambda s: s.flat_map_values(lambda value: refilled(value.split())),
        [("a", "1", 5), ("a", "2", 5), ("b", "3", 4)],
    ),
}


@pytest.mark.parametrize(("step", "expected"), STEPS.values(), ids=STEPS)
def test_stateless_steps(step: Callable[[Stream], Stream], expected: list[Output]) -> None:
    built = builder()
    step(built.stream("in")).to("out")
    assert run(built, IN) == expected


@pytest.mark.parametrize(("step", "expected"), STEPS.values(), ids=STEPS)
def test_stateless_steps_give_the_same_for_a_batch(
    step: Callable[[Stream], Stream], expected: list[Output]
) -> None:
    built = builder()
    step(built.stream("in")).to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        # A batch of few records is processed record by record.
        topic.pipe_batch([Record(key, value, time) for _, key, value, time in 2 * IN])
        assert outputs(driver) == 2 * expected


def test_headers_go_along() -> None:
    built = builder()
    stream = built.stream("in").flat_map_values(str.split).filter(lambda key, value: value != "2")
    stream.map(lambda key, value: (value, key)).to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record("a", "1 2 3", 5, [("h", b"x")]), Record("b", "4", 6)])
        found = driver.create_output_topic("out", serdes.string, serdes.string).read_records()
    assert [(each.key, list(each.headers)) for each in found] == [
        ("1", [("h", b"x")]),
        ("3", [("h", b"x")]),
        ("4", []),
    ]


@pytest.mark.parametrize("batch", [True, False])
def test_peek_and_for_each_see_every_record(batch: bool) -> None:
    seen: list[tuple[Any, ...]] = []
    built = builder()
    stream = built.stream("in").peek(lambda key, value: seen.append(("peek", key, value)))
    stream.for_each(lambda key, value: seen.append(("end", key, value)))
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        if batch:
            topic.pipe_batch([Record("a", "1", 0)])
        else:
            topic.pipe_input("a", "1", timestamp=0)
    assert seen == [("peek", "a", "1"), ("end", "a", "1")]


# split: KStreamSplitTest.testKStreamSplit, and with a default KStreamSplitTest.testResultingMap


def _split(default: str | None) -> StreamsBuilder:
    built = builder()
    branches = built.stream("in").split(
        {
            "two": lambda key, value: int(value) % 2 == 0,
            "three": lambda key, value: int(value) % 3 == 0,
        },
        default=default,
    )
    for name, stream in branches.items():
        stream.map_values(f"{name} {{}}".format).to(f"out-{name}")
    return built


@pytest.mark.parametrize("default", [None, "rest"])
@pytest.mark.parametrize("batch", [True, False])
def test_the_first_branch_takes_a_record(default: str | None, batch: bool) -> None:
    with TopologyTestDriver(_split(default)) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        records = [Record(None, str(number), number) for number in range(1, 8)]
        if batch:
            topic.pipe_batch(records)
        else:
            for record in records:
                topic.pipe_input(record.key, record.value, timestamp=record.timestamp)
        assert [value for _, value, _ in outputs(driver, "out-two")] == ["two 2", "two 4", "two 6"]
        assert [value for _, value, _ in outputs(driver, "out-three")] == ["three 3"]
        if default:
            rest = [value for _, value, _ in outputs(driver, "out-rest")]
            assert rest == ["rest 1", "rest 5", "rest 7"]


# Errors


def fail(key: Any, value: Any) -> Any:
    raise ValueError("no good")


@pytest.mark.parametrize("step", ["filter", "map", "flat_map", "select_key", "peek"])
@pytest.mark.parametrize("with_branches", [True, False])
def test_an_error_names_its_step(step: str, with_branches: bool) -> None:
    built = builder()
    stream = built.stream("in").filter(lambda key, value: True, name="Before")
    failing = getattr(stream, step)(fail, name="Failing").peek(lambda key, value: None)
    if with_branches:  # whose records meet again, so that they come one by one
        failing = failing.merge(stream)
    failing.to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        with pytest.raises(Exception, match="no good") as raised:
            topic.pipe_input("a", "1", timestamp=0)
    assert isinstance(raised.value, Exception)
    assert 'processor "Failing"' in reason(raised.value)


@pytest.mark.parametrize(
    ("step", "returned", "message"),
    [
        ("map", 7, 'step "Odd" returned a int: it must return a pair'),
        ("map", (1, 2, 3), 'step "Odd" returned a tuple: it must return a pair'),
        ("flat_map", None, 'step "Odd" returned a NoneType: it must return a list'),
        ("flat_map", [7], 'step "Odd" returned a int: it must return a pair'),
        ("flat_map_values", "text", 'step "Odd" returned a str: it must return a list'),
    ],
)
def test_what_a_function_returns_is_checked(step: str, returned: Any, message: str) -> None:
    built = builder()
    getattr(built.stream("in"), step)(lambda *given: returned, name="Odd").to("out")
    with pytest.raises(StreamsError, match=message):
        run(built, IN[:1])
