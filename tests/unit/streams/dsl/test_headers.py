"""Whose headers a result has: docs/reference/dsl.md, "The headers of results"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncSettings,
    Record,
    StreamsBuilder,
    Suppress,
    agg,
    col,
    serdes,
    windows,
)
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver

Given = tuple[str, str | None, Any, int]
TEN = windows.tumbling(10, grace_ms=0)
SESSIONS = windows.session(5, grace_ms=0)
SLIDING = windows.sliding(5, grace_ms=0)
TABLE_NAMES = ("left table", "right table")


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def grouped(built: StreamsBuilder) -> Any:
    return built.stream("left").group_by_key()


def windowed(built: StreamsBuilder, kind: Any, emit: EmitTime = "on_update") -> Stream:
    table = (
        grouped(built).windowed_by(kind, emit=emit).count(name="Counts", value_serde=serdes.json)
    )
    return stream_of(table)


def stream_of(table: Table) -> Stream:
    """Return the results of windows under plain keys."""
    return table.to_stream().map(lambda key, value: (key.key, value))


def tables(built: StreamsBuilder) -> tuple[Table, Table]:
    return built.table("left", name="Left"), built.table("right", name="Right")


def streams(built: StreamsBuilder) -> tuple[Stream, Stream]:
    return built.stream("left"), built.stream("right")


def joined(built: StreamsBuilder, **arguments: Any) -> Stream:
    left, right = tables(built)
    return left.join(right, pair, name="Joined", **arguments).to_stream()


def joined_with_view(built: StreamsBuilder) -> Stream:
    table = built.table("left", name="Left")
    return table.join(table.map_values(str), pair).to_stream()


def sum_of_group(table: Table) -> Table:
    return table.group_by(lambda key, value: ("all", value), name="All").reduce(
        lambda total, new: total + new, lambda total, old: total - old, name="Sum"
    )


def found(build: Callable[[StreamsBuilder], Stream], given: list[Given]) -> list[Any]:
    """Return, for each result, the names of the records whose headers it has, in one string.

    Record number n has the header n.
    """
    built = StreamsBuilder(
        key_serde=serdes.string, value_serde=serdes.json, allow_generated_names=True
    )
    build(built).to("out")
    with TopologyTestDriver(built) as driver:
        for number, (topic, key, value, time) in enumerate(given):
            writer = driver.create_input_topic(topic, serdes.string, serdes.json)
            headers = [("trace", b"%d" % number), ("empty", None)]
            writer.pipe_input(key, value, timestamp=time, headers=headers)
        records = driver.create_output_topic("out", serdes.string, serdes.json).read_records()
    return [shown(record) for record in records]


def shown(record: Record) -> str:
    names = [name for name, _ in record.headers]
    assert names in ([], ["trace", "empty"])
    return ",".join((value or b"").decode() for name, value in record.headers if name == "trace")


JOIN = windows.join(before_ms=5, after_ms=5, grace_ms=0)
NARROW = windows.join(before_ms=100, after_ms=0, grace_ms=0)
LEFTS: list[Given] = [("left", "a", 1, 0), ("left", "a", 2, 1), ("left", "b", 3, 20)]
BOTH: list[Given] = [("left", "a", 1, 0), ("right", "a", 2, 1), ("left", "a", 3, 2)]

OF_THE_RECORD = {
    "map_values": (lambda b: b.stream("left").map_values(lambda v: v + 1), LEFTS),
    "async map_values": (
        lambda b: b.stream("left").map_values(later, asynchronous=AsyncSettings()),
        LEFTS,
    ),
    "flat_map": (lambda b: b.stream("left").flat_map(lambda k, v: [(k, v)]), LEFTS),
    "merge": (lambda b: b.stream("left").merge(b.stream("right")), BOTH),
    "repartition": (lambda b: b.stream("left").repartition(name="Parted"), LEFTS),
    "expressions": (lambda b: b.stream("left").filter(col("x").is_null()), [("left", "a", {}, 0)]),
    "deduplicate": (lambda b: b.stream("left").deduplicate(within_ms=1, name="Once"), LEFTS),
    "distinct": (
        lambda b: b.stream("left").distinct(by=lambda key, value: value, name="Once"),
        LEFTS,
    ),
    "lag": (lambda b: b.stream("left").lag(name="Last"), LEFTS),
    "count": (
        lambda b: grouped(b).count(name="Counts", value_serde=serdes.json).to_stream(),
        LEFTS,
    ),
    "reduce": (lambda b: grouped(b).reduce(max, name="Max").to_stream(), LEFTS),
    "agg": (lambda b: grouped(b).agg("N", n=agg.count()).to_stream(), LEFTS),
    "top_n": (lambda b: grouped(b).top_n(1, by=lambda k, v: v, name="Top").to_stream(), LEFTS),
    "cogroup": (
        lambda b: (
            grouped(b)
            .cogroup(lambda key, value, total: total + value)
            .aggregate(lambda: 0, name="Total")
            .to_stream()
        ),
        LEFTS,
    ),
    "tumbling": (lambda b: windowed(b, TEN), LEFTS),
    "sliding": (lambda b: windowed(b, SLIDING), LEFTS[:1]),
    "table": (lambda b: tables(b)[0].to_stream(), LEFTS),
    "view": (lambda b: tables(b)[0].map_values(lambda v: v + 1, name="More").to_stream(), LEFTS),
}


async def later(value: int) -> int:
    return value


@pytest.mark.parametrize(("build", "given"), OF_THE_RECORD.values(), ids=OF_THE_RECORD)
def test_a_result_has_the_headers_of_the_record_that_led_to_it(
    build: Callable[[StreamsBuilder], Stream], given: list[Given]
) -> None:
    assert found(build, given) == [str(number) for number in range(len(given))]


OTHERS = {
    "join of streams": (lambda b: streams(b)[0].join(streams(b)[1], pair, JOIN), BOTH, "1 2"),
    "join with itself": (
        lambda b: streams(b)[0].join(streams(b)[0], pair, JOIN),
        LEFTS[:2],
        "0 1 1 1",
    ),
    "left join of streams": (
        lambda b: streams(b)[0].left_join(streams(b)[1], pair, NARROW),
        [("left", "a", 1, 10), ("left", "a", 2, 10), ("right", "b", 3, 11)],
        "0 1",
    ),
    "outer join of streams": (
        lambda b: streams(b)[0].outer_join(streams(b)[1], pair, JOIN),
        [("left", "a", 1, 10), ("right", "b", 2, 11), ("left", "c", 3, 50)],
        "0 1",
    ),
    "left join without a key": (
        lambda b: streams(b)[0].left_join(streams(b)[1], pair, JOIN),
        [("left", None, 1, 10)],
        "0",
    ),
    "join with a table": (
        lambda b: b.stream("left").join(b.table("right", name="Right"), pair),
        [("right", "a", 2, 0), ("left", "a", 1, 1)],
        "1",
    ),
    "join with a table that waits": (
        lambda b: b.stream("left").left_join(
            b.table("right", name="Right", history_retention_ms=9), pair, grace_ms=5, name="Joined"
        ),
        [("left", "a", 1, 1), ("left", "a", 1, 7)],
        "0",
    ),
    "join of tables": (joined, BOTH, "1 2"),
    "join of a table and its view": (joined_with_view, LEFTS, "0 1 2"),
    "foreign key": (lambda b: joined(b, foreign_key=lambda key, value: key), BOTH, "1 2"),
    "group of a table": (lambda b: sum_of_group(tables(b)[0]).to_stream(), LEFTS, "0 1 2"),
    "sessions": (lambda b: windowed(b, SESSIONS), LEFTS, "0 1 1 2"),
    "suppress for a time": (
        lambda b: tables(b)[0].suppress(Suppress.until_time_limit(5), name="Kept").to_stream(),
        LEFTS,
        "1",
    ),
    "suppress until windows close": (
        lambda b: stream_of(
            grouped(b)
            .windowed_by(TEN)
            .count(name="Counts")
            .suppress(Suppress.until_window_closes(), name="Kept")
        ),
        LEFTS,
        "1",
    ),
}


@pytest.mark.parametrize(("build", "given", "expected"), OTHERS.values(), ids=OTHERS)
def test_a_record_that_was_held_back_has_its_own_headers(
    build: Callable[[StreamsBuilder], Stream], given: list[Given], expected: str
) -> None:
    """KAFKA-20413."""
    assert found(build, given) == expected.split()


@pytest.mark.parametrize("kind", [TEN, SESSIONS, SLIDING], ids=["tumbling", "session", "sliding"])
def test_what_time_alone_makes_has_no_headers(kind: Any) -> None:
    results = found(lambda b: windowed(b, kind, "on_close"), LEFTS)
    assert results
    assert set(results) == {""}


def test_unmatched_records_of_one_time_have_their_own_headers() -> None:
    def build(built: StreamsBuilder) -> Stream:
        left, right = streams(built)
        return left.left_join(right, pair, NARROW)

    given: list[Given] = [("left", "a", number, 10) for number in range(3)]
    given.append(("right", "b", 9, 11))
    assert found(build, given) == ["0", "1", "2"]
