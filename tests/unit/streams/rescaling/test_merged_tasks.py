"""Tasks that become one had different times: no result comes twice, and none is lost silently."""

from __future__ import annotations

import struct

import pytest

from kafka_pipeline import serdes, windows
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.dsl.windows import SlidingWindows
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.event_time.step_time import (
    join_time_store,
    merged_join_times,
    merged_times,
)
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.kinds.kind import logged
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.stores import key_value
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.rescaling.sharded import Logs, Sharded, spread

SLOW, FAST = (
    next(key for key in (b"a", b"b", b"c", b"d", b"e") if default_partition(key, 2) == number)
    for number in (0, 1)
)

WEEK_MS = 7 * 86_400_000


def counting(kind: Windows) -> Topology:
    built = builder()
    table = built.stream("in").group_by_key().windowed_by(kind, emit="on_close")
    found = table.count(name="W").to_stream()
    found.map(lambda key, value: (f"{key.key} {key.window.start}", value)).to(
        "out", value_serde=serdes.int64
    )
    return built.build()


def joining() -> Topology:
    built = builder()
    left, right = (
        built.stream(topic)
        .group_by_key()
        .windowed_by(windows.tumbling(100, grace_ms=50), emit="on_close")
        .count(name=name)
        for topic, name in (("in", "W"), ("right", "R"))
    )
    found = left.outer_join(right, lambda a, b: (a or 0) + 10 * (b or 0)).to_stream()
    found.map(lambda key, value: (f"{key.key} {key.window.start}", value)).to(
        "out", value_serde=serdes.int64
    )
    return built.build()


def results(sharded: Sharded) -> list[tuple[str, int]]:
    return [
        (key.decode(), int.from_bytes(value, "big"))
        for key, value in sharded.results
        if key is not None and value is not None
    ]


def test_what_one_task_has_emitted_does_not_come_again_and_the_rest_does() -> None:
    sharded = Sharded(counting(windows.tumbling(100, grace_ms=50)), 2)
    sharded.pipe([("in", SLOW, b"", time) for time in (10, 20, 120, 130, 160)])
    sharded.pipe([("in", FAST, b"", time) for time in (10, 110, 210, 260)])
    assert results(sharded) == [
        (f"{SLOW.decode()} 0", 2),
        (f"{FAST.decode()} 0", 1),
        (f"{FAST.decode()} 100", 1),
    ]
    sharded.results.clear()
    merged = sharded.rescaled(1)
    # Time is that of the one that is behind, so this record is not late.
    merged.pipe([("in", SLOW, b"", 140)])
    # What that has not emitted is due now, with what came in time.
    merged.pipe([("in", FAST, b"", 270), ("in", SLOW, b"", 280), ("in", FAST, b"", 400)])
    assert results(merged) == [
        (f"{SLOW.decode()} 100", 4),
        (f"{SLOW.decode()} 200", 1),
        (f"{FAST.decode()} 200", 3),
    ]


def test_what_one_task_has_emitted_since_a_leap_does_not_come_again() -> None:
    sharded, slow, fast = Sharded(joining(), 2), SLOW.decode(), FAST.decode()
    sharded.pipe(("in", key, b"", time) for key in (SLOW, FAST) for time in (0, WEEK_MS))
    sharded.results.clear()
    sharded.pipe([("in", SLOW, b"", WEEK_MS + 20), ("in", FAST, b"", WEEK_MS + 260)])
    assert results(sharded) == [(f"{fast} {WEEK_MS}", 1)]
    sharded.results.clear()
    merged = sharded.rescaled(1)
    merged.pipe([("in", SLOW, b"", WEEK_MS + 140), ("in", FAST, b"", WEEK_MS + 400)])
    assert results(merged) == [
        (f"{slow} {WEEK_MS}", 2),
        (f"{slow} {WEEK_MS + 100}", 1),
        (f"{fast} {WEEK_MS + 200}", 1),
    ]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_windows_meet_although_tasks_change_between_the_leaps_of_both_sides(count: int) -> None:
    sharded = Sharded(joining(), 2)
    sharded.pipe((topic, key, b"", 100) for topic in ("in", "right") for key in (SLOW, FAST))
    sharded.pipe(("in", key, b"", WEEK_MS) for key in (SLOW, FAST))
    sharded = sharded.rescaled(count)
    sharded.results.clear()
    sharded.pipe(("right", key, b"", WEEK_MS) for key in (SLOW, FAST))
    assert sorted(results(sharded)) == sorted((f"{key.decode()} 100", 11) for key in (SLOW, FAST))


def test_days_that_one_task_has_emitted_do_not_come_again() -> None:
    """The day that one of two tasks has closed has 25 hours."""
    hour_ms, day = 3_600_000, 1_729_980_000_000  # 2024-10-27 in Berlin
    sharded = Sharded(counting(windows.calendar("1 day", tz="Europe/Berlin", grace_ms=hour_ms)), 2)
    slow, fast = SLOW.decode(), FAST.decode()
    sharded.pipe([("in", SLOW, b"", day + hours * hour_ms) for hours in (1, 24)])
    sharded.pipe([("in", FAST, b"", day + hours * hour_ms) for hours in (24, 26)])
    assert results(sharded) == [(f"{fast} {day}", 1)]
    sharded.results.clear()
    merged = sharded.rescaled(1)
    merged.pipe([("in", SLOW, b"", day + 25 * hour_ms - 1)])
    merged.pipe([("in", FAST, b"", day + hours * hour_ms) for hours in (26, 50)])
    assert results(merged) == [(f"{slow} {day}", 3), (f"{fast} {day + 25 * hour_ms}", 2)]


