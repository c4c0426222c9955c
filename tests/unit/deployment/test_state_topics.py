"""State that would be lost is found before a job starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.deployment.state_topics import (
    check_kept_groups,
    check_kept_tables,
    check_moved_state,
    check_state_topics,
)
from tests.unit.deployment.test_partitions import SOURCES, FakeAdmin, in_kafka


class FakeKafka(FakeAdmin):
    """Lists its topics too."""

    def topics(self) -> dict[str, int]:
        return dict(self._counts)


def check_state(text: str, counts: Mapping[str, int], folder: Path) -> None:
    loaded = in_kafka(text, counts, folder)
    kafka = cast(Admin, FakeKafka(counts))
    check_state_topics(loaded, kafka)
    check_moved_state(loaded, kafka)
    check_kept_groups(loaded, kafka)
    check_kept_tables(loaded, kafka)


COUNTS_A = SOURCES + "- {id: P, type: count, from: [a], to: [c]}"


def test_input_that_has_grown_is_named_and_the_state_is_to_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        check_state(COUNTS_A, {"a_topic": 4, "state_topic_P_job": 2}, tmp_path)
    message = str(error.value)
    assert 'the input a_topic of "P" has 4 partitions, and had 2' in message
    assert "Keep the topic state_topic_P_job" in message
    assert "When a source gets more partitions" in message


@pytest.mark.parametrize("counts", [{"a_topic": 4, "state_topic_P_job": 4}, {"a_topic": 4}, {}])
def test_state_that_fits_its_input_or_is_new_is_fine(
    counts: Mapping[str, int], tmp_path: Path
) -> None:
    check_state(COUNTS_A, counts, tmp_path)


def test_input_that_is_no_topic_of_the_user_is_not_blamed(tmp_path: Path) -> None:
    """Then `parallelism` has changed, and the arc does not fit either."""
    text = SOURCES + "- {id: F, type: sum, from: [a], to: [P]}\n- {id: P, type: count, to: [c]}"
    check_state(text, {"a_topic": 4, "state_topic_P_job": 3}, tmp_path)


ENRICHED = """
processors:
- id: W
  type: topology
  builder: tests.user_code.topologies:enriched
  config: {stream: a_topic, table: b_topic, rows: d_topic, out: c_topic}
