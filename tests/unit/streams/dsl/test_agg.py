"""Aggregations of column expressions, with and without windows; top_n."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import (
    StreamsBuilder,
    StreamsError,
    TopologyError,
    agg,
    col,
    serdes,
    timestamp,
    value,
    windows,
)
from kafka_pipeline.streams.dsl.aggregations import STATES
from kafka_pipeline.streams.dsl.distinct_count import EXACT, DistinctCount
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import of_json, outputs

FIELDS: dict[str, Any] = {
    "n": agg.count(),
    "known": agg.count(col("d")),
    "total": agg.sum(col("d")),
    "mean": agg.avg(col("d")),
    "least": agg.min(col("d")),
    "most": agg.max(col("d")),
    "first": agg.first(col("d")),
    "last": agg.last(col("d")),
    "kinds": agg.approx_distinct(col("d")),
}
NAN = float("nan")


def results(built: StreamsBuilder, values: list[Any], key_serde: Any = serdes.string) -> list[Any]:
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for time, each in values:
            topic.pipe_input("k", each, timestamp=time)
        return [found for _, found, _ in outputs(driver, "out", key_serde, serdes.json)]


def test_each_aggregation() -> None:
    built = of_json()
    built.stream("in").group_by_key().agg("A", **FIELDS).to_stream().to("out")
    found = results(built, [(0, {"d": None}), (1, {"d": 3}), (2, {"d": 1.5}), (3, {"d": 3})])
    nothing = dict.fromkeys(("total", "mean", "least", "most", "first", "last"))
    assert found[0] == {"n": 1, "known": 0, **nothing, "kinds": 0}
    assert found[-1] == {
        "n": 4,
        "known": 3,
        "total": 7.5,
        "mean": 2.5,
        "least": 1.5,
        "most": 3,
        "first": 3,
        "last": 3,
        "kinds": 2,
    }


def test_sums_of_integers_are_exact() -> None:
    built = of_json()
    grouped = built.stream("in").group_by_key()
    grouped.agg("A", total=agg.sum(col("d"))).to_stream().to("out")
    assert results(built, [(0, {"d": 2**63}), (1, {"d": 1})])[-1] == {"total": 2**63 + 1}


def test_windows_have_aggregations_too() -> None:
    built = of_json()
    windowed = (
        built.stream("in")
        .group_by_key()
        .windowed_by(windows.tumbling(10, grace_ms=0), emit="on_close")
    )
    table = windowed.agg("A", mean=agg.avg(col("d")), n=agg.count())
    table.to_stream().to("out")
    key_serde = serdes.time_windowed(serdes.string, size_ms=10)
    values = [(0, {"d": 1}), (5, {"d": 2}), (10, {"d": 7}), (20, {"d": 1})]
    assert results(built, values, key_serde) == [{"mean": 1.5, "n": 2}, {"mean": 7.0, "n": 1}]


def test_sessions_merge_aggregations() -> None:
    built = of_json()
    sessions = built.stream("in").group_by_key().windowed_by(windows.session(10, grace_ms=99))
    sessions.agg("A", **FIELDS).to_stream().to("out")
    values = [(0, {"d": 1}), (20, {"d": 5.5}), (10, {"d": None})]
    found = results(built, values, serdes.session_windowed(serdes.string))
    assert found[-1] == {
        "n": 3,
        "known": 2,
        "total": 6.5,
        "mean": 3.25,
        "least": 1,
        "most": 5.5,
        "first": 1,
        "last": 5.5,
        "kinds": 2,
    }


def test_values_of_any_shape_can_be_first_and_last() -> None:
    built = of_json()
    grouped = built.stream("in").group_by_key()
    grouped.agg("A", a=agg.first(value()), b=agg.last(value())).to_stream().to("out")
    one, two = {"bytes": "x", "d": [1, {"e": None}]}, {"bytes": "eA=="}
    assert results(built, [(0, one), (0, two)])[-1] == {"a": one, "b": two}


@pytest.mark.parametrize(
    ("aggregation", "values", "message"),
    [
        (agg.sum(col("d")), ["x"], r'x=agg.sum\(col\("d"\)\): this takes numbers, not a str'),
        (agg.sum(col("d")), [True], "this takes numbers, not a bool"),
        (agg.max(col("d")), [1, "x"], "no order between an int and a str"),
        (agg.min(col("d")), [[1]], "have an order, not a list"),
        (agg.sum(col("d") / 0), [1], "division by zero"),
        (agg.sum(col("d.e")), [1], "is an int, not a dict"),
        (agg.sum(col("d")), [2**2000, 0.5], "too large for a float"),
    ],
)
def test_a_bad_value_is_refused_by_name(aggregation: Any, values: list[Any], message: str) -> None:
    built = of_json()
    grouped = built.stream("in").group_by_key()
    grouped.agg("Delays", x=aggregation).to_stream().to("out")
    with pytest.raises(StreamsError, match=f'agg "Delays", x=.*{message[-20:]}') as raised:
        results(built, [(0, {"d": each}) for each in values])
    raised.match(message)


@pytest.mark.parametrize("aggregation", [agg.first, agg.last, agg.approx_distinct])
def test_names_that_json_would_make_text_are_refused(aggregation: Any) -> None:
    built = of_json()
    by_hour = built.stream("in").map_values(lambda value: {"hours": [{7: value["d"]}]})
    by_hour.group_by_key(value_serde=STATES).agg("A", x=aggregation(col("hours")))
    with pytest.raises(StreamsError, match=r"what JSON can hold: names are strings, not an? int"):
        results(built, [(0, {"d": 1})])


def test_a_histogram_with_numbers_for_names_is_refused_before_it_counts_wrong() -> None:
    def add(key: str, value: dict[str, int], counts: dict[Any, int]) -> dict[Any, int]:
        counts[value["hour"]] = counts.get(value["hour"], 0) + 1
        return counts

    built = of_json()
    grouped = built.stream("in").group_by_key()
    grouped.aggregate(dict, add, name="Hours", value_serde=serdes.json).to_stream().to("out")
    with pytest.raises(StreamsError, match="the name 7 in it is a int: names in JSON are strings"):
        results(built, [(0, {"hour": 7}), (1, {"hour": 7})])


def test_bad_calls_are_refused() -> None:
    grouped = of_json().stream("in").group_by_key()
    with pytest.raises(TopologyError, match=r'agg "A" has n=7: give an aggregation of agg'):
        grouped.agg("A", n=7)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="own arguments come first, by position"):
        grouped.agg(n=agg.count(), name="A")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="that place is for the name of the step"):
        grouped.agg(agg.count())  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="has no fields: give some"):
        grouped.agg("A")
    with pytest.raises(TopologyError, match="there is no timestamp here"):
        grouped.agg("A", n=agg.max(timestamp()))


def test_a_field_may_have_any_name() -> None:
    built = of_json()
    names = ("name", "self", "value_serde", "initializer", "adder", "merger")
    fields = dict.fromkeys(names, agg.count())
    grouped = built.stream("in").group_by_key()
    grouped.agg("A", **fields).to_stream().to("out")
    assert results(built, [(0, {})]) == [dict.fromkeys(names, 1)]


def test_the_arguments_before_the_fields() -> None:
    built = StreamsBuilder(key_serde=serdes.string)
    grouped = built.stream("in", value_serde=serdes.json).group_by_key()
    table = grouped.agg("A", serdes.json, 1_000, n=agg.count())
    table.to_stream().to("out")
    assert table.is_versioned
    assert results(built, [(0, {}), (1, {})]) == [{"n": 1}, {"n": 2}]


# The groups of a table


def of_groups(rows: list[tuple[str, Any]]) -> list[Any]:
    """Return the results of one group, to which a row belongs whose value is not null."""
    built = of_json()
    groups = built.table("in", name="Rows").group_by(lambda key, row: ("all", row), name="ByAll")
    table = groups.agg(
        "A",
        n=agg.count(),
        known=agg.count(col("d")),
        total=agg.sum(col("d")),
        mean=agg.avg(col("d")),
    )
    table.to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, row in rows:
            topic.pipe_input(key, row)
        return [found for _, found, _ in outputs(driver, "out", serdes.string, serdes.json)]


def test_groups_of_a_table_take_old_values_out() -> None:
    rows = [("a", {"d": 3}), ("b", {"d": None}), ("b", {"d": 4}), ("a", {"d": 8}), ("b", None)]
    assert of_groups([*rows, ("a", None)]) == [
        {"n": 1, "known": 1, "total": 3, "mean": 3.0},
        {"n": 2, "known": 1, "total": 3, "mean": 3.0},
        {"n": 2, "known": 2, "total": 7, "mean": 3.5},
        {"n": 2, "known": 2, "total": 12, "mean": 6.0},
        {"n": 1, "known": 1, "total": 8, "mean": 8.0},
        {"n": 0, "known": 0, "total": None, "mean": None},
    ]


def test_what_is_taken_out_of_a_sum_leaves_no_rounding_error() -> None:
    rows = [("a", {"d": 1e16}), ("b", {"d": 0.1}), ("c", {"d": 2}), ("a", None), ("b", None)]
    found = of_groups(rows)
    assert [each["total"] for each in found] == [1e16, 1e16, 1e16 + 2, 2.1, 2]
    assert type(found[-1]["total"]) is int


@given(st.lists(st.integers() | st.floats(-1e9, 1e9)), st.lists(st.floats(-1e300, 1e300)))
def test_a_sum_is_that_of_the_numbers_that_are_left(kept: list[Any], gone: list[float]) -> None:
    kind = agg.sum(col("d")).kind.of_table
    assert kind is not None
    state = None
    for number in [*gone, *kept]:
        state = kind.add(state, number)
    for number in gone:
        state = kind.subtract(state, number)
    state = STATES.deserialize(STATES.serialize(state))
    exact = sum(map(Fraction, kept)) if kept else None
    assert kind.result(state) == (float(exact) if exact and float in map(type, kept) else exact)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([NAN], "a sum of a table takes finite numbers, not nan"),
        (["x"], "this takes numbers, not a str"),
        ([1.7e308, 1.7e308], "a sum that is too large for a float"),
        ([2**2000, 0.5], "a sum that is too large for a float"),
    ],
)
def test_groups_refuse_numbers_that_have_no_sum(values: list[Any], message: str) -> None:
    built = of_json()
    rows = built.table("in", name="Rows", value_serde=STATES)
    groups = rows.group_by(lambda key, row: ("all", row), name="ByAll", value_serde=STATES)
    groups.agg("A", total=agg.sum(value())).to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, STATES)
        *before, last = enumerate(values)
        for number, each in before:
            topic.pipe_input(str(number), each)
        with pytest.raises(StreamsError, match=rf'agg "A", total=agg.sum\(.*\): {message}'):
            topic.pipe_input(str(last[0]), last[1])


@pytest.mark.parametrize(
    "aggregation", [agg.min, agg.max, agg.first, agg.last, agg.approx_distinct]
)
def test_groups_refuse_what_cannot_take_values_out(aggregation: Any) -> None:
    groups = of_json().table("in", name="Rows").group_by(lambda key, row: (key, row), name="By")
    verb = aggregation.__name__
    message = rf'agg "A" has worst=agg.{verb}\(.*, which agg.{verb} cannot do; give agg.count'
    with pytest.raises(TopologyError, match=message):
        groups.agg("A", n=agg.count(), worst=aggregation(col("d")))


STATE = st.none() | st.integers() | st.floats() | st.text() | st.binary()


@given(st.lists(STATE | st.lists(STATE, max_size=2), max_size=4))
def test_states_come_back_exactly(states: list[Any]) -> None:
    assert repr(STATES.deserialize(STATES.serialize(states))) == repr(states)


@given(st.lists(st.integers(-5, 5) | st.floats(-2, 2), max_size=8), st.integers(0, 8))
def test_merged_states_give_what_all_values_give(values: list[Any], cut: int) -> None:
    for each in (agg.count, agg.min, agg.max, agg.first, agg.last, agg.approx_distinct):
        kind = each(col("d")).kind
        states: list[Any] = [None, None, None]
        for index, item in enumerate(values):
            states[2] = kind.add(states[2], item)
            side = int(index >= cut)
            states[side] = kind.add(states[side], item)
        if states[0] is None or states[1] is None:
            continue
        assert kind.result(kind.merge(states[0], states[1])) == kind.result(states[2])


VALUES = st.lists(st.integers() | st.floats() | st.text() | st.binary(), max_size=3)


@given(st.lists(VALUES, min_size=1, max_size=4), VALUES.filter(bool))
def test_a_value_is_added_to_each_of_several_states_as_to_one(
    before: list[list[Any]], values: list[Any]
) -> None:
    """Also one that is refused for one of them."""
    for name, aggregation in FIELDS.items():
        add, states = aggregation.kind.add, [None] * len(before)
        for index, given_before in enumerate(before):
            with suppress(StreamsError):
                for each in given_before:
                    states[index] = add(states[index], each)
        kept = repr(states)
        try:
            wanted = repr([add(state, values[0]) for state in states])
        except StreamsError as error:
            with pytest.raises(StreamsError, match=re.escape(str(error))):
                aggregation.kind.add_to_each(states, values[0])
        else:
            assert repr(aggregation.kind.add_to_each(states, values[0])) == wanted, name
        assert repr(states) == kept


def test_nan_is_an_extreme_only_alone() -> None:
    kind = agg.max(col("d")).kind
    assert kind.add(kind.add(None, NAN), 1.0) == 1.0
    assert kind.add(kind.add(None, 1.0), NAN) == 1.0


# approx_distinct


@pytest.mark.parametrize("count", [1, EXACT])
def test_few_values_are_counted_exactly(count: int) -> None:
    sketch = DistinctCount()
    for number in [*range(count), *range(count)]:
        sketch.add(number)
    assert sketch.estimate() == count


@pytest.mark.parametrize("count", [EXACT + 1, 2_000, 11_000, 40_000])
def test_many_values_are_counted_within_four_standard_errors(count: int) -> None:
    sketch, half, other = DistinctCount(), DistinctCount(), DistinctCount()
    for number in range(count):
        sketch.add(f"plane {number}")
        (half if number % 2 else other).add(f"plane {number}")
    assert abs(sketch.estimate() / count - 1) < 4 * 0.01625
    half.merge(other)
    assert half.state == sketch.state


def test_the_state_does_not_depend_on_the_order() -> None:
    numbers = list(range(1_000))
    states = set()
    for seed in range(3):
        random.Random(seed).shuffle(numbers)
        sketch = DistinctCount()
        for number in numbers:
            sketch.add(number)
        states.add(sketch.state)
    assert len(states) == 1


def test_what_is_the_same_value() -> None:
    sketch = DistinctCount()
    for each in (1, 1.0, True, "1", b"1", 0.0, -0.0, NAN, [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}):
        sketch.add(each)
    assert sketch.estimate() == 8
    with pytest.raises(StreamsError, match="not a set"):
        sketch.add({1})


# top_n


def test_top_n_keeps_the_largest_and_the_first_of_equals() -> None:
    built = of_json()
    grouped = built.stream("in").group_by_key()
    grouped.top_n(2, by=col("d"), name="Top").to_stream().to("out")
    values = [("a", 1), ("b", 3), ("c", None), ("d", 3), ("e", 7)]
    found = results(built, [(0, {"id": name, "d": d}) for name, d in values])
    assert [[each["id"] for each in top] for top in found] == [
        ["a"],
        ["b", "a"],
        ["b", "a"],
        ["b", "d"],
        ["e", "b"],
    ]


def test_top_n_of_sessions_ascending_by_a_function() -> None:
    built = of_json()
    sessions = built.stream("in").group_by_key().windowed_by(windows.session(10, grace_ms=99))
    table = sessions.top_n(2, by=lambda key, value: value["d"], ascending=True, name="Top")
    table.to_stream().to("out")
    values = [(0, {"d": 4}), (20, {"d": 2}), (10, {"d": 3})]
    found = results(built, values, serdes.session_windowed(serdes.string))
    assert found[-1] == [{"d": 2}, {"d": 3}]


def test_top_n_refuses() -> None:
    built = of_json()
    grouped = built.stream("in").group_by_key()
    with pytest.raises(TopologyError, match='top_n "T" keeps 1 value or more, not 0'):
        grouped.top_n(0, by=col("d"), name="T")
    grouped.top_n(2, by=col("d"), name="T").to_stream().to("out")
    with pytest.raises(StreamsError, match='top_n "T": by gives numbers or strings, not a list'):
        results(built, [(0, {"d": [1]})])
    with pytest.raises(StreamsError, match='top_n "T": by gives int and str, which have no order'):
        results(built, [(0, {"d": 1}), (0, {"d": "x"})])
