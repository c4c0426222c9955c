"""Steps after a versioned table: a late version replaces no newer value in what has no versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_pipeline import Suppress
from kafka_pipeline.streams.dsl.joining import JoinKind
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, watch
from tests.unit.streams.dsl.running import builder, outputs, pipe

LATE = "k:5@5 k:1@20 k:9@10"
"""A version of 5, then one of 1, and one in between that comes last."""


def above_three(key: str, value: str) -> bool:
    return int(value) > 3


VIEWS: dict[str, tuple[Callable[[Table], Table], str | None]] = {
    "filter": (lambda t: t.filter(above_three, name="F"), None),
    "filter_not": (lambda t: t.filter_not(above_three, name="F"), "1"),
    "map_values": (lambda t: t.map_values(lambda v: v * 2, name="F"), "11"),
    "a view of a view": (
        lambda t: t.map_values(lambda v: v * 2).filter(above_three, name="F"),
        "11",
    ),
    "a view of a view with a store": (
        lambda t: t.filter_not(above_three, name="Small").map_values(lambda v: v * 2, name="F"),
        "11",
    ),
    "join": (lambda t: t.join(t.map_values(lambda v: v * 2), str.__add__, name="F"), "111"),
}


@pytest.mark.parametrize(("step", "value"), VIEWS.values(), ids=VIEWS)
def test_a_late_version_replaces_no_newer_value_in_a_store(
    step: Callable[[Table], Table], value: str | None
) -> None:
    """KAFKA-14834."""
    built = builder()
    watched = watch(step(built.table("in", name="Table", history_retention_ms=1000)))
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE))
        found = driver.get_timestamped_key_value_store("F").get("k")
        assert (None if found is None else found.value) == value
        assert set(driver.dropped_records) == {"out of order"}
    assert not any("9" in result for result in watched)


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT])
def test_a_stream_looks_up_the_newer_value(kind: JoinKind) -> None:
    built = builder()
    table = built.table("in", name="Table", history_retention_ms=1000)
    view = table.filter(above_three, name="F")
    joined = getattr(built.stream("stream"), kind.value)(view, lambda left, right: f"{left}{right}")
    joined.to("out")
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE))
        pipe(driver, inputs("k:x@25", "stream"))
        found = outputs(driver)
    assert found == ([] if kind is JoinKind.INNER else [("k", "xNone", 25)])


def test_a_group_does_not_count_a_late_version_of_a_view() -> None:
    built = builder()
    view = built.table("in", name="Table", history_retention_ms=1000).filter(above_three, name="F")
    watched = watch(view.group_by(lambda key, value: ("all", value)).count())
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE))
    assert watched == ["all=1@5", "all=0@20"]


def test_a_group_counts_what_it_leaves_out() -> None:
    built = builder()
    table = built.table("in", name="Table", history_retention_ms=1000)
    watch(table.group_by(lambda key, value: ("all", value)).count())
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE))
        assert driver.dropped_records == {"out of order": 1}


def test_suppress_keeps_the_newer_value() -> None:
    built = builder()
    table = built.table("in", name="Table", history_retention_ms=1000)
    watched = watch(table.suppress(Suppress.until_time_limit(50), name="Later"))
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE + " k:2@90"))
        assert driver.dropped_records == {"out of order": 1}
    assert watched == ["k=2@90"]


def test_the_stream_of_a_versioned_table_has_late_versions_too() -> None:
    """A table of that stream has the right value if it has versions as well."""
    built = builder()
    stream = built.table("in", name="Table", history_retention_ms=1000).to_stream()
    stream.to("out")
    again = stream.to_table(name="Again", history_retention_ms=1000)
    again.map_values(lambda value: value, name="Latest")
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs(LATE))
        assert outputs(driver) == [("k", "5", 5), ("k", "1", 20), ("k", "9", 10)]
        assert driver.get_timestamped_key_value_store("Latest").get("k") == ("1", 20)
        assert driver.get_versioned_key_value_store("Again").get("k", 15) == ("9", 10, 20)