"""
INPUTS = {"a_topic": 2, "b_topic": 2, "d_topic": 2}


def test_state_of_a_group_that_now_has_another_name_is_named_with_its_topic(tmp_path: Path) -> None:
    """In the group, the source of a_topic came first, and now the table does."""
    with pytest.raises(ConfigError) as error:
        check_state(ENRICHED, {**INPUTS, "state_topic_W-Before_Found_job": 2}, tmp_path)
    message = str(error.value)
    assert 'the store "Found" of "W" was in the group "Before"' in message
    assert 'would begin empty in the group "Found-source"' in message
    assert "delete the topic state_topic_W-Before_Found_job" in message


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"state_topic_W-Found-source_Found_job": 2},
        {"state_topic_W-Found-source_Found_job": 2, "state_topic_W-Before_Found_job": 2},
        {"state_topic_V-Before_Found_job": 2},
        {"state_topic_W-Before_Lost_job": 2},
        {"state_topic_W-Before_Found_other": 2},
    ],
)
def test_state_in_its_place_and_that_of_others_is_fine(
    state: Mapping[str, int], tmp_path: Path
) -> None:
    check_state(ENRICHED, {**INPUTS, **state}, tmp_path)


def grouped(groups: str, table: str = "") -> str:
    join = f" i JOIN {table} ON i.key = {table}.key" if table else ""
    query = f'"SELECT count(*) AS value FROM input{join} GROUP BY {groups}"'
    tables = f"tables: {{{table}: {{topic: b}}}}, " if table else ""
    return SOURCES + f"- {{id: P, type: sql, query: {query}, from: [a], {tables}to: [c]}}"


WINDOW = "window(timestamp, '1 hour')"
TABLE = {"state_topic_P_shape_job": 2, "state_topic_P_groups_job": 2}
WINDOWS = {"state_topic_P_shape_job": 2, "state_topic_P_windows_job": 2}
SESSIONS = {"state_topic_P_shape_job": 2, "state_topic_P_sessions_job": 2}
BETWEEN = {"P_groups-repartition_job": 2}


@pytest.mark.parametrize(
    ("groups", "counts", "changed"),
    [
        ("key", WINDOWS, "had a window"),
        ("key", SESSIONS, "had a window"),
        (f"key, {WINDOW}", TABLE, "had no window.…."),
        (f"key, {WINDOW}", SESSIONS, "had no window.…."),
        (f"key, session_{WINDOW}", WINDOWS, "had no session_window.…."),
        ("value", TABLE, "grouped records by key"),
        ("key", {**TABLE, **BETWEEN}, "did not group records by key"),
    ],
)
def test_state_of_a_query_with_other_groups_is_refused(
    groups: str, counts: Mapping[str, int], changed: str, tmp_path: Path
) -> None:
    wanted = f'the state of "P" was kept for another query, which {changed}. Go back to the former'
    with pytest.raises(ConfigError, match=wanted):
        check_state(grouped(groups), {"a_topic": 2, **counts}, tmp_path)


def grouped_frame(group_by: str) -> str:
    function = f'function: "tests.user_code.grouped_frames:totals", group_by: {group_by}'
    return SOURCES + f"- {{id: P, type: dataframe, {function}, from: [a], to: [c]}}"


@pytest.mark.parametrize(
    ("group_by", "counts", "changed"),
    [
        ("{key: true}", SESSIONS, "had a window"),
        ("{key: true, window: 1 h}", TABLE, "had no window.…."),
        ("{key: true, session: 1 h}", WINDOWS, "had no session_window.…."),
        ("{}", TABLE, "grouped records by key"),
        ("{key: true}", {**TABLE, **BETWEEN}, "did not group records by key"),
    ],
)
def test_state_of_a_function_with_other_groups_is_refused(
    group_by: str, counts: Mapping[str, int], changed: str, tmp_path: Path
) -> None:
    wanted = f'the state of "P" was kept for another query, which {changed}. Go back to the former'
    with pytest.raises(ConfigError, match=wanted):
        check_state(grouped_frame(group_by), {"a_topic": 2, **counts}, tmp_path)
    check_state(grouped_frame(group_by), {"a_topic": 2}, tmp_path)


@pytest.mark.parametrize(
    ("groups", "counts"),
    [
        ("key", TABLE),
        ("key", {}),
        (f"{WINDOW}, key", WINDOWS),
        (f"session_{WINDOW}, key", SESSIONS),
        ("value", {**TABLE, **BETWEEN}),
        (WINDOW, {**WINDOWS, **BETWEEN}),
        # The state of a former processor without GROUP BY in its query is none.
        ("key", BETWEEN),
    ],
)
def test_state_of_a_query_with_such_groups_or_new_state_is_fine(
    groups: str, counts: Mapping[str, int], tmp_path: Path
) -> None:
    check_state(grouped(groups), {"a_topic": 2, **counts}, tmp_path)


def test_state_of_groups_is_looked_at_whether_the_query_has_a_table_of_a_topic(
    tmp_path: Path,
) -> None:
    topics = {"a_topic": 2, "b_topic": 2}
    check_state(grouped("i.key", "t"), {**topics, **TABLE}, tmp_path)
    check_state(grouped("i.value", "t"), {**topics, **TABLE, **BETWEEN}, tmp_path)
    kept = {**WINDOWS, "state_topic_P_table-t_job": 2}
    with pytest.raises(ConfigError, match="which had a window"):
        check_state(grouped("i.key", "t"), {**topics, **kept}, tmp_path)


def with_table(table: str, groups: str = "") -> str:
    query = f"SELECT i.value FROM input i JOIN t ON i.key = t.key{groups}"
    if groups:
        query = query.replace("i.value", "count(*) AS value", 1)
    return (
        f'{SOURCES}- {{id: P, type: sql, query: "{query}", from: [a], tables: {{t: {table}}}, '
        "to: [c]}"
    )


LATEST, HISTORY = "{topic: b}", "{topic: b, history: 1 d}"
KEPT = "state_topic_P_table-t_job"
KEPT_HISTORY = "state_topic_P_table-t-history_job"


@pytest.mark.parametrize(
    ("table", "kept", "problem"),
    [
        (HISTORY, KEPT, "was kept without a history, in another format: leave history out again"),
        (LATEST, KEPT_HISTORY, "was kept with a history, in another format: give it history again"),
    ],
)
def test_table_that_was_kept_in_another_way_is_refused(
    table: str, kept: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        check_state(with_table(table), {"a_topic": 2, "b_topic": 2, kept: 2}, tmp_path)
    assert str(error.value) == (
        f'the table "t" of "P" {problem}, or give the processor another id, with which it begins '
        'without state; see docs/how-to/change_a_pipeline.md, "Change the history of a table"'
    )


def test_table_of_the_processor_in_front_of_groups_is_looked_at_too(tmp_path: Path) -> None:
    text = with_table(HISTORY, " GROUP BY i.value")
    counts = {"a_topic": 2, "b_topic": 2, "state_topic_P-rows_table-t_job": 2}
    with pytest.raises(ConfigError, match='the table "t" of "P-rows" was kept without a history'):
        check_state(text, counts, tmp_path)
    check_state(text, {"a_topic": 2, "b_topic": 2, KEPT: 2}, tmp_path)


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        (HISTORY, KEPT_HISTORY),
        ("{topic: b, history: 2 h}", KEPT_HISTORY),
        (LATEST, KEPT),
        (HISTORY, "state_topic_Q_table-t_job"),
        ("{topic: b, global: true}", KEPT_HISTORY),
    ],
)
def test_table_that_was_kept_in_the_same_way_or_not_at_all_is_fine(
    table: str, kept: str, tmp_path: Path
) -> None:
    check_state(with_table(table), {"a_topic": 2, "b_topic": 2, kept: 2}, tmp_path)
    check_state(with_table(table), {"a_topic": 2, "b_topic": 2}, tmp_path)
