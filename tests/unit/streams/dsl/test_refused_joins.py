"""Joins and suppress that are refused, and what the errors say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from kafka_pipeline import StreamsBuilder, StreamsError, Suppress, serdes, windows
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.errors import InvalidArgumentError, TopologyError
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import builder, pipe
from tests.unit.streams.dsl.test_stream_joins import joiner

WINDOW = windows.join(before_ms=5, after_ms=5, grace_ms=0)
TUMBLING = windows.tumbling(5, grace_ms=0)


class Shop:
    """Two streams, tables and a global table of one builder."""

    def __init__(self, **settings: Any) -> None:
        self.built: StreamsBuilder = builder(**settings)
        self.left: Stream = self.built.stream("left")
        self.right: Stream = self.built.stream("right")
        self.table: Table = self.built.table("table", name="Table")
        self.other: Table = self.built.table("other", name="Other")
        self.versioned: Table = self.built.table(
            "versioned", name="Versioned", history_retention_ms=10
        )
        self.everywhere = self.built.global_table("global", name="Global")
        grouped = self.built.stream("counted").group_by_key().windowed_by(TUMBLING)
        self.counts: Table = grouped.count(name="Counts")


REFUSED: dict[str, tuple[Callable[[Shop], Any], str]] = {
    "no windows": (
        lambda s: s.left.join(s.right, joiner, name="J"),  # type: ignore[call-overload]
        'join "J" takes windows: give windows.join(',
    ),
    "windows of an aggregate": (
        lambda s: s.left.join(
            s.right, joiner, cast(Any, windows.tumbling(5, grace_ms=0)), name="J"
        ),
        'join "J" takes windows: give windows.join(',
    ),
    "no function": (
        lambda s: s.left.left_join(s.right, cast(Any, "joiner"), WINDOW, name="J"),
        'left_join "J" takes a function of the left and the right value, not',
    ),
    "no side": (
        lambda s: s.left.join(cast(Any, "right"), joiner, name="J"),
        'join "J" takes a stream, a table or a global table, not',
    ),
    "windows with a table": (
        lambda s: s.left.join(s.table, joiner, WINDOW, name="J"),  # type: ignore[call-overload]
        'join "J" with a table has windows: that is for a join of two streams, leave it out',
    ),
    "a key with a table": (
        lambda s: s.left.join(s.table, joiner, key=joiner, name="J"),  # type: ignore[call-overload]
        'join "J" with a table has key: that is for a global table',
    ),
    "grace with a stream": (
        lambda s: s.left.join(s.right, joiner, WINDOW, grace_ms=5, name="J"),  # type: ignore[call-overload]
        'join "J" with a stream has grace_ms: that is for a table',
    ),
    "no key with a global table": (
        lambda s: s.left.join(s.everywhere, joiner, name="J"),  # type: ignore[call-overload]
        'join "J" takes a key=, a function of key and value that returns the key, not None',
    ),
    "an outer join with a table": (
        lambda s: s.left.outer_join(cast(Any, s.table), joiner, WINDOW, name="J"),
        'outer_join "J" takes a stream: a table\'s values have no results of their own',
    ),
    # KStreamKTableJoinTest.shouldFailIfTableIsNotVersioned
    "grace with a table without versions": (
        lambda s: s.left.join(s.table, joiner, grace_ms=5, name="J"),
        'join "J" has grace_ms, but its table is not versioned: give the table '
        "history_retention_ms=5 or more",
    ),
    # KStreamKTableJoinTest.shouldFailIfGracePeriodIsLongerThanHistoryRetention
    "grace above the history": (
        lambda s: s.left.join(s.versioned, joiner, grace_ms=11, name="J"),
        'join "J" has a grace_ms of 11, above the history_retention_ms of 10 of the table '
        '"Versioned"',
    ),
    # KStreamKTableJoinTest.shouldFailIfGracePeriodIsLongerThanHistoryRetentionAndInheritedStore
    "grace above the history of what a view is of": (
        lambda s: s.left.join(s.versioned.filter(joiner), joiner, grace_ms=11, name="J"),
        "above the history_retention_ms of 10",
    ),
    "another builder's stream": (
        lambda s: s.left.join(Shop().right, joiner, WINDOW, name="J"),
        'join "J": its two sides belong to two StreamsBuilders',
    ),
    "another builder's table": (
        lambda s: s.left.join(Shop().table, joiner, name="J"),
        'join "J": its two sides belong to two StreamsBuilders',
    ),
    "a table with a stream": (
        lambda s: s.table.join(cast(Any, s.left), joiner, name="J"),
        'join "J" takes a table, not',
    ),
    "a foreign key that is not a function": (
        lambda s: s.table.join(s.other, joiner, foreign_key=cast(Any, "k"), name="J"),
        'join "J" takes a foreign_key, a function of the left value, not',
    ),
    "suppress of what has no windows": (
        lambda s: s.table.suppress(Suppress.until_window_closes(), name="S"),
        'suppress "S" has Suppress.until_window_closes, but stream "Table-source" leads to it '
        "without windows",
    ),
    "suppress of keys without their windows": (
        lambda s: (
            s.counts.group_by(lambda key, count: (key.key, count), name="G")
            .count(name="C")
            .suppress(Suppress.until_window_closes(), name="S")
        ),
        'suppress "S" has Suppress.until_window_closes, but keys by the serde string',
    ),
    "a stream with a table in windows": (
        lambda s: s.left.left_join(s.counts, joiner, name="J"),
        'left_join "J" has keys by the serde string on one side, and keys in windows on the other',
    ),
    "a table in windows with one without": (
        lambda s: s.counts.outer_join(s.table, joiner, name="J"),
        'outer_join "J" has keys by the serde string on one side',
    ),
    "suppress of a number": (
        lambda s: s.table.suppress(cast(Any, 5), name="S"),
        "suppress takes what Suppress.until_window_closes or Suppress.until_time_limit return",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call: Callable[[Shop], Any], message: str) -> None:
    shop = Shop()
    with pytest.raises(TopologyError) as caught:
        call(shop)
    assert message in str(caught.value)


UNNAMED: dict[str, tuple[Callable[[Shop], Any], str]] = {
    "streams": (lambda s: s.left.join(s.right, joiner, WINDOW), "its stores"),
    "a changed key": (
        lambda s: s.left.select_key(joiner, name="K").join(s.table, joiner),
        "its repartition topic",
    ),
    "grace": (lambda s: s.left.join(s.versioned, joiner, grace_ms=5), "its store"),
    "a foreign key": (
        lambda s: s.table.join(s.other, joiner, foreign_key=str),
        "its stores and topics",
    ),
    "suppress": (lambda s: s.table.suppress(Suppress.until_time_limit(5)), "its store"),
}


@pytest.mark.parametrize(("call", "why"), UNNAMED.values(), ids=UNNAMED)
def test_steps_with_state_need_names(call: Callable[[Shop], Any], why: str) -> None:
    with pytest.raises(TopologyError, match=f"needs a name for {why}"):
        call(Shop(allow_generated_names=False))
    call(Shop(allow_generated_names=True))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a window that ends before it begins": (
        lambda: windows.join(before_ms=-6, after_ms=5, grace_ms=0),
        "before_ms of -6 and an after_ms of 5",
    ),
    "no negative grace": (
        lambda: windows.join(before_ms=1, after_ms=1, grace_ms=-1),
        "windows.join has grace_ms=-1",
    ),
    "fractions": (
        lambda: windows.join(before_ms=1.5, after_ms=1, grace_ms=0),  # type: ignore[arg-type]
        "windows.join has before_ms=1.5",
    ),
    "no records": (
        lambda: Suppress.until_window_closes(max_records=0),
        "Suppress.until_window_closes has max_records=0",
    ),
    "another word": (
        lambda: Suppress.until_time_limit(5, when_full="drop"),  # type: ignore[arg-type]
        'when_full=\'drop\': give "emit_early" or "fail"',
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_numbers(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert message in str(caught.value)


def raises(left: Any, right: Any) -> str:
    raise ValueError("no good")


RAISING: dict[str, Callable[[Shop], Any]] = {
    "streams": lambda s: s.left.join(s.right, raises, WINDOW, name="Joined"),
    "a table": lambda s: s.left.left_join(s.table, raises, name="Joined"),
    "a global table": lambda s: s.left.left_join(
        s.everywhere, raises, key=lambda k, v: k, name="Joined"
    ),
    "tables": lambda s: s.left.to_table(name="Left").outer_join(s.other, raises, name="Joined"),
    "a foreign key": lambda s: s.left.to_table(name="Left").left_join(
        s.other, raises, foreign_key=lambda value: None, name="Joined"
    ),
}


@pytest.mark.parametrize("call", RAISING.values(), ids=RAISING)
def test_a_joiner_that_raises_names_the_step(call: Callable[[Shop], Any]) -> None:
    shop = Shop()
    call(shop)
    read = {topic for group in shop.built.build().groups for topic in group.in_topics}
    given = [(topic, "a", "x", 1) for topic in ("right", "left") if topic in read]
    with TopologyTestDriver(shop.built) as driver:
        with pytest.raises(ValueError, match="no good") as caught:
            pipe(driver, given)
        assert re.search(r'no good .*processor "Joined(-resolve)?"', reason(caught.value))


def test_suppress_that_is_full_names_the_step() -> None:
    built = builder()
    limit = Suppress.until_time_limit(100, max_records=1, when_full="fail")
    built.table("in", name="Table").suppress(limit, name="Kept").to_stream().to("out")
    with TopologyTestDriver(built) as driver, pytest.raises(StreamsError) as caught:
        pipe(driver, [("in", "a", "x", 1), ("in", "b", "x", 1)])
    assert 'suppress "Kept" is full: 2 keys' in str(caught.value)


def test_a_value_that_a_store_cannot_write_names_the_step() -> None:
    built = builder()
    left = built.stream("left").map_values(len, value_serde=serdes.string)  # type: ignore[arg-type]
    left.join(built.stream("right"), joiner, WINDOW, name="Joined").to("out")
    with TopologyTestDriver(built) as driver, pytest.raises(StreamsError) as caught:
        pipe(driver, [("left", "a", "x", 1)])
    assert 'This is for the store of join "Joined"' in str(caught.value)
