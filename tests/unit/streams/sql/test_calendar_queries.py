"""`type: sql` with `calendar_window(…)`: the days, weeks and months of a zone, as in the DSL."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from kafka_pipeline import serdes, windows
from kafka_pipeline.common.pipelines.specs import CalendarSpec, EmitTime
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.testing import TopologyTestDriver
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder, outputs, pipe
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row
from tests.unit.streams.sql.test_grouped_queries import pipeline

pytestmark = pytest.mark.integration

BERLIN = "Europe/Berlin"
DAY = f"calendar_window(timestamp, '1 day', '{BERLIN}')"
FIELDS = "date_format(window.start, 'MM-dd HH:mm') AS start, date_format(window.end, 'HH:mm') AS e"
DAILY = f"SELECT key, {FIELDS}, count(*) AS c FROM input GROUP BY key, {DAY}"
HOUR_MS = 60 * MINUTE_MS
SPRING = ["03-30 22:59", "03-30 23:00", "03-31 21:59", "03-31 22:00", "04-02 00:00"]
AUTUMN = ["10-26 22:00", "10-27 00:30", "10-27 01:30", "10-27 22:59", "10-27 23:00", "10-30 00:00"]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(f"2024-{text}").replace(tzinfo=UTC).timestamp() * 1000)


def rows(times: Sequence[str], key: str = "k") -> list[Row]:
    return [{"key": key, "customer": "c", "n": 1, "at": ms(time) / MINUTE_MS} for time in times]


def days_of(job: Job) -> list[tuple[str, str, int]]:
    return [(each.value["start"], each.value["e"], each.value["c"]) for each in job.take()]


@pytest.mark.parametrize("key", ["key", "customer"])
@pytest.mark.parametrize(
    ("times", "days"),
    [
        (SPRING, [("03-29 23:00", "23:00", 1), ("03-30 23:00", "22:00", 2)]),
        (AUTUMN, [("10-26 22:00", "23:00", 4)]),
    ],
    ids=["23 hours", "25 hours"],
)
def test_days_are_those_of_the_zone_and_close_behind_a_topic_too(
    times: Sequence[str], days: list[tuple[str, str, int]], key: str, shared: OpenedOnce
) -> None:
    query = DAILY.replace("key", f"{key} AS key", 1).replace("BY key", f"BY {key}")
    job = Job(pipeline(query, "emit: on_close\n  grace: 0 s"), shared)
    last = rows(times[-2:-1])
    job.send(rows(times[:2]))
    job.restart()
    job.send(rows(times[2:-1]))
    assert days_of(job) == days
    job.restart()
    job.send([*rows(times[-1:]), *last])
    assert days_of(job)[0][2] == 1
    assert job.dropped == {"expired": 1}
    job.close()


def test_late_records_go_to_their_topic_with_their_day(shared: OpenedOnce) -> None:
    job = Job(pipeline(DAILY, "grace: 1 h\n  late_to: late"), shared)
    times = ["03-31 22:59", "03-31 21:59", "03-31 23:00", "03-31 21:58"]
    job.send(rows(times))
    found = job.take()
    (late,) = (each for each in found if each.topic == "late_records")
    assert sorted(each.value["c"] for each in found if each is not late) == [1, 2]
    assert late.timestamp == ms("03-31 21:58")
    assert late.headers["__streams.late.window.start"] == b"%d" % ms("03-30 23:00")
    assert late.headers["__streams.late.window.end"] == b"%d" % ms("03-31 22:00")
    assert job.dropped == {"expired (late_to)": 1}
    job.close()


def test_day_closes_when_no_record_comes(shared: OpenedOnce) -> None:
    more = "emit: on_close\n  grace: 1 h\n  close_after_idle: 2 s"
    job = Job(pipeline(DAILY, more), shared)
    job.send(rows(["10-27 00:00"]))
    job.wait(1000)
    assert job.take() == []
    job.wait(2000)
    assert days_of(job) == [("10-26 22:00", "23:00", 1)]
    job.send(rows(["10-27 22:59", "10-27 23:00"]))
    assert job.dropped == {"expired": 1}
    job.close()


def test_day_closes_once_all_writers_are_past_it(shared: OpenedOnce) -> None:
    query = DAILY.replace("key", "customer AS key", 1).replace("BY key", "BY customer")
    job = Job(pipeline(query, "emit: on_close\n  grace: 0 s"), shared, writers=2)
    job.send(rows(["10-27 00:00", "10-28 00:00"]))
    job.learn(ms("10-27 22:59") / MINUTE_MS)
    assert job.take() == []
    job.learn(ms("10-27 23:00") / MINUTE_MS + 1)
    assert days_of(job) == [("10-26 22:00", "23:00", 1)]
    job.close()


COUNTS = (
    "SELECT key, unix_millis(window.start) AS start, unix_millis(window.end) AS e, count(*) AS c "
    "FROM input GROUP BY key, calendar_window(timestamp, '{}', '{}')"
)


@pytest.mark.parametrize("emit", get_args(EmitTime))
@pytest.mark.parametrize(
    ("period", "zone"),
    long_but_the_first(
        [
            # Clocks go back over midnight there, and Apia leaves out a day.
            ("1 day", "America/St_Johns"),
            ("1 day", "Pacific/Apia"),
            ("1 week", BERLIN),
            ("1 month", "America/Sao_Paulo"),
        ]
    ),
)
def test_random_times_give_what_the_dsl_gives(
    period: str, zone: str, emit: EmitTime, shared: OpenedOnce
) -> None:
    chance = random.Random(f"{zone} {period}")
    grace_h = chance.choice([0, 5, 30])
    now, given = 21_200_000.0, list[Row]()  # in 2010
    for _ in range(500):
        now += chance.choice([0, 1, 60, 420, 2400])
        late = chance.choice([0, 0, 0, 1200, 4800])
        given.append({"key": chance.choice("ab"), "n": 0, "at": now - late})
    given.append({"key": "z", "n": 0, "at": now + 100 * 24 * 60})
    closes = emit == "on_close"
    more = f"grace: {grace_h} h\n  emit: {'on_close' if closes else 'on_update'}"
    job = Job(pipeline(COUNTS.format(period, zone), more), shared)
    for start in range(0, len(given), 120):
        job.send(given[start : start + 120])
        job.restart()
    results = [(each.key, each.value) for each in job.take()]
    job.close()
    kind = windows.calendar(period, tz=zone, grace_ms=grace_h * HOUR_MS)
    expected, late_count = by_the_dsl(kind, emit, given)
    found = {(key, value["start"], value["e"]): value["c"] for key, value in results}
    assert found == expected
    assert job.dropped["expired"] == late_count > 0
    if closes:
        assert len(results) == len(expected), "each window is given once"


def by_the_dsl(
    kind: windows.CalendarWindows, emit: EmitTime, given: Sequence[Row]
) -> tuple[dict[tuple[str, int, int], int], int]:
    """Return the counts by key and window, and how many records are late."""
    built = builder()
    table = built.stream("in").group_by_key().windowed_by(kind, emit=emit, late_to="late")
    stream = table.count(name="Counts").to_stream()
    stream.map(lambda key, count: (f"{key.key} {key.window[0]} {key.window[1]}", count)).to(
        "out", value_serde=serdes.int64
    )
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", row["key"], "v", round(row["at"] * MINUTE_MS)) for row in given])
        results = outputs(driver, value_serde=serdes.int64)
        late = len(outputs(driver, "late"))
    counts: dict[tuple[str, int, int], int] = {}
    for text, count, _ in results:
        key, start, end = text.split()
        counts[key, int(start), int(end)] = count
    return counts, late


@pytest.mark.parametrize(
    ("query", "values"),
    long_but_the_first(
        [
            (
                f"SELECT key, {DAY}.start AS s, count(*) AS c FROM input GROUP BY key, "
                f"Calendar_Window (timestamp, '1 day', '{BERLIN}')",
                [("03-30 23:00", 2), ("03-31 22:00", 1)],
            ),
            (f"SELECT key, {DAY} AS w, count(*) AS c FROM input GROUP BY ALL", None),
            (
                f"SELECT key, w.start AS s, 1 AS c FROM (SELECT DISTINCT key, {DAY} AS w FROM "
                "input)",
                [("03-30 23:00", 1), ("03-31 22:00", 1)],
            ),
            (
                f"SELECT key, w.start AS s, c FROM (SELECT *, {DAY} AS w, n AS c, row_number() "
                "OVER "
                f"(PARTITION BY key, {DAY} ORDER BY n DESC) AS place FROM input) WHERE place = 1",
                [("03-30 23:00", 2), ("03-31 22:00", 3)],
            ),
            (  # The condition is about the day of the zone, and is applied below GROUP BY.
                "SELECT key, w.start AS s, count(*) AS c FROM (SELECT *, "
                f"{DAY} AS w FROM input) WHERE w.end = timestamp '2024-03-31 22:00' GROUP BY w, "
                "key",
                [("03-30 23:00", 2)],
            ),
            (
                f"WITH d AS (SELECT key, {DAY} AS calendar_window FROM input) SELECT key, "
                "calendar_window.start AS s, count(*) AS c FROM d GROUP BY key, calendar_window "
                "HAVING calendar_window.start < timestamp '2024-03-31'",
                [("03-30 23:00", 2)],
            ),
        ],
        3,
    ),
    ids=["twice", "all", "distinct", "best rows", "condition", "with"],
)
def test_days_wherever_windows_may_be(
    query: str, values: list[tuple[str, int]] | None, shared: OpenedOnce
) -> None:
    job = Job(pipeline(query), shared)
    given = rows(["03-30 23:00", "03-31 21:59", "03-31 22:00"])
    job.send([{**row, "n": number} for number, row in enumerate(given, 1)])
    found = [each.value for each in job.take()]
    job.close()
    if values is None:
        starts = [(each["w"]["start"], each["w"]["end"]) for each in found]
        assert sorted(starts)[0] == ("2024-03-30T23:00:00.000Z", "2024-03-31T22:00:00.000Z")
    else:
        shown = [(f"{each['s'][5:10]} {each['s'][11:16]}", each["c"]) for each in found]
        assert sorted(shown) == values


def test_query_and_what_it_keeps_cross_processes(local: LocalQueries) -> None:
    spec = QuerySpec(query=DAILY, format="json", schema="n INT", calendar=("1 day", BERLIN))
    assert QuerySpec.from_json(spec.to_json()) == spec
    opened = local.open_aggregation(spec)
    opened.close()
    assert opened.shape.window == CalendarSpec(period="1 day", zone=BERLIN)
    assert StateShape.from_json(json.loads(json.dumps(opened.shape.to_json()))) == opened.shape


TABLE = "\n  tables: {{t: {{format: csv, path: {}, schema: 'c STRING, d TIMESTAMP'}}}}"


@pytest.mark.parametrize(
    ("query", "problem"),
    long_but_the_first(
        [
            (
                f"SELECT key, max({DAY}.start) AS m FROM input GROUP BY key",
                r"^calendar_window\(…\) must be one of the columns of GROUP BY, PARTITION BY or "
                r"SEL",
            ),
            (
                f"SELECT key, count(*) AS c FROM input WHERE {DAY}.start > timestamp '2024-01-01' "
                f"GROUP BY key, {DAY}",
                r"a query with calendar_window\(…\) may have windows in one place only: where it "
                r"group",
            ),
            (
                "SELECT key, count(*) AS c FROM input JOIN (SELECT c, "
                f"{DAY.replace('timestamp', 'd')} AS w FROM t) ON customer = c GROUP BY key, {DAY}",
                "may have windows in one place only",
            ),
            (
                f"SELECT key, count(*) AS c FROM input GROUP BY CUBE(key, {DAY})",
                r"write calendar_window\(…\) into GROUP BY itself, not into a CUBE",
            ),
        ],
        2,
    ),
    ids=["aggregate", "where", "table", "cube"],
)
def test_windows_that_are_refused(
    query: str, problem: str, shared: OpenedOnce, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("c,2024-01-01 00:00:00\n")
    with pytest.raises(QueryError, match=problem):
        Job(pipeline(query, TABLE.format(tmp_path / "t.csv").strip()), shared)


@pytest.mark.parametrize(
    ("window", "reason"),
    long_but_the_first(
        [
            (
                "window(timestamp, '1 day')",
                "was 1 day, Europe/Berlin, now 86400000000, 86400000000, 0",
            ),
            (DAY.replace(BERLIN, "UTC"), "was 1 day, Europe/Berlin, now 1 day, UTC"),
            (DAY.replace("day", "week"), "was 1 day, Europe/Berlin, now 1 week, Europe/Berlin"),
        ],
        2,
    ),
)
def test_state_of_other_windows_is_refused(window: str, reason: str, shared: OpenedOnce) -> None:
    first = Job(pipeline(DAILY), shared)
    first.send(rows(["03-31 12:00"]))
    first.close()
    with pytest.raises(QueryError, match=f"kept for another query: the window .* {reason}"):
        Job(pipeline(DAILY.replace(DAY, window)), shared, first.stores)
