"""Joins of tables that come from one table: each change gives one result, and deletions delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import builder

Value = int | None
Result = Any


def pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def ten_times(value: int) -> int:
    return value * 10


def negative(value: int) -> int:
    return -value


def even(key: str, value: int) -> bool:
    return value % 2 == 0


def if_even(value: int) -> Value:
    return value if value % 2 == 0 else None


@dataclass(frozen=True)
class Case:
    """A join, and what it gives for a value of its origin."""

    build: Callable[[Table], Table]
    result: Callable[[int], Result]


def both(left: Result, right: Result) -> Result:
    return None if left is None or right is None else [left, right]


CASES = {
    "table and view": Case(lambda t: t.join(t.map_values(ten_times), pair), lambda v: [v, v * 10]),
    "view and table": Case(lambda t: t.map_values(ten_times).join(t, pair), lambda v: [v * 10, v]),
    "table and view with a store": Case(
        lambda t: t.join(t.map_values(ten_times, name="View"), pair), lambda v: [v, v * 10]
    ),
    "with a store": Case(
        lambda t: t.join(t.map_values(ten_times), pair, name="Joined"), lambda v: [v, v * 10]
    ),
    "itself": Case(lambda t: t.join(t, pair), lambda v: [v, v]),
    "filter": Case(lambda t: t.join(t.filter(even), pair), lambda v: both(v, if_even(v))),
    "left, filter": Case(lambda t: t.left_join(t.filter(even), pair), lambda v: [v, if_even(v)]),
    "left, filter on the left": Case(
        lambda t: t.filter(even).left_join(t, pair),
        lambda v: None if if_even(v) is None else [v, v],
    ),
    "outer, filter": Case(lambda t: t.outer_join(t.filter(even), pair), lambda v: [v, if_even(v)]),
    "outer, filter with a store": Case(
        lambda t: t.filter(even, name="Even").outer_join(t, pair, name="Joined"),
        lambda v: [if_even(v), v],
    ),
    "two views": Case(
        lambda t: t.map_values(ten_times).join(t.map_values(negative), pair),
        lambda v: [v * 10, -v],
    ),
    "two filters that never both hold": Case(
        lambda t: t.filter(even).outer_join(t.filter_not(even), pair),
        lambda v: [v, None] if v % 2 == 0 else [None, v],
    ),
    "a chain of joins": Case(
        lambda t: t.join(t.filter(even), pair).outer_join(t.map_values(negative), pair),
        lambda v: [both(v, if_even(v)), -v],
    ),
    "a join and one side of it": Case(
        lambda t: (lambda joined: joined.join(joined.join(t, pair), pair))(
            t.join(t.map_values(negative), pair)
        ),
        lambda v: [[v, -v], [[v, -v], v]],
    ),
}
VALUES: list[Value] = [1, 2, 2, None, None, 3, 4, None, 5]


def changes(built: StreamsBuilder, table: Table, given: list[Value]) -> list[list[Result]]:
    """Return the results of each value of a key of the topic `in`."""
    table.to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        results = driver.create_output_topic("out", serdes.string, serdes.json)
        found = []
        for time, value in enumerate(given):
            topic.pipe_input("k", value, timestamp=time)
            records = results.read_records()
            assert {record.timestamp for record in records} <= {time}
            found.append([record.value for record in records])
        return found


def expected_results(result: Callable[[int], Result], given: list[Value]) -> list[list[Result]]:
    """Return a result for each value, unless there was none and is none."""
    expected, old = [], None
    for value in given:
        new = None if value is None else result(value)
        expected.append([] if old is None and new is None else [new])
        old = new
    return expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("history_ms", [None, 1000])
def test_each_change_has_one_result(case: Case, history_ms: int | None) -> None:
    """KAFKA-6687."""
    built = builder(value_serde=serdes.json)
    table = built.table("in", name="Table", history_retention_ms=history_ms)
    assert changes(built, case.build(table), VALUES) == expected_results(case.result, VALUES)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_groups_of_the_join_subtract_what_they_added(case: Case) -> None:
    def add(key: str, value: Result, found: list[Result]) -> list[Result]:
        return [*found, value]

    def subtract(key: str, value: Result, found: list[Result]) -> list[Result]:
        found.remove(value)  # raises if it is not there
        return found

    built = builder(value_serde=serdes.json)
    joined = case.build(built.table("in", name="Table"))
    grouped = joined.group_by(lambda key, value: ("all", value)).aggregate(list, add, subtract)
    found = changes(built, grouped, VALUES)
    old: list[Result] = []
    for value, results in zip(VALUES, found, strict=True):
        new = None if value is None else case.result(value)
        old = [] if new is None else [new]
        assert results in ([], [old])


def test_an_aggregate_of_the_changes_is_joined_with_the_table() -> None:
    built = builder(value_serde=serdes.json)
    table = built.table("in", name="Table")
    counts = table.to_stream().group_by_key().count(name="Counts")
    found = changes(built, table.left_join(counts, pair), [7, 8, None, 9])
    assert found == [[[7, 1]], [[8, 2]], [None], [[9, 3]]]


def test_another_table_on_one_side_only_changes_the_result_once() -> None:
    built, results = builder(value_serde=serdes.json), list[Result]()
    table, other = built.table("in", name="Table"), built.table("other", name="Other")
    joined = table.join(other, pair)
    joined.join(table.outer_join(other, pair), pair).to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        for topic, value in (("in", 1), ("other", 2), ("in", 3), ("other", None), ("in", None)):
            driver.create_input_topic(topic, serdes.string, serdes.json).pipe_input("k", value)
            results.append([record.value for record in out.read_records()])
    assert results == [[], [[[1, 2], [1, 2]]], [[[3, 2], [3, 2]]], [None], []]


def test_windows_are_joined_with_a_view_of_themselves() -> None:
    built = builder(value_serde=serdes.json)
    tumbling = windows.tumbling(10, grace_ms=0)
    counts = built.stream("in").group_by_key().windowed_by(tumbling).count(name="Counts")
    joined = counts.join(counts.map_values(negative), pair)
    joined.to_stream().map(lambda key, value: (key.key, value)).to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for time in (1, 2, 11):
            topic.pipe_input("k", 0, timestamp=time)
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        assert [record.value for record in out.read_records()] == [[1, -1], [2, -2], [1, -1]]


def test_what_suppress_lets_go_later_is_joined_with_what_there_is() -> None:
    built = builder(value_serde=serdes.json)
    table = built.table("in", name="Table")
    later = table.suppress(Suppress.until_time_limit(5), name="Later")
    table.left_join(later, pair).to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        for key, value, time in (("a", 1, 0), ("a", 2, 3), ("b", 9, 8)):
            topic.pipe_input(key, value, timestamp=time)
        found = [(record.key, record.value) for record in out.read_records()]
    assert found[:2] == [("a", [1, None]), ("a", [2, None])]
    assert sorted(found[2:]) == [("a", [2, 2]), ("b", [9, None])]


def test_a_change_that_fails_leaves_nothing_behind() -> None:
    def refuse(value: int) -> int:
        if value == 13:
            raise ValueError("no")
        return value * 10

    built = builder(value_serde=serdes.json)
    table = built.table("in", name="Table")
    table.join(table.map_values(refuse), pair).to_stream().to("out")
    settings = {"Table-source": GroupSettings(OnError.DEAD_LETTER, dead_letter_topic="dead")}
    with TopologyTestDriver(built, settings=settings) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        out = driver.create_output_topic("out", serdes.string, serdes.json)
        topic.pipe_input("a", 1)
        topic.pipe_input("b", 13)
        topic.pipe_input("c", 3)
        topic.pipe_input("a", None)
        found = [(record.key, record.value) for record in out.read_records()]
    assert found == [("a", [1, 10]), ("c", [3, 30]), ("a", None)]


def test_other_joins_have_no_marks() -> None:
    built = builder(value_serde=serdes.json)
    left, right = built.table("in", name="Left"), built.table("other", name="Right")
    by_group = left.group_by(lambda key, value: (key, value)).count(name="Counts")
    assert left.join(right, pair).step.operation.common_origins == ()
    assert left.join(by_group, pair).step.operation.common_origins == ()
    assert left.join(left.filter(even), pair).step.operation.common_origins == (left.step,)
