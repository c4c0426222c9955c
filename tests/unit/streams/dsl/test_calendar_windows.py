"""Windows of calendars: days of 23 and 25 hours, what is late, when they close."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import get_args

import pytest

from kafka_pipeline import Suppress, serdes, windows
from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.windows import CalendarWindows
from kafka_pipeline.streams.stores import Windowed
from kafka_pipeline.streams.stores.lookup import KeyRange, TimeRange, look_up, page
from kafka_pipeline.testing import TopologyTestDriver
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import Input, builder, outputs, pipe
from tests.unit.streams.nodes import Nodes, batch

BERLIN = "Europe/Berlin"
HOUR_MS = 3_600_000
CLOSE: EmitTime = "on_close"
UPDATE: EmitTime = "on_update"
ZONES = [BERLIN, "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "America/St_Johns"]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def shown(key: Windowed[str]) -> str:
    times = [datetime.fromtimestamp(time / 1000, UTC) for time in key.window]
    return f"{key.key} {times[0]:%m-%d %H:%M} {times[1]:%m-%d %H:%M}"


def days(grace_ms: int = 0, tz: str = BERLIN, **more: int) -> CalendarWindows:
    return windows.calendar("1 day", tz=tz, grace_ms=grace_ms, **more)


def counted(
    kind: CalendarWindows, emit: EmitTime, times: Sequence[str], *, is_suppressed: bool = False
) -> list[tuple[str, int]]:
    """Return the windows that are given, and their counts, for records of the key `k`."""
    built = builder()
    table = built.stream("in").group_by_key().windowed_by(kind, emit=emit).count(name="Days")
    if is_suppressed:
        table = table.suppress(Suppress.until_window_closes(), name="Final")
    found = table.to_stream().map(lambda key, value: (shown(key), value))
    found.to("out", value_serde=serdes.int64)
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", "k", "v", ms(f"2024-{time}")) for time in times])
        return [(key, value) for key, value, _ in outputs(driver, value_serde=serdes.int64)]


@pytest.mark.parametrize(
    ("times", "results"),
    [
        (
            ["03-30 22:59", "03-30 23:00", "03-31 21:59", "03-31 22:00"],
            [
                ("k 03-29 23:00 03-30 23:00", 1),
                ("k 03-30 23:00 03-31 22:00", 1),
                ("k 03-30 23:00 03-31 22:00", 2),
                ("k 03-31 22:00 04-01 22:00", 1),
            ],
        ),
        (
            ["10-26 22:00", "10-27 00:30", "10-27 01:30", "10-27 22:59", "10-27 23:00"],
            [
                *[("k 10-26 22:00 10-27 23:00", count) for count in (1, 2, 3, 4)],
                ("k 10-27 23:00 10-28 23:00", 1),
            ],
        ),
    ],
    ids=["23 hours", "25 hours"],
)
def test_days_are_those_of_the_zone(times: Sequence[str], results: list[tuple[str, int]]) -> None:
    assert counted(days(), UPDATE, times) == results


@pytest.mark.parametrize("is_suppressed", [False, True])
def test_day_of_25_hours_is_given_when_it_is_over_and_late_records_have_had_their_time(
    is_suppressed: bool,
) -> None:
    emit = UPDATE if is_suppressed else CLOSE
    times = ["10-26 22:00", "10-27 23:30", "10-27 22:59", "10-27 23:59", "10-28 00:00"]
    day = ("k 10-26 22:00 10-27 23:00", 2)
    kind = days(grace_ms=HOUR_MS)
    assert counted(kind, emit, times[:4], is_suppressed=is_suppressed) == []
    assert counted(kind, emit, times, is_suppressed=is_suppressed) == [day]
    late = [*times, "10-27 22:59", "10-29 00:00"]
    following = ("k 10-27 23:00 10-28 23:00", 3)
    assert counted(kind, emit, late, is_suppressed=is_suppressed) == [day, following]


def test_late_records_go_to_their_topic_with_their_day() -> None:
    built = builder()
    grouped = built.stream("in").group_by_key()
    grouped.windowed_by(days(), late_to="late").count(name="Days")
    with TopologyTestDriver(built) as driver:
        times = ["2024-03-31 22:00", "2024-03-31 21:59"]
        pipe(driver, [("in", "k", "v", ms(time)) for time in times])
        (record,) = driver.create_output_topic("late", serdes.string).read_records()
    found = dict(record.headers)
    assert found["__streams.late.window.start"] == b"%d" % ms("2024-03-30 23:00")
    assert found["__streams.late.window.end"] == b"%d" % ms("2024-03-31 22:00")


def test_weeks_begin_on_monday_and_months_have_their_lengths() -> None:
    times = ["10-27 22:59", "10-27 23:00", "11-03 23:00"]
    week = windows.calendar("1 week", tz=BERLIN, grace_ms=0)
    assert counted(week, CLOSE, times) == [
        ("k 10-20 22:00 10-27 23:00", 1),
        ("k 10-27 23:00 11-03 23:00", 1),
    ]
    month = windows.calendar("1 month", tz=BERLIN, grace_ms=0)
    assert counted(month, CLOSE, ["02-01 00:00", "02-29 22:59", "02-29 23:00"]) == [
        ("k 01-31 23:00 02-29 23:00", 2)
    ]


def test_day_closes_when_no_record_comes() -> None:
    built = builder()
    kind = days(close_after_idle_ms=1000)
    table = built.stream("in").group_by_key().windowed_by(kind, emit=CLOSE).count(name="Days")
    table.to_stream().map(lambda key, value: (shown(key), value)).to(
        "out", value_serde=serdes.int64
    )
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", "k", "v", ms("2024-10-27 00:00"))])
        driver.advance_wall_clock_time(2000)
        (found,) = outputs(driver, value_serde=serdes.int64)
    assert found[:2] == ("k 10-26 22:00 10-27 23:00", 1)


def test_store_and_its_queries_have_the_ends_of_days() -> None:
    built = builder()
    built.stream("in").group_by_key().windowed_by(days()).count(name="Days")
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", "k", "v", ms("2024-03-31 12:00"))])
        with driver.get_window_store("Days").all() as found:
            assert [shown(key) for key, _ in found] == ["k 03-30 23:00 03-31 22:00"]


def test_queries_of_state_show_the_ends_of_days() -> None:
    built = builder()
    built.stream("in").group_by_key().windowed_by(days()).count(name="Days")
    (group,) = built.build().groups
    nodes = Nodes(group)
    start = ms("2024-03-30 23:00")
    nodes.process(batch([b"v"], keys=[b"k"], timestamps=[ms("2024-03-31 12:00")]))
    (store,) = (each for each in group.stores if each.name == "Days")
    nodes.stores["Days"].commit(1)
    with nodes.stores["Days"].committed(100, 60) as view:
        (row,), _ = look_up(store, view, b"k", TimeRange(), 10)
        found = page(store, view, KeyRange(), None, 10)
    window = {"start_ms": start, "end_ms": start + 23 * HOUR_MS}
    assert row["window"] == window
    assert [each["window"] for each in found.rows] == [window]


def modelled(
    inputs: Sequence[Input], calendar: Calendar, grace_ms: int
) -> tuple[dict[tuple[str, int, int], int], int]:
    """Return the counts by key and window, and how many records are late."""
    now, late = -1, 0
    counts: dict[tuple[str, int, int], int] = {}
    for _, key, _, time in inputs:
        now = max(now, time)
        start, end = calendar.span(time)
        if end + grace_ms <= now:
            late += 1
        else:
            counts[key, start, end] = counts.get((key, start, end), 0) + 1
    return counts, late


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("period", long_but_the_first(["1 month", "1 day", "1 week"]))
def test_random_times_give_what_a_model_gives(zone: str, period: str) -> None:
    chance = random.Random(f"{zone} {period}")
    grace_ms = chance.choice([0, 5 * HOUR_MS, 30 * HOUR_MS])
    kind = windows.calendar(period, tz=zone, grace_ms=grace_ms)
    now, inputs = ms("2011-12-20"), []
    for _ in range(400):
        now += chance.choice([0, 1, HOUR_MS, 7 * HOUR_MS, 40 * HOUR_MS])
        time = now - chance.choice([0, 0, 0, 20 * HOUR_MS, 80 * HOUR_MS])
        inputs.append(("in", chance.choice("ab"), "v", time))
    expected, late = modelled(inputs, kind.calendar, grace_ms)
    for emit in get_args(EmitTime):
        built = builder()
        table = built.stream("in").group_by_key().windowed_by(kind, emit=emit, late_to="late")
        found: dict[tuple[str, int, int], int] = {}
        stream = table.count(name="Counts").to_stream()
        stream.map(lambda key, count: (f"{key.key} {key.window[0]} {key.window[1]}", count)).to(
            "out", value_serde=serdes.int64
        )
        end = ("in", "z", "v", now + 100 * 24 * HOUR_MS)
        with TopologyTestDriver(built) as driver:
            pipe(driver, [*inputs, end])
            results = outputs(driver, value_serde=serdes.int64)
            assert len(outputs(driver, "late")) == late
        for text, count, _ in results:
            key, *window = text.split()
            found[key, int(window[0]), int(window[1])] = count
        assert {key: count for key, count in found.items() if key[0] != "z"} == expected
        if emit is CLOSE:
            assert len(results) == len(expected), "each window is given once"
