"""Suppression: the cases of SuppressScenarioTest and GraphGraceSearchUtilTest as data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, windows
from kafka_pipeline.streams.dsl.suppress import close_delay_ms
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.join_cases import JoinCase, Watching, check
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.dsl.test_stream_joins import joiner

Make = Callable[[StreamsBuilder], Table]


def value_counts(built: StreamsBuilder) -> Table:
    """Count the keys of each value, as SuppressScenarioTest does."""
    table = built.table("in", name="Table")
    return table.group_by(lambda key, value: (value, key), name="ByValue").count(name="Counts")


def tumbling(built: StreamsBuilder, size_ms: int = 2, grace_ms: int = 1) -> Table:
    windowed = windows.tumbling(size_ms, grace_ms=grace_ms)
    return built.stream("in").group_by_key().windowed_by(windowed).count(name="Tumbling")


def sessions(built: StreamsBuilder) -> Table:
    windowed = windows.session(5, grace_ms=2)
    return built.stream("in").group_by_key().windowed_by(windowed).count(name="Sessions")


def sliding(built: StreamsBuilder) -> Table:
    windowed = windows.sliding(5, grace_ms=3)
    return built.stream("in").group_by_key().windowed_by(windowed).count(name="Sliding")


FIRST = "in k1:v1@0 k1:v2@1 k2:v1@2"
CASES: dict[str, tuple[Make, Suppress, tuple[str, ...]]] = {
    "shouldImmediatelyEmitEventsWithZeroEmitAfter": (
        value_counts,
        Suppress.until_time_limit(0),
        (f"{FIRST} -> v1=1@0 v1=0@1 v2=1@1 v1=1@2", "in x:x@3 -> x=1@3"),
    ),
    "shouldSuppressIntermediateEventsWithTimeLimit": (
        value_counts,
        Suppress.until_time_limit(2),
        (f"{FIRST} -> v1=1@2", "in tick:tick@3 -> v2=1@1", "in tick:tick@4 ->"),
    ),
    "shouldSuppressIntermediateEventsWithRecordLimit": (
        value_counts,
        Suppress.until_time_limit(2**60, max_records=1),
        (f"{FIRST} -> v1=0@1 v2=1@1", "in x:x@3 -> v1=1@2"),
    ),
    "a limit in bytes that nothing fits into": (
        value_counts,
        Suppress.until_time_limit(2**60, max_bytes=1),
        (f"{FIRST} -> v1=1@0 v1=0@1 v2=1@1 v1=1@2",),
    ),
    "an update keeps the place of the first one": (
        lambda built: built.table("in", name="Table"),
        Suppress.until_time_limit(10),
        ("in a:1@0 b:1@1 a:2@9 ->", "in c:1@11 -> a=2@9 b=1@1"),
    ),
    "deletions go out after a time": (
        lambda built: built.table("in", name="Table"),
        Suppress.until_time_limit(1),
        ("in a:1@0 a:null@1 -> a=null@1",),
    ),
    "shouldSupportFinalResultsForTimeWindows": (
        tumbling,
        Suppress.until_window_closes(),
        (
            "in k1:v1@0 k1:v1@1 k1:v1@2 k1:v1@1 k1:v1@0 ->",
            "in k1:v1@5 -> k1[0,2]=4@1 k1[2,4]=1@2",
            "in k1:v1@0 ->",
        ),
    ),
    "shouldSupportFinalResultsForSessionWindows, of the gap and the grace": (
        sessions,
        Suppress.until_window_closes(),
        ("in k1:v1@0 k1:v1@5 ->", "in k2:v1@12 ->", "in k2:v1@13 -> k1[0,5]=2@5"),
    ),
    "shouldSupportFinalResultsForSlidingWindows": (
        sliding,
        Suppress.until_window_closes(),
        ("in k1:v1@10 ->", "in k2:v1@13 ->", "in k3:v1@14 -> k1[5,10]=1@10"),
    ),
}


@pytest.mark.parametrize(("make", "suppress", "lines"), CASES.values(), ids=CASES)
def test_cases_of_kafka_streams(make: Make, suppress: Suppress, lines: tuple[str, ...]) -> None:
    built, results = builder(), list[str]()
    table = make(built).suppress(suppress, name="Kept")
    table.to_stream().process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def test_windows_that_were_merged_away_are_never_forwarded() -> None:
    built, results = builder(), list[str]()
    table = sessions(built).suppress(Suppress.until_window_closes(), name="Kept")
    table.to_stream().process(partial(Watching, results))
    lines = ("in a:1@0 a:1@6 a:1@4 ->", "in b:1@30 -> a[0,6]=3@6")
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (sliding, ("in a:1@10 b:1@13 a:1@10 ->", "in b:1@14 -> a[5,10]=2@10")),
        (sessions, ("in a:1@10 b:1@17 a:1@10 ->", "in b:1@18 -> a[10,10]=2@10")),
    ],
)
def test_a_window_that_its_end_belongs_to_is_forwarded_after_the_last_record_of_it(
    make: Make, lines: tuple[str, ...]
) -> None:
    """Kafka Streams forwards it before such a record, and again after it."""
    built, results = builder(), list[str]()
    table = make(built).suppress(Suppress.until_window_closes(), name="Kept")
    table.to_stream().process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def test_joins_look_up_what_was_forwarded_last() -> None:
    built, results = builder(), list[str]()
    kept = built.table("left", name="Left").suppress(Suppress.until_time_limit(10), name="Kept")
    built.stream("right").left_join(kept, joiner).process(partial(Watching, results))
    lines = (
        "left a:one@0 ->",
        "right a:x@1 -> a=x+null@1",
        "left b:b@10 ->",
        "right a:x@11 -> a=x+one@11",
        "left a:two@12 ->",
        "right a:x@13 -> a=x+one@13",
    )
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


def _by_value(built: StreamsBuilder) -> Table:
    table = built.table("in", name="Table").suppress(Suppress.until_time_limit(10), name="Kept")
    return table.group_by(lambda key, value: (value, key), name="ByValue").count(name="Sizes")


def _updates_by_count(built: StreamsBuilder) -> Table:
    table = tumbling(built).suppress(Suppress.until_window_closes(), name="Kept")
    by_count = table.group_by(lambda key, value: (str(value), key.key), name="ByCount")
    return by_count.count(name="Sizes")


GROUPS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "for a time": (
        _by_value,
        (
            "in a:x@0 a:y@1 ->",
            "in t:t@10 -> y=1@1",
            "in a:z@11 a:w@12 ->",
            "in u:u@21 -> t=1@10 y=0@12 w=1@12",
        ),
    ),
    "a value that was never forwarded": (
        _by_value,
        ("in b:x@0 a:x@1 a:null@2 ->", "in t:t@11 -> x=1@0"),
    ),
    "until windows close": (
        _updates_by_count,
        ("in a:1@0 a:1@1 b:1@1 ->", "in c:1@5 -> 2=1@1 1=1@1"),
    ),
}


@pytest.mark.parametrize(("make", "lines"), GROUPS.values(), ids=GROUPS)
def test_groups_take_out_what_was_forwarded(make: Make, lines: tuple[str, ...]) -> None:
    """Updates that were held back are in no group."""
    built, results = builder(), list[str]()
    make(built).to_stream().process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        check(driver, JoinCase("", "", {}, frozenset(), lines), results)


DELAYS: dict[str, tuple[Make, int]] = {
    "shouldExtractGraceFromKStreamWindowAggregateNode": (tumbling, 1),
    "shouldExtractGraceFromKStreamSessionWindowAggregateNode": (sessions, 8),
    "the grace of sliding windows": (sliding, 4),
    "shouldExtractGraceFromSessionAncestorThroughStatelessParent": (
        lambda built: sessions(built).filter(lambda key, value: True),
        8,
    ),
    "shouldUseMaxIfMultiParentsDoNotAgreeOnGrace": (
        lambda built: tumbling(built).join(sliding(built), joiner),
        4,
    ),
}


@pytest.mark.parametrize(("make", "delay_ms"), DELAYS.values(), ids=DELAYS)
def test_when_windows_close_is_found_upstream(make: Make, delay_ms: int) -> None:
    assert close_delay_ms(make(builder()).step, "suppress") == delay_ms