@pytest.mark.parametrize(
    "kind",
    [windows.tumbling(100, grace_ms=0), windows.sliding(50, grace_ms=0)],
    ids=["tumbling", "sliding"],
)
def test_windows_that_would_expire_before_they_are_emitted_are_refused(kind: Windows) -> None:
    sharded = Sharded(counting(kind), 2)
    sharded.pipe([("in", SLOW, b"", 10), ("in", FAST, b"", 10), ("in", FAST, b"", 1000)])
    with pytest.raises(ConfigError, match="has open windows in tasks whose time is far behind"):
        sharded.rescaled(1)
    # With a multiple of the tasks, each goes on with its own time.
    parts = sharded.rescaled(4)
    parts.pipe([("in", SLOW, b"", 20), ("in", SLOW, b"", 500)])
    assert (f"{SLOW.decode()} 0", 2) in results(parts) or isinstance(kind, SlidingWindows)


def test_no_record_becomes_late_where_tasks_are_only_divided() -> None:
    sharded = Sharded(counting(windows.tumbling(100, grace_ms=0)), 2)
    sharded.pipe([("in", SLOW, b"", 10), ("in", FAST, b"", 5000)])
    sharded = sharded.rescaled(6)
    sharded.pipe([("in", SLOW, b"", 20), ("in", SLOW, b"", 100)])
    assert results(sharded) == [(f"{SLOW.decode()} 0", 2)]


def test_stream_time_of_a_store_does_not_go_back_for_keys_that_move() -> None:
    built = builder()
    left, right = built.stream("in"), built.stream("right")
    span = windows.join(before_ms=10, after_ms=10, grace_ms=5)
    left.join(right, lambda a, b: f"{a}{b}", span, name="J").to("out")
    # Both keys are in one task at first, and then in two.
    keys = [key for key in (b"a", b"b", b"c", b"d", b"e") if default_partition(key, 2) == 1]
    sharded = Sharded(built.build(), 1)
    sharded.pipe([("in", keys[0], b"1", 100), ("in", SLOW, b"1", 1000), ("in", SLOW, b"1", 1001)])
    sharded = sharded.rescaled(2)
    sharded.pipe([("right", keys[0], b"2", 100)])
    assert sharded.results == []
    # The marks by which stores know their time are not taken for entries.
    sharded.rescaled(5).rescaled(2)


@pytest.mark.parametrize(
    "kind",
    [windows.tumbling(100, grace_ms=0), windows.session(100, grace_ms=0)],
    ids=["tumbling", "session"],
)
def test_marks_of_dropped_segments_are_not_taken_for_entries(kind: Windows) -> None:
    sharded = Sharded(counting(kind), 2)
    for minute in range(5):
        sharded.pipe([("in", key, b"", 60_000 * minute) for key in (SLOW, FAST)])
    sharded.results.clear()
    parts = sharded.rescaled(3)
    parts.pipe([("in", key, b"", 600_000) for key in (SLOW, FAST)])
    assert sorted(results(parts)) == sorted((f"{key.decode()} 240000", 1) for key in (SLOW, FAST))


def test_times_of_windows_are_the_earliest_and_closing_goes_on_from_the_earliest() -> None:
    pack = struct.Struct(">qq").pack
    assert merged_times([pack(30, 20), pack(50, -1), pack(40, 35)]) == pack(30, -1)
    assert merged_times([pack(30, 20)]) == pack(30, 20)


def test_times_of_joins_are_the_earliest_and_the_earliest_that_waits() -> None:
    pack = struct.Struct(">qq").pack
    assert merged_join_times([pack(30, 20), pack(50, -1), pack(40, 35)]) == pack(30, -1)


def test_task_takes_times_of_those_whose_keys_it_may_have() -> None:
    store = join_time_store("t")
    pack = struct.Struct(">qq").pack
    rows = {("t", n): [SavedRow(b"join", pack(10 * n, -1), n)] for n in range(4)}
    found = spread(logged([store]), Tasks(4, 6), Logs(rows))
    assert [(row.partition, row.value) for _, row in found] == [
        (n, pack(0 if n % 2 == 0 else 10, -1)) for n in range(6)
    ]


def test_copies_go_to_all_tasks() -> None:
    store = key_value("shape", serdes.string, serdes.string).spread("copy")
    rows = {("shape", 1): [SavedRow(b"content", b"{}", 1)]}
    found = spread(logged([store]), Tasks(2, 3), Logs(rows))
    assert [(row.partition, row.key, row.value) for _, row in found] == [
        (n, b"content", b"{}") for n in range(3)
    ]


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 5), (4, 6), (1, 7), (12, 8)])
def test_tasks_have_keys_of_those_of_their_group_only(before: int, after: int) -> None:
    tasks = Tasks(before, after)
    for number in range(2000):
        key = b"%d" % number
        assert default_partition(key, before) in tasks.former(default_partition(key, after))
    assert all(len(tasks.former(task)) == tasks.merged for task in range(after))
    assert sorted({tasks.rank(n) for n in tasks.former(0)}) == list(range(tasks.merged))
