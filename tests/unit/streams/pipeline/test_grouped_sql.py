"""`type: sql` with GROUP BY in pipeline.yaml: what it becomes, and mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import (
    CalendarSpec,
    GroupingSpec,
    SessionSpec,
    SqlSpec,
    WindowSpec,
)
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import settings_of
from tests.unit.streams.pipeline.loading import load, problems_in

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BY_KEY = "SELECT key, count(*) AS value FROM input GROUP BY key"
HOURLY = "SELECT key, count(*) AS value FROM input GROUP BY key, window(timestamp, '1 hour')"
SESSIONS = HOURLY.replace("window(", "session_window(")
DAILY = HOURLY.replace("window(timestamp, '1 hour')", "calendar_window(timestamp, '1 day', 'UTC')")
BY_VALUE = "SELECT value AS key, count(*) AS value FROM input GROUP BY value"
HOURLY_BY_VALUE = (
    "SELECT value AS key, count(*) AS value FROM input GROUP BY value, window(timestamp, '1 hour')"
)


def one(query: str, more: str = "") -> str:
    return f'[{{id: P, type: sql, query: "{query}", to: [sink]{more}}}]'


def between(query: str, more: str = "") -> str:
    """Return a pipeline with a query between two other processors, and a topic for late records."""
    return f"""
