"""Where Kafka Streams gives another result: docs/explanation/kafka_streams.md says which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kafka_pipeline import StreamsBuilder, serdes, windows
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.dsl.windows import SessionWindows, SlidingWindows
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.join_cases import JoinCase, Watching, check
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.dsl.test_stream_joins import joiner


def results_of(build: Callable[[StreamsBuilder], Stream], *lines: str) -> None:
    """Check the results of inputs of the topics `left` and `right`, as in the files of cases."""
    built, results = builder(), list[str]()
    build(built).process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def counts_by_count(table: Table) -> Stream:
    """Count how many keys have each count."""
    grouped = table.group_by(lambda key, count: (str(count), str(count)), key_serde=serdes.string)
    return grouped.count(name="Keys").to_stream()


def test_the_first_aggregate_of_a_key_has_no_old_value() -> None:
    def build(built: StreamsBuilder) -> Stream:
        counts = built.stream("left").group_by_key().count(name="Counts")
        return counts.filter(lambda key, count: count > 1).to_stream()

    results_of(build, "left a:x@1 ->", "left a:x@2 -> a=2@2", "left b:x@3 ->")


def test_a_group_of_a_table_subtracts_nothing_for_the_first_aggregate_of_a_key() -> None:
    def build(built: StreamsBuilder) -> Stream:
        return counts_by_count(built.stream("left").group_by_key().count(name="Counts"))

    results_of(build, "left a:x@1 -> 1=1@1", "left a:x@2 -> 1=0@2 2=1@2")


def test_a_session_that_keeps_its_bounds_has_its_old_value() -> None:
    def build(built: StreamsBuilder) -> Stream:
        sessions = windows.session(10, grace_ms=0)
        windowed = built.stream("left").group_by_key().windowed_by(sessions)
        return counts_by_count(windowed.count(name="Counts"))

    results_of(build, "left a:x@1 -> 1=1@1", "left a:x@1 -> 1=0@1 2=1@1")


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (
            windows.session(3, grace_ms=0),
            (
                "left a:x@12 -> a[12,12]=1@12",
                "left b:x@15 -> b[15,15]=1@15",
                "left a:x@15 -> a[12,12]=null@12 a[12,15]=2@15",
            ),
        ),
        (
            windows.sliding(5, grace_ms=3),
            (
                "left a:x@10 -> a[5,10]=1@10",
                "left b:x@18 -> b[13,18]=1@18",
                "left b:x@17 -> b[13,18]=2@18 b[12,17]=1@17 b[18,23]=1@18",
                "left a:x@15 -> a[11,16]=1@15 a[10,15]=2@15",
            ),
        ),
    ],
)
def test_a_record_at_the_last_moment_is_in_its_session_and_sliding_windows(
    given: SessionWindows | SlidingWindows, lines: tuple[str, ...]
) -> None:
    def build(built: StreamsBuilder) -> Stream:
        return built.stream("left").group_by_key().windowed_by(given).count(name="C").to_stream()

    results_of(build, *lines)


def test_a_join_of_streams_without_width_and_grace_meets_records_of_one_time() -> None:
    def build(built: StreamsBuilder) -> Stream:
        window = windows.join(before_ms=0, after_ms=0, grace_ms=0)
        return built.stream("left").join(built.stream("right"), joiner, window, name="Joined")

    results_of(build, "left a:x@5 ->", "right a:y@5 -> a=x+y@5", "right a:z@6 ->")


def test_a_record_without_a_value_lets_no_record_of_a_join_expire() -> None:
    def build(built: StreamsBuilder) -> Stream:
        window = windows.join(before_ms=3, after_ms=3, grace_ms=0)
        return built.stream("left").join(built.stream("right"), joiner, window, name="Joined")

    results_of(build, "left a:x@5 b:null@300000 ->", "right a:y@5 -> a=x+y@5")


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_an_empty_string_is_a_value_of_the_right_side_of_a_foreign_key_join(kind: str) -> None:
    def build(built: StreamsBuilder) -> Stream:
        left = built.table("left", name="Left")
        right = built.table("right", name="Right").map_values(lambda value: value[1:])
        join = left.join if kind == "join" else left.left_join
        table = join(right, joiner, foreign_key=lambda value: value, name="Joined")
        return table.to_stream()

    results_of(build, "right r:x@1 ->", "left a:r@2 -> a=r+@2")


def test_a_left_join_that_waits_for_the_table_forwards_records_without_a_key() -> None:
    def build(built: StreamsBuilder) -> Stream:
        table = built.table("right", name="Table", history_retention_ms=100)
        return built.stream("left").left_join(table, joiner, grace_ms=5, name="Joined")

    results_of(build, "left null:x@1 -> null=x+null@1")


SELF_JOINS = {
    # At 18, 8 is late.
    "join": ("left a:x@17 -> a=x+x@17", "left b:y@8 -> b=y+y@8"),
    "left_join": ("left null:x@1 -> null=x+null@1", "left a:y@2 -> a=y+y@2"),
    "outer_join": ("left null:x@1 -> null=x+null@1 null=null+x@1", "left a:y@2 -> a=y+y@2"),
}


@pytest.mark.parametrize("method", SELF_JOINS)
def test_a_self_join_loses_neither_the_last_that_is_not_late_nor_records_without_a_key(
    method: str,
) -> None:
    def build(built: StreamsBuilder) -> Stream:
        window = windows.join(before_ms=5, after_ms=5, grace_ms=0)
        stream = built.stream("left")
        joined: Stream = getattr(stream, method)(stream, joiner, window, name="Joined")
        return joined

    results_of(build, *SELF_JOINS[method])
