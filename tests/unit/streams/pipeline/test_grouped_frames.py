"""`type: dataframe` with `group_by` in pipeline.yaml: what it becomes, and mistakes."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import (
    DataFrameSpec,
    GroupingSpec,
    SessionSpec,
    WindowSpec,
)
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.dataframe import DataFrame
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import settings_of
from tests.unit.streams.pipeline.loading import load, problems_in

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HOUR = WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS)
BY_KEY, HOURLY, SESSIONS = "{key: true}", "{key: true, window: 1 h}", "{key: true, session: 1 h}"


def one(group_by: str, more: str = "") -> str:
    """Return a pipeline with one function."""
    given = f", group_by: {group_by}" if group_by else ""
    return f'[{{id: P, type: dataframe, function: "shop:f", to: [sink]{given}{more}}}]'


def between(group_by: str, more: str = "") -> str:
    """Return a pipeline with a function between two other processors."""
    return f"""
sources: {{other: orders, names: names_topic}}
sinks: {{late: late_ones}}
processors:
- {{id: A, type: forward, to: [P]}}
- {{id: P, type: dataframe, function: "shop:f", group_by: {group_by}, from: [other], to: [C, sink]
   {more}}}
- {{id: C, type: forward, to: [sink]}}
"""


def like(text: str, query: str) -> str:
    """Return a pipeline with a query in place of the function."""
    start, rest = text.split("type: dataframe, ")
    return f'{start}type: sql, query: "{query}"{rest[rest.index("}") + 1 :]}'


def grouping_of(pipeline: Pipeline, id_: str = "P") -> GroupingSpec | None:
    spec = pipeline.processor(id_).spec
    assert isinstance(spec, DataFrameSpec)
    return spec.grouping


@pytest.mark.parametrize(
    ("group_by", "wanted"),
    [
        ("", None),
        ("{}", GroupingSpec(stage="groups")),
        ("{key: false}", GroupingSpec(stage="groups")),
        (BY_KEY, GroupingSpec()),
        (HOURLY, GroupingSpec(window=HOUR, grace_ms=DAY_MS)),
        ("{window: 1 h, slide: 1 h}", GroupingSpec(window=HOUR, grace_ms=DAY_MS, stage="groups")),
        (
            "{key: true, window: 1 h, slide: 20 min, offset: 5 min}",
            GroupingSpec(
                window=WindowSpec(size_ms=HOUR_MS, slide_ms=20 * MINUTE_MS, start_ms=5 * MINUTE_MS),
                grace_ms=DAY_MS,
            ),
        ),
        (
            "{window: 500 ms, offset: 499 ms}",
            GroupingSpec(
                window=WindowSpec(size_ms=500, slide_ms=500, start_ms=499),
                grace_ms=DAY_MS,
                stage="groups",
            ),
        ),
        (SESSIONS, GroupingSpec(window=SessionSpec(gap_ms=HOUR_MS), grace_ms=DAY_MS)),
    ],
)
def test_group_by_says_what_is_kept(group_by: str, wanted: GroupingSpec | None) -> None:
    assert grouping_of(load(one(group_by))) == wanted


def test_keys_of_groups_are_those_of_queries() -> None:
    more = ", emit: on_close, grace: 90 s, late_to: late, max_collected: 7"
    assert grouping_of(load(between(HOURLY, more))) == GroupingSpec(
        window=HOUR, emit="on_close", grace_ms=90_000, late_to="late", max_collected=7
    )


@pytest.mark.parametrize(
    ("group_by", "columns"),
    [
        (BY_KEY, "key"),
        ("{}", "value"),
        (HOURLY, "key, window(timestamp, '1 hour')"),
        (SESSIONS, "key, session_window(timestamp, '1 hour')"),
        ("{window: 1 h, slide: 20 min}", "value, window(timestamp, '1 hour', '20 minutes')"),
        ("{session: 1 h}", "session_window(timestamp, '1 hour')"),
    ],
)
@pytest.mark.parametrize("table", ["", ", tables: {names: {topic: names}}"])
def test_stores_and_topics_are_those_of_a_query_with_the_same_groups(
    group_by: str, columns: str, table: str
) -> None:
    late = ", late_to: late" if "1 h" in group_by else ""
    text = between(group_by, late + table)
    query = f"SELECT count(*) AS value FROM input GROUP BY {columns}"
    found, wanted = load(text), load(like(text, query))
    assert found.arcs == wanted.arcs
    assert [each.id for each in found.processors] == [each.id for each in wanted.processors]
    for one_, other in zip(found.processors, wanted.processors, strict=True):
        assert one_.stores == other.stores
        assert found.state_topics(one_) == wanted.state_topics(other)
        assert found.in_topics(one_) == wanted.in_topics(other)
        assert found.out_topics(one_) == wanted.out_topics(other)
        assert one_.meetings == other.meetings
    counts = {"orders": 2, "in": 2, "names_topic": 2}
    with_both = with_counts(found, counts), with_counts(wanted, counts)
    assert len({tuple(map(each.task_count, each.processors)) for each in with_both}) == 1


def test_groups_by_key_need_inputs_with_as_many_partitions() -> None:
    text = between(BY_KEY)
    with pytest.raises(ConfigError, match="different numbers of partitions: orders has 5, A_P has"):
        with_counts(load(text), {"orders": 5, "in": 3})
    counted = with_counts(load(between("{}")), {"orders": 5, "in": 3})
    assert [counted.task_count(each) for each in counted.processors] == [3, 5, 5, 2]


def test_assignment_carries_the_groups() -> None:
    for group_by in (HOURLY, "{window: 1 h}", "{session: 5 min}", "{}"):
        late = ", late_to: late, grace: 1 min" if ":" in group_by else ""
        for unit in replicas(load(between(group_by, late))):
            assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_only_windows_take_inputs_in_the_order_of_time() -> None:
    for group_by, as_they_come in (("", True), (BY_KEY, True), (HOURLY, False), (SESSIONS, False)):
        (unit, *_) = replicas(load(one(group_by)))
        assert settings_of(unit).takes_inputs_as_they_come is as_they_come


def test_what_is_kept_is_said_in_words() -> None:
    kept = list[str]()
    for group_by in ("{}", HOURLY, "{session: 90 s}"):
        spec = load(one(group_by)).processor("P").spec
        assert isinstance(kind_of(spec), DataFrame)
        kept += kind_of(spec).keeps(spec)
    assert kept == [
        "a row for each group",
        "a row for each group and window of 1 h, until 1 d after the window",
        "a row for each group and session with a gap of 90 s, until 1 d after the window",
    ]


def test_parameters_have_the_config_and_what_becomes_of_groups() -> None:
    pipeline = load(one("{}", ", config: {low: 1}"))
    shown = [dict(each.spec.parameters) for each in pipeline.processors]
    assert shown == [{"gives": "rows of groups", "low": 1}, {"emits": "on_update", "low": 1}]


@pytest.mark.parametrize(
    ("group_by", "more", "problem"),
    [
        ("", ", emit: on_update", "1:65: emit belongs to a function with group_by: leave it out"),
        ("", ", grace: 1 h", "1:66: grace belongs to a function with group_by: leave it out"),
        ("", ", late_to: sink", "1:68: late_to belongs to a function with group_by: leave it out"),
        ("", ", max_collected: 5", "1:74: max_collected belongs to a function with group_by: "),
        (
            BY_KEY,
            ", emit: on_close",
            "emit belongs to a function with window or session in ",
        ),
        (
            BY_KEY,
            ", grace: 1 h",
            "grace belongs to a function with window or session in ",
        ),
        (BY_KEY, ", late_to: sink", "late_to belongs to a function with window or session in "),
        (HOURLY, ", emit: on_close", '1:2: missing key "grace" (how long after its end a window'),
        (
            HOURLY,
            ", grace: soon",
            'grace must be a time such as "30 s", "10 min" or "1 h", got',
        ),
        (HOURLY, ", late_to: lates", '"P": late_to names no sink, got "lates"'),
        (HOURLY, ", late_to: sink", '"P": late_to is "sink", where the results go: give late rec'),
        ("key", ", grace: 1 h", '1:69: group_by must be a map, got the text "key"'),
        ("", ", group_by:", "1:68: group_by must be a map, got nothing"),
        ("{keys: true}", "", 'unknown key "keys"'),
        ("{key: 1}", "", "1:75: key must be true or false, got the number 1"),
        ("{window: 60}", ", grace: 1 h", "1:78: window must be a string, got the number 60"),
        ("{window: 1 week}", ", grace: 1 h", '1:78: window must be a time such as "30 s", "10 m'),
        ("{window: 0 s}", "", '1:78: window must be a time such as "30 s", "10 min" or "1 h", got'),
        ("{session: 0 s}", "", "1:79: session must be a time such as"),
        ("{slide: 1 h}", "", "1:77: slide needs window: add it, or leave slide out"),
        ("{session: 1 h, offset: 1 s}", "", "offset needs window: add it, or leave offset out"),
        ("{window: 1 h, session: 1 h}", "", "1:92: group_by has window or session, not both"),
        ("{window: 1 h, slide: 2 h}", "", "1:90: slide must not be above window"),
        ("{window: 1 h, offset: 1 h}", "", "1:91: offset must be below window"),
        ("{window: 1 h, slide: 1 min, offset: 1 min}", "", "offset must be below slide"),
    ],
)
def test_mistakes_are_reported(group_by: str, more: str, problem: str) -> None:
    found = problems_in(one(group_by, more))
    assert len(found) == 1, found
    assert problem in found[0]


def test_queries_have_no_group_by() -> None:
    (found,) = problems_in("[{id: P, type: sql, query: q, to: [sink], group_by: {}}]")
    assert 'unknown key "group_by"' in found


def test_idle_time_needs_the_order_of_time() -> None:
    load(one(HOURLY, ", max_task_idle_ms: 5"))
    (found,) = problems_in(one(BY_KEY, ", max_task_idle_ms: 5"))
    assert "max_task_idle_ms belongs to a query that takes records in the order of time" in found