sources: {{other: orders}}
sinks: {{late: late_ones}}
processors:
- {{id: A, type: forward, to: [P]}}
- {{id: P, type: sql, query: "{query}", from: [other], to: [C, sink]{more}}}
- {{id: C, type: forward, to: [sink]}}
"""


def grouping_of(pipeline: Pipeline, id_: str = "P") -> GroupingSpec | None:
    spec = pipeline.processor(id_).spec
    assert isinstance(spec, SqlSpec)
    return spec.grouping


def test_query_without_groups_has_none() -> None:
    assert grouping_of(load(one("SELECT value FROM input"))) is None


def test_groups_by_key_are_a_table_in_one_processor() -> None:
    pipeline = load(one(BY_KEY))
    assert grouping_of(pipeline) == GroupingSpec()
    (processor,) = pipeline.processors
    assert pipeline.state_topics(processor) == {
        "groups": "state_topic_P_groups",
        "shape": "state_topic_P_shape",
    }
    assert {store.name: store.topic_config["cleanup.policy"] for store in processor.stores} == {
        "groups": "compact",
        "shape": "compact",
    }


def test_windows_are_kept_for_a_day_unless_grace_says_something_else() -> None:
    pipeline = load(one(HOURLY))
    window = WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS)
    assert grouping_of(pipeline) == GroupingSpec(window=window, grace_ms=DAY_MS)
    (processor,) = pipeline.processors
    assert list(pipeline.state_topics(processor)) == ["windows", "windows-times", "shape"]
    policy = processor.stores[0].topic_config
    assert policy["retention.ms"] == str(HOUR_MS + DAY_MS + 7 * DAY_MS)
    closing = load(one(HOURLY, ", emit: on_close, grace: 0 s"))
    assert grouping_of(closing) == GroupingSpec(window=window, emit="on_close")
    policy = closing.processors[0].stores[0].topic_config
    assert policy["retention.ms"] == str(HOUR_MS + 1 + 7 * DAY_MS)


def test_best_rows_are_kept_as_groups_are() -> None:
    best = (
        "SELECT concat(value, place) AS key, value FROM (SELECT *, row_number() OVER (PARTITION BY "
        "{} ORDER BY timestamp) AS place FROM input) WHERE place <= 3"
    )
    by_key = load(one(best.format("key")))
    assert [each.id for each in by_key.processors] == ["P"]
    assert list(by_key.state_topics(by_key.processors[0])) == ["groups", "shape"]
    by_hour = best.format("value, window(timestamp, '1 hour')")
    hourly = load(one(by_hour, ", emit: on_close, grace: 0 s"))
    assert [each.id for each in hourly.processors] == ["P-rows", "P"]
    window = WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS)
    assert grouping_of(hourly) == GroupingSpec(window=window, emit="on_close", stage="groups")
    assert "grace belongs to a query with window(…) in PARTITION BY: leave it out" in str(
        problems_in(one(best.format("key"), ", grace: 1 h"))
    )


def test_sessions_are_in_a_session_store() -> None:
    pipeline = load(one(SESSIONS))
    session = SessionSpec(gap_ms=HOUR_MS)
    assert grouping_of(pipeline) == GroupingSpec(window=session, grace_ms=DAY_MS)
    (processor,) = pipeline.processors
    assert list(pipeline.state_topics(processor)) == ["sessions", "sessions-times", "shape"]
    policy = processor.stores[0].topic_config
    assert policy["retention.ms"] == str(HOUR_MS + DAY_MS + 1 + 7 * DAY_MS)
    closing = load(one(SESSIONS, ", emit: on_close, grace: 0 s"))
    assert grouping_of(closing) == GroupingSpec(window=session, emit="on_close")


def test_calendar_windows_are_in_the_store_that_those_of_the_dsl_are_in() -> None:
    spec = GroupingSpec(window=CalendarSpec(period="1 day", zone="UTC"), grace_ms=HOUR_MS)
    for more, grouping in (
        ("", spec),
        (", emit: on_close", structs.replace(spec, emit="on_close")),
    ):
        pipeline = load(one(DAILY, f", grace: 1 h{more}"))
        assert grouping_of(pipeline) == grouping
        (processor,) = pipeline.processors
        assert list(pipeline.state_topics(processor)) == ["windows", "windows-times", "shape"]
        (kept, *_) = processor.stores
        # A zone repeats up to a day, so a day may have 48 hours.
        assert kept.topic_config["retention.ms"] == str(2 * DAY_MS + HOUR_MS + 7 * DAY_MS)
        row = "a row for each key, CALENDAR_WINDOW(timestamp, '1 day', 'UTC')"
        assert kind_of(processor.spec).keeps(processor.spec) == (
            f"{row}, until 1 h after the window",
        )


@pytest.mark.parametrize(
    ("grace", "grace_ms"),
    [("90 s", 90_000), ("10 min", 600_000), ("2h", 7_200_000), ("7 d", 7 * DAY_MS)],
)
def test_times_of_grace(grace: str, grace_ms: int) -> None:
    found = grouping_of(load(one(HOURLY, f", grace: {grace}")))
    assert found is not None
    assert found.grace_ms == grace_ms


def test_groups_by_anything_else_meet_behind_an_internal_topic() -> None:
    pipeline = load(between(HOURLY_BY_VALUE, ", late_to: late"))
    assert [each.id for each in pipeline.processors] == ["A", "P-rows", "P", "C"]
    front, back = pipeline.processor("P-rows"), pipeline.processor("P")
    assert pipeline.in_topics(front) == ("orders", "A_P")
    assert pipeline.out_topics(front) == ("P_groups-repartition", "late_ones")
    assert pipeline.in_topics(back) == ("P_groups-repartition",)
    assert pipeline.out_topics(back) == ("P_C", "out")
    assert not front.is_stateful
    assert list(pipeline.state_topics(back)) == ["windows", "windows-times", "shape"]
    assert pipeline.arcs == {"A_P": "P-rows", "P_C": "C", "P_groups-repartition": "P"}
    assert [grouping.stage for id_ in ("P-rows", "P") if (grouping := grouping_of(pipeline, id_))]
    counted = with_counts(pipeline, {"orders": 5, "in": 3})
    assert counted.partitions_of("P_groups-repartition") == 5
    assert [counted.task_count(each) for each in counted.processors] == [3, 5, 5, 2]


def test_late_records_of_groups_by_key_are_one_more_target() -> None:
    pipeline = load(between(HOURLY, ", late_to: late"))
    assert [each.id for each in pipeline.processors] == ["A", "P", "C"]
    assert pipeline.out_topics(pipeline.processor("P")) == ("P_C", "out", "late_ones")


def test_assignment_carries_what_the_text_says() -> None:
    sessions = HOURLY_BY_VALUE.replace("window(", "session_window(")
    daily = DAILY.replace("key", "value AS key", 1).replace("BY key", "BY value")
    for query in (HOURLY_BY_VALUE, sessions, daily):
        for unit in replicas(load(between(query, ", late_to: late, grace: 1 min"))):
            assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_only_windows_take_inputs_in_the_order_of_time() -> None:
    for query in (BY_KEY, HOURLY, SESSIONS, DAILY):
        (unit, *_) = replicas(load(one(query)))
        assert settings_of(unit).takes_inputs_as_they_come is (query == BY_KEY)


def test_collections_are_bounded() -> None:
    found = grouping_of(load(one(BY_KEY, ", max_collected: 7")))
    assert found == GroupingSpec(max_collected=7)


@pytest.mark.parametrize(
    ("query", "stores"),
    [
        (BY_KEY, ["groups", "shape"]),
        ("SELECT DISTINCT key FROM input", ["groups", "shape"]),
        (BY_KEY.replace("*", "DISTINCT value"), ["groups", "distinct", "shape"]),
        (HOURLY.replace("*", "DISTINCT value"), ["windows", "distinct", "windows-times", "shape"]),
        (f"{BY_KEY} HAVING sum(DISTINCT offset) > 1", ["groups", "distinct", "shape"]),
        (SESSIONS.replace("*", "DISTINCT value"), ["sessions", "sessions-times", "shape"]),
    ],
)
def test_values_of_distinct_have_a_store_except_in_sessions(
    query: str, stores: Sequence[str]
) -> None:
    assert [store.name for store in load(one(query)).processor("P").stores] == stores


@pytest.mark.parametrize(
    ("query", "more", "problem"),
    [
        (BY_KEY, ", emit: on_close", "1:103: emit belongs to a query with window(…) in GROUP BY"),
        (BY_KEY, ", grace: 1 min", "grace belongs to a query with window(…) in GROUP BY: leave"),
        (BY_KEY, ", late_to: sink", "late_to belongs to a query with window(…) in GROUP BY"),
        ("SELECT value FROM input", ", emit: on_update", "emit belongs to a query with GROUP BY"),
        ("SELECT value FROM input", ", grace: 1 h", "grace belongs to a query with GROUP BY: l"),
        ("SELECT value FROM input", ", max_collected: 5", "max_collected belongs to a query with"),
        (BY_KEY, ", max_collected: 0", "max_collected must be"),
        (HOURLY, ", emit: on_close", '1:2: missing key "grace" (how long after its end'),
        (HOURLY, ", emit: sometimes", 'emit must be "on_update" or "on_close"'),
        (HOURLY, ", grace: soon", 'grace must be a time such as "30 s", "10 min" or "1 h", got "s'),
        (HOURLY, ", grace: 5", "grace must be a string"),
        (HOURLY, ", late_to: lates", '"P": late_to names no sink, got "lates"'),
        (HOURLY, ", late_to: sink", '"P": late_to is "sink", where the results go: give late'),
        (SESSIONS, ", emit: on_close", '1:2: missing key "grace" (how long after its end'),
        (SESSIONS.replace("1 hour", "soon"), "", "1:28: the gap of session_window(…) cannot be re"),
        (DAILY, ", emit: on_close", '1:2: missing key "grace" (how long after its end'),
        (DAILY.replace("1 day", "24 h"), "", '1:28: calendar_window(…): "24 h" is not a period: '),
        (DAILY.replace("UTC", "Bonn"), "", '1:28: calendar_window(…): "Bonn" is not a time zone'),
        (DAILY.replace("timestamp", "day"), "", "1:28: calendar_window(…) is over day: it must"),
        (HOURLY.replace("1 hour", "1 month"), "", "1:28: the times of window(…) cannot be read"),
    ],
)
def test_mistakes_are_reported(query: str, more: str, problem: str) -> None:
    found = problems_in(one(query, more))
    assert len(found) == 1
    assert problem in found[0]


def test_names_of_the_internal_topic_and_processor_may_be_taken() -> None:
    text = between(BY_VALUE).replace("id: A", "id: P-rows")
    assert any('two processors have the id "P-rows"' in each for each in problems_in(text))
    sink = between(BY_VALUE).replace("late_ones", "P_groups-repartition")
    assert any("P_groups-repartition" in each for each in problems_in(sink))
    long = one(BY_VALUE).replace("id: P", f"id: {'p' * 247}")
    assert any("in front of the topic groups-repartition" in each for each in problems_in(long))
