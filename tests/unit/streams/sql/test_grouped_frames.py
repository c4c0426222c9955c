"""`type: dataframe` with `group_by` on Spark: results, restarts, tables, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.pipelines.specs import GroupingSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.declared_groups import require_as_planned
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row

pytestmark = pytest.mark.integration

FRAMES = "tests.user_code.grouped_frames"
HOUR_MS = 3_600_000
TEXT = """
sinks: {{late: late_records}}
sources: {{in: in, cities: cities}}
processors:
- id: Revenue
  type: dataframe
  from: [in]
  function: {function}
  config: {config}
  {group_by}
  format: json
  schema: customer STRING, amount DOUBLE, n INT, price DECIMAL(10, 2), tags ARRAY<STRING>
  to: [sink]
  {more}
"""


def pipeline(function: str, group_by: str | None, more: str = "", **config: Any) -> str:
    given = "" if group_by is None else f"group_by: {group_by}"
    name = f"{FRAMES}:{function}"
    return TEXT.format(function=name, config=config, group_by=given, more=more)


def spec_of(function: str, **config: Any) -> QuerySpec:
    return QuerySpec(function=f"{FRAMES}:{function}", format="json", schema=SCHEMA, config=config)


def rows(*minutes: float, key: str = "a") -> list[Row]:
    return [{"key": key, "customer": key, "n": 9, "at": at} for at in minutes]


def test_groups_by_key_are_kept_and_deleted_when_where_drops_them(shared: OpenedOnce) -> None:
    job = Job(pipeline("totals", "{key: true}"), shared)
    job.send([{"key": "a", "n": 5, "at": 1}, {"key": "b", "n": 20, "at": 0}])
    assert [each[1:4] for each in job.take()] == [("b", {"c": 1, "s": None, "n": 20}, 0)]
    job.restart()
    job.send([{"key": "a", "n": 5, "at": 2}, {"key": None, "n": 20, "at": 0}])
    assert [each[1:4] for each in job.take()] == [
        ("a", {"c": 2, "s": None, "n": 10}, 2 * MINUTE_MS)
    ]
    job.send([{"key": "b", "n": -15, "at": 3}])
    assert [each[1:4] for each in job.take()] == [("b", None, 3 * MINUTE_MS)]
    assert job.dropped == {"null key": 1}
    job.close()


def test_groups_of_different_keys_meet_behind_a_topic(shared: OpenedOnce) -> None:
    job = Job(pipeline("by_customer", "{}"), shared, partitions=2)
    sent: list[Row] = [{"key": i, "customer": "ab"[i % 2], "n": 6, "at": i} for i in range(12)]
    for partition in (0, 1):
        job.send(sent[partition * 6 : partition * 6 + 6], partition)
    assert job.latest() == {"a": {"a": 6.0, "l": [6]}, "b": {"a": 6.0, "l": [6]}}
    job.restart()
    job.send([{"key": "x", "customer": "a", "n": 20, "at": 1}], 1)
    assert job.latest() == {"a": {"a": 8.0, "l": [6, 20]}}
    job.close()


@pytest.mark.parametrize("group", ["key", "customer"])
def test_late_records_are_found_and_windows_close(shared: OpenedOnce, group: str) -> None:
    group_by = "{key: true, window: 1 h}" if group == "key" else "{window: 1 h}"
    more = "emit: on_close\n  grace: 0 s\n  late_to: late"
    job = Job(pipeline("hourly", group_by, more, group=group), shared)
    job.send(rows(5, 6, 61))
    job.restart()
    job.send(rows(7, 62, 200))
    found = job.take()
    assert [each[1:4] for each in found if each.topic == "out"] == [
        ("a00:00", {"s": 18}, 6 * MINUTE_MS),
        ("a01:00", {"s": 18}, 62 * MINUTE_MS),
    ]
    ((_, _, _, time, headers),) = (each for each in found if each.topic == "late_records")
    step = "Revenue" if group == "key" else "Revenue-rows"
    assert (time, headers["__streams.late.step"]) == (7 * MINUTE_MS, step.encode())
    job.close()


def test_sessions_are_merged_across_batches(shared: OpenedOnce) -> None:
    job = Job(pipeline("sessions", "{key: true, session: 9 min}", "grace: 30 min"), shared)
    job.send(rows(10, 15, 30))
    assert [each.key for each in job.take()] == ["a00:24"]
    job.restart()
    job.send(rows(23))
    # The session that was merged has another key.
    assert [(each.key, each.value is None) for each in job.take()] == [
        ("a00:24", True),
        ("a00:39", False),
    ]
    job.close()


def test_duplicates_are_dropped_in_each_window(shared: OpenedOnce) -> None:
    job = Job(pipeline("without_duplicates", "{window: 1 h}", "grace: 0 s"), shared)
    job.send(rows(5, 6, 61))
    job.restart()
    job.send(rows(62))
    assert [(each.value["hour"], each.timestamp // MINUTE_MS) for each in job.take()] == [
        ("00:00", 5),
        ("01:00", 61),
    ]
    job.close()


def test_groups_by_a_column_of_a_table_that_follows_a_topic(shared: OpenedOnce) -> None:
    more = "tables: {cities: {topic: cities, schema: city STRING}}"
    job = Job(pipeline("enriched", "{}", more), shared)
    job.send([{"key": "a", "city": "Ulm", "at": 0}], topic="cities")
    job.send(rows(1, 2))
    job.send(rows(3, key="b"))
    job.restart()
    job.send([{"key": "b", "city": "Ulm", "at": 4}], topic="cities")
    job.send(rows(5, key="b"))
    assert job.latest() == {"Ulm": {"c": 3, "s": 27}, "-": {"c": 1, "s": 9}}
    job.close()


def test_groups_by_a_column_of_a_table_of_a_file(shared: OpenedOnce, tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("a,Ulm\nb,Bonn\n", encoding="utf-8")
    options = f"path: {tmp_path / 'cities.csv'}, schema: 'key STRING, city STRING'"
    job = Job(pipeline("enriched", "{}", f"tables: {{cities: {{format: csv, {options}}}}}"), shared)
    for key in "abca":
        job.send(rows(1, key=key))
    assert {key: value["c"] for key, value in job.latest().items()} == {"Ulm": 2, "Bonn": 1, "-": 1}
    job.close()


def test_record_that_python_rejects_is_rejected_alone(shared: OpenedOnce) -> None:
    job = Job(pipeline("shouted", "{}", "on_error: skip"), shared)
    job.send([*rows(1, 2), *rows(3, key="bad"), *rows(4)])
    assert job.latest() == {"A!": {"c": 3}}
    assert job.skipped == 1
    job.close()


def test_collection_that_is_too_large_is_rejected(shared: OpenedOnce) -> None:
    more = "on_error: skip\n  max_collected: 2"
    job = Job(pipeline("sessions", "{key: true, session: 9 min}", more), shared)
    job.send([{**row, "amount": 1.0} for row in rows(1, 2, 3)])
    assert job.skipped == 1
    assert [each.value["l"] for each in job.take()] == [[1.0, 1.0]]
    job.close()


@pytest.mark.parametrize(
    ("function", "group_by", "reason"),
    [
        ("hourly", "{key: true, window: 1 h}", "the window .* was none, now 3600000000"),
        ("by_customer", "{}", "how records of a group meet was by their key"),
    ],
)
def test_state_of_another_function_is_refused(
    shared: OpenedOnce, function: str, group_by: str, reason: str
) -> None:
    first = Job(pipeline("totals", "{key: true}"), shared)
    first.send(rows(1))
    first.close()
    with pytest.raises(QueryError, match=f"the state was kept for another query: .*{reason}"):
        Job(pipeline(function, group_by), shared, first.stores)


# --- what is refused ---


@pytest.mark.parametrize(
    ("function", "config", "group_by"),
    long_but_the_first(
        [
            ("totals", {}, "{key: true}"),
            ("by_customer", {}, "{}"),
            ("distinct", {}, "{key: true}"),
            ("per_hour", {}, "{window: 1 h}"),
            ("hopping", {}, "{window: 1 h, slide: 20 min, offset: 5 min}"),
            ("sessions", {}, "{key: true, session: 9 min}"),
            ("with_window", {"times": ["1 week"]}, "{key: true, window: 7 d}"),
            ("with_window", {"times": ["90 seconds"], "group": "n"}, "{window: 90 s}"),
            ("with_gap", {"gap": "5 milliseconds"}, "{key: true, session: 5 ms}"),
            ("best", {"slide": "20 minutes"}, "{window: 1 h, slide: 20 min}"),
            # In some rows, the key is another column.
            ("mixed", {}, "{}"),
        ],
        2,
    ),
)
def test_groups_that_pipeline_yaml_does_not_name_are_refused_with_what_to_add(
    shared: OpenedOnce, function: str, config: Mapping[str, Any], group_by: str
) -> None:
    with pytest.raises(QueryError) as caught:
        Job(pipeline(function, None, **config), shared)
    assert str(caught.value) == (
        f"{FRAMES}:{function} groups records, and pipeline.yaml does not say so: add "
        f"group_by: {group_by}"
    )
    Job(pipeline(function, group_by, **config), shared).close()


@pytest.mark.parametrize(
    ("function", "said", "right"),
    long_but_the_first(
        [
            ("totals", "{}", "{key: true}"),
            ("totals", "{key: true, window: 1 h}", "{key: true}"),
            ("by_customer", "{key: true}", "{}"),
            ("per_hour", "{key: true, window: 1 h}", "{window: 1 h}"),
            ("per_hour", "{window: 2 h}", "{window: 1 h}"),
            ("per_hour", "{window: 1 h, offset: 1 min}", "{window: 1 h}"),
            ("per_hour", "{window: 1 h, slide: 30 min}", "{window: 1 h}"),
            ("per_hour", "{session: 1 h}", "{window: 1 h}"),
            ("per_hour", "{}", "{window: 1 h}"),
            ("sessions", "{key: true, window: 9 min}", "{key: true, session: 9 min}"),
            ("sessions", "{key: true, session: 8 min}", "{key: true, session: 9 min}"),
        ],
        2,
    ),
)
def test_groups_that_differ_from_pipeline_yaml_are_refused_with_what_to_write(
    shared: OpenedOnce, function: str, said: str, right: str
) -> None:
    with pytest.raises(QueryError) as caught:
        Job(pipeline(function, said), shared)
    assert str(caught.value) == (
        f"{FRAMES}:{function} groups records by something else than pipeline.yaml says, which is "
        f"group_by: {said}: write group_by: {right}"
    )


def test_windows_are_the_same_a_slide_earlier(local: LocalQueries) -> None:
    shape = local.open_aggregation(spec_of("hopping")).shape
    window = WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS // 3, start_ms=5 * MINUTE_MS)
    require_as_planned(shape, GroupingSpec(window=window, stage="groups"), "f")


@pytest.mark.parametrize(
    ("function", "reason"),
    long_but_the_first(
        [
            ("ungrouped", "there is no GROUP BY, so there is no state to keep: leave group_by out"),
            ("first_of_each", "dropDuplicates by some of the columns keeps any one of their rows"),
            ("all_records", "aggregates without GROUP BY would be those of a partition"),
            ("twice", "a second GROUP BY, DISTINCT or .* below the first .Aggregate."),
            ("best_of_sessions", "session_window.…. in PARTITION BY would be a session for each"),
            ("pivoted", "a second GROUP BY, DISTINCT or .* below the first .Aggregate."),
            ("sorted_groups", "ORDER BY needs all rows"),
            ("random_groups", "random numbers and the current time"),
            ("shouted_after", "EvalPython around GROUP BY or .*, but only SELECT, HAVING"),
            (
                "with_months",
                "the gap of session_window.…. has months, whose lengths differ: use days",
            ),
            (
                "timeless",
                "MapInArrow hides which record .*: let the result have a column timestamp",
            ),
            ("of_vectors", "user-defined types cannot be read"),
        ],
        4,
    ),
)
def test_functions_whose_state_cannot_be_kept_are_refused(
    local: LocalQueries, function: str, reason: str
) -> None:
    with pytest.raises(QueryError, match=reason):
        local.open_aggregation(spec_of(function))


@pytest.mark.parametrize(
    ("function", "config", "reason"),
    long_but_the_first(
        [
            ("with_gap", {"gap": "0 seconds"}, "the gap of session_window.…. must be above 0"),
            ("with_gap", {"gap": "-5 seconds"}, "the gap of session_window.…. must be above 0"),
            (
                "with_gap",
                {"gap": "1500 microseconds"},
                "times of windows must be whole milliseconds",
            ),
            ("with_window", {"times": ["1500 microseconds"]}, "must be whole milliseconds"),
        ]
    ),
)
def test_windows_that_stores_cannot_keep_are_refused(
    shared: OpenedOnce, function: str, config: Mapping[str, Any], reason: str
) -> None:
    for group_by in (None, "{key: true, session: 1 ms}", "{key: true, window: 1 ms}"):
        with pytest.raises(QueryError, match=reason):
            Job(pipeline(function, group_by, **config), shared)


def test_gap_is_compared_in_whole_milliseconds(local: LocalQueries) -> None:
    shape = local.open_aggregation(spec_of("with_gap", gap="2 seconds")).shape
    require_as_planned(shape, GroupingSpec(window=SessionSpec(gap_ms=2000)), "f")
