"""deduplicate, distinct, lag, and map_values with an async function."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncSettings,
    InvalidArgumentError,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    col,
    serdes,
)
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import of_json, outputs, pipe

Given = tuple[str | None, Any, int]


def run(built: StreamsBuilder, records: list[Given]) -> list[Any]:
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, value, time in records:
            topic.pipe_input(key, value, timestamp=time)
        return outputs(driver, "out", serdes.string, serdes.json)


def test_repeats_within_a_time_are_dropped() -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=10, grace_ms=9, name="Once").to("out")
    found = run(
        built,
        [
            ("a", 1, 100),
            ("a", 2, 109),  # within the time
            ("b", 3, 109),  # another key
            ("a", 4, 110),  # after the time, which 109 has not prolonged
            ("a", 5, 101),  # late, and within the time of 110
            ("b", 6, 101),  # late, and within the time after it
            ("c", 7, 101),  # late, but the first
            ("d", 8, 100),  # too late to tell
            (None, 9, 110),
            ("b", None, 119),
        ],
    )
    assert found == [("a", 1, 100), ("b", 3, 109), ("a", 4, 110), ("c", 7, 101), ("b", None, 119)]


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        ({}, [1, 3, 5]),
        ({"grace_ms": timedelta(seconds=2)}, [1, 3]),
        ({"grace_ms": 1_999}, [1, 4]),
        ({"grace_ms": 0}, [1]),
    ],
)
def test_records_of_a_writer_that_is_behind_pass_within_the_grace_period(
    grace: dict[str, Any], expected: list[int]
) -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=1_000, name="Once", **grace).to("out")
    records: list[Given] = [
        ("a", 1, 100_000),
        ("a", 2, 100_000),
        ("b", 3, 98_000),
        ("b", 4, 98_999),  # repeats it, if that has passed
        ("b", 5, 40_000),  # a minute behind
        ("b", 6, 39_999),
    ]
    assert [value for _, value, _ in run(built, records)] == expected


def test_a_repeat_is_found_at_the_end_of_the_grace_period() -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=10, grace_ms=50, name="Once").to("out")
    found = run(built, [("a", 1, 41), ("b", 2, 100), ("a", 3, 50), ("a", 4, 51), ("a", 5, 59)])
    assert [value for _, value, _ in found] == [1, 2, 4]


def test_by_default_the_grace_period_is_the_time_if_that_is_long() -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=3_600_000, name="Once").to("out")
    found = run(built, [("a", 1, 10_000_000), ("b", 2, 6_400_000), ("c", 3, 6_399_999)])
    assert [value for _, value, _ in found] == [1, 2]


def test_what_is_dropped_is_counted() -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=10, grace_ms=9, name="Once").to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, time in [("a", 100), ("a", 105), ("b", 90), (None, 100)]:
            topic.pipe_input(key, 1, timestamp=time)
        assert driver.dropped_records == {"expired": 1, "null key": 1}


def test_by_tells_records_of_a_key_apart() -> None:
    built = of_json()
    built.stream("in").deduplicate(within_ms=10, by=col("id"), name="Once").to("out")
    values = [{"id": 1, "x": 1}, {"id": 2}, {"id": 1, "x": 2}, {}, {"id": None}]
    found = run(built, [("a", value, 0) for value in values])
    assert [value for _, value, _ in found] == [{"id": 1, "x": 1}, {"id": 2}, {}]


def test_distinct_keeps_the_first_forever() -> None:
    built = of_json()
    built.stream("in").distinct(by=lambda key, value: value % 3, name="Once").to("out")
    found = run(built, [("a", 1, 0), ("a", 4, 10**12), ("a", 2, 5), ("b", 1, 0), ("a", 1, 1)])
    assert found == [("a", 1, 0), ("a", 2, 5), ("b", 1, 0)]


def test_a_batch_gives_the_same_as_its_records() -> None:
    records = [("a", index % 3, index * 4 % 21) for index in range(60)]
    found = []
    for as_batch in (False, True):
        built = of_json()
        stream = built.stream("in").filter(lambda key, value: True)
        stream.deduplicate(within_ms=7, by=lambda key, value: value, name="Once").to("out")
        with TopologyTestDriver(built) as driver:
            topic = driver.create_input_topic("in", serdes.string, serdes.json)
            if as_batch:
                topic.pipe_batch([Record(*each) for each in records])
            else:
                for key, value, time in records:
                    topic.pipe_input(key, value, timestamp=time)
            found.append(outputs(driver, "out", serdes.string, serdes.json))
    assert found[0] == found[1]
    assert 3 < len(found[0]) < 60


def test_lag_pairs_each_value_with_one_before() -> None:
    built = of_json()
    lagged = built.stream("in").lag(2, name="Before")
    lagged.filter(col("previous").is_not_null()).map_values(col("current") - col("previous")).to(
        "out"
    )
    found = run(
        built, [("a", 1, 9), ("b", 5, 0), ("a", 2, 8), ("a", 4, 7), ("a", None, 6), ("a", 9, 5)]
    )
    assert found == [("a", 3, 7), ("a", None, 6), ("a", 5, 5)]


def test_lag_counts_nulls() -> None:
    built = of_json()
    built.stream("in").lag(name="Before").to("out")
    found = run(built, [("a", 1, 0), ("a", None, 0), ("a", 2, 0)])
    assert [value for _, value, _ in found] == [
        {"current": 1, "previous": None},
        {"current": None, "previous": 1},
        {"current": 2, "previous": None},
    ]


@pytest.mark.parametrize(("n", "previous"), [(1, 3), (2, 2), (3, 1), (4, None)])
def test_lag_goes_on_with_what_another_lag_has_kept(n: int, previous: int | None) -> None:
    built = of_json()
    built.stream("in").lag(n, name="Before").to("out")
    with TopologyTestDriver(built) as driver:
        driver.get_key_value_store("Before").put("a", [1, 2, 3])
        pipe(driver, [("in", "a", 4, 0), ("in", "a", 5, 0)], value_serde=serdes.json)
        found = outputs(driver, value_serde=serdes.json)
        kept = driver.get_key_value_store("Before").get("a")
    assert found[0][1] == {"current": 4, "previous": previous}
    assert kept == [1, 2, 3, 4, 5][-n:]


def test_a_changed_key_comes_through_a_repartition() -> None:
    built = of_json()
    built.stream("in").select_key(col("id")).distinct(name="Once").to("out")
    assert "Once-by-key-repartition" in built.describe()
    found = run(built, [("a", {"id": "x"}, 0), ("b", {"id": "x"}, 0), ("c", {"id": None}, 0)])
    assert found == [("x", {"id": "x"}, 0)]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda s: s.deduplicate(within_ms=0, name="A"),
            "deduplicate has within_ms=0: give",
        ),
        (
            lambda s: s.deduplicate(within_ms=1, grace_ms=-1, name="A"),
            "deduplicate has grace_ms=-1: give a timedelta",
        ),
        (lambda s: s.lag(0, name="A"), "lag goes back by 1 record or more, not 0"),
        (lambda s: s.distinct(), "needs a name for its store"),
        (lambda s: s.distinct(name="A", by="id"), 'distinct "A" takes a function of key and'),
    ],
)
def test_bad_calls_are_refused(step: Any, message: str) -> None:
    with pytest.raises((TopologyError, InvalidArgumentError), match=message):
        step(of_json().stream("in"))


def test_by_gives_what_json_can_hold() -> None:
    built = of_json()
    built.stream("in").distinct(by=lambda key, value: {1}, name="Once").to("out")
    with pytest.raises(StreamsError, match="by gives a set, which cannot be compared"):
        run(built, [("a", 1, 0)])


def test_by_gives_no_dict_whose_names_json_would_make_text() -> None:
    built = of_json()
    built.stream("in").distinct(by=lambda key, value: {value: 1}, name="Once").to("out")
    with pytest.raises(StreamsError, match="a dict with a name that is a int"):
        run(built, [("a", 1, 0)])


# map_values with an async function


async def enrich(value: Any) -> Any:
    await asyncio.sleep(0)
    return {**value, "price": value["id"] * 2}


def test_async_functions_map_values_in_order() -> None:
    built = of_json()
    settings = AsyncSettings(max_in_flight=3, timeout_ms=5_000)
    prices = built.stream("in").map_values(enrich, name="Enrich", asynchronous=settings)
    prices.filter(col("price") > 2).map_values(col("price")).to("out")
    found = run(built, [("a", {"id": index}, index) for index in range(5)])
    assert found == [("a", 2 * index, index) for index in range(2, 5)]


def test_async_functions_may_follow_a_repartition() -> None:
    built = of_json()
    again = built.stream("in").repartition(name="Again")
    again.map_values(enrich, name="Enrich").map_values(col("price")).to("out")
    assert run(built, [("a", {"id": 4}, 0)]) == [("a", 8, 0)]


def test_an_async_function_that_raises_rejects_its_record() -> None:
    built = of_json()
    built.stream("in").map_values(enrich, name="Enrich").to("out")
    with pytest.raises(KeyError, match="id"):
        run(built, [("a", {}, 0)])


def test_async_functions_elsewhere_are_refused() -> None:
    stream = of_json().stream("in")
    with pytest.raises(TopologyError, match=r'directly after a stream.*not after filter "Late"'):
        stream.filter(col("late"), name="Late").map_values(enrich)
    with pytest.raises(TopologyError, match=r"filter takes .* not an async one: only map_values"):
        stream.filter(enrich)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match='map_values "E" has max_in_flight=0'):
        stream.map_values(enrich, name="E", asynchronous=AsyncSettings(max_in_flight=0))
    with pytest.raises(TopologyError, match="not an async one"):
        of_json().table("in", name="T").map_values(enrich)


def test_the_source_of_an_async_function_feeds_nothing_else() -> None:
    built = of_json()
    stream = built.stream("in", name="In")
    stream.map_values(enrich, name="Enrich").to("out")
    stream.to("copy", name="Copy")
    with pytest.raises(TopologyError, match='"In" feeds to "Copy" too: let that follow'):
        built.build()
