"""`type: sql` with session_window(…): results, deletions, late records, restarts."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from kafka_pipeline.common.pipelines.specs import GroupingSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.declared_groups import require_as_planned
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import StateShape
from tests.unit.streams.sql.folding import opened
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Result, Row
from tests.unit.streams.sql.test_grouped_queries import pipeline

pytestmark = pytest.mark.integration

SESSIONS = (
    "SELECT key, date_format(session_window.start, 'HH:mm') AS s, "
    "date_format(session_window.end, 'HH:mm') AS e, collect_list(n) AS l FROM input "
    "GROUP BY key, session_window(timestamp, '5 minutes')"
)
NAMED = SESSIONS.replace(
    "SELECT key", "SELECT concat(key, date_format(session_window.end, 'HH:mm')) AS key"
)
HOUR = WindowSpec(size_ms=3_600_000, slide_ms=3_600_000)
BY_CUSTOMER = SESSIONS.replace("BY key", "BY customer").replace("key,", "customer AS key,", 1)


def rows(*minutes: float, key: str = "a") -> list[Row]:
    """Return records whose number is their minute."""
    return [{"key": key, "customer": key, "n": int(at), "at": at} for at in minutes]


def shown(results: Iterable[Result]) -> list[str]:
    """Return results as key, start, end and numbers."""
    return sorted(
        f"{key}: {value and (value['s'] + '-' + value['e'], *value['l'])}"
        for _, key, value, *_ in results
    )


def test_sessions_grow_and_are_merged_with_those_that_were_kept(shared: OpenedOnce) -> None:
    job = Job(pipeline(SESSIONS), shared)
    job.send([*rows(10, 12, 18), *rows(30, key="b")])
    assert shown(job.take()) == [
        "a: ('00:10-00:17', 10, 12)",
        "a: ('00:18-00:23', 18)",
        "b: ('00:30-00:35', 30)",
    ]
    job.restart()
    # In Spark and in the DSL, a record exactly the gap after the last one belongs to its session.
    job.send(rows(13, 40))
    assert shown(job.take()) == [
        "a: ('00:10-00:23', 10, 12, 18, 13)",
        "a: ('00:40-00:45', 40)",
    ]
    job.restart()
    job.send(rows(10))
    (result,) = job.take()
    assert result.value["l"] == [10, 12, 18, 13, 10]
    assert result.timestamp == 18 * MINUTE_MS
    assert job.dropped == {}
    job.close()


def test_keys_of_sessions_that_were_merged_are_deleted_first(shared: OpenedOnce) -> None:
    job = Job(pipeline(NAMED + " HAVING sum(n) > 10"), shared)
    job.send(rows(10, 12, 20))
    job.take()
    job.send(rows(15.5, 24))
    found = job.take()
    assert [(each.key, each.timestamp) for each in found if each.value is None] == [
        ("a00:17", 12 * MINUTE_MS),
        ("a00:25", 20 * MINUTE_MS),
    ]
    assert [each.value is None for each in found] == [True, True, False]
    assert shown(found)[-1] == "a00:29: ('00:10-00:29', 10, 12, 20, 15, 24)"
    job.close()


def test_key_that_stays_is_not_deleted(shared: OpenedOnce) -> None:
    job = Job(pipeline(NAMED.replace("session_window.end", "session_window.start", 1)), shared)
    job.send(rows(10))
    job.send(rows(12))
    assert shown(job.take()) == ["a00:10: ('00:10-00:15', 10)", "a00:10: ('00:10-00:17', 10, 12)"]
    job.close()


def test_session_that_having_drops_is_deleted(shared: OpenedOnce) -> None:
    job = Job(pipeline(NAMED + " HAVING sum(n) > 10"), shared)
    job.send(rows(11))
    job.take()
    job.send([{"key": "a", "n": -9, "at": 11}])
    assert shown(job.take()) == ["a00:16: None"]
    job.send([{"key": "a", "n": 20, "at": 11}])
    job.take()
    job.send([{"key": "a", "n": -90, "at": 12}])
    assert shown(job.take()) == ["a00:16: None"]
    job.send(rows(13))
    assert job.take() == []
    job.close()


def test_session_is_emitted_once_when_it_closes(shared: OpenedOnce) -> None:
    job = Job(pipeline(SESSIONS, "grace: 10 min\n  emit: on_close"), shared)
    job.send([*rows(10, 12), *rows(14, key="b")])
    job.send(rows(27))
    assert job.take() == []
    job.restart()
    job.send(rows(27.1))
    assert shown(job.take()) == ["a: ('00:10-00:17', 10, 12)"]
    job.restart()
    # The first one is near a session that has closed; the last one closes all but its own.
    job.send([*rows(16, 40), *rows(41, key="b"), *rows(100)])
    assert [each.value["s"] for each in job.take()] == ["00:14", "00:16", "00:27", "00:40", "00:41"]
    job.send(rows(200))
    assert shown(job.take()) == ["a: ('01:40-01:45', 100)"]
    assert job.dropped == {"expired (split session)": 1}
    job.close()


@pytest.mark.parametrize("query", [SESSIONS, BY_CUSTOMER], ids=["by key", "behind a topic"])
def test_record_next_to_a_session_that_has_closed_is_counted(
    shared: OpenedOnce, query: str
) -> None:
    job = Job(pipeline(query, "grace: 0 s"), shared)
    job.send([*rows(10), *rows(16, key="b"), *rows(12)])
    job.restart()
    job.send([*rows(16), *rows(22, key="b"), *rows(21)])
    assert shown(each for each in job.take() if each.key == "a") == [
        "a: ('00:10-00:15', 10)",
        "a: ('00:12-00:17', 12)",
        "a: ('00:12-00:21', 12, 16)",
        "a: ('00:21-00:26', 21)",
    ]
    assert job.dropped == {"expired (split session)": 2}
    job.close()


def test_record_is_late_unless_it_is_in_an_open_session(shared: OpenedOnce) -> None:
    job = Job(pipeline(SESSIONS, "grace: 0 s\n  late_to: late"), shared)
    job.send(rows(10, 14, 18, 22, 11, 4))
    found = job.take()
    assert shown([each for each in found if each.topic == "out"]) == [
        "a: ('00:10-00:27', 10, 14, 18, 22, 11)"
    ]
    ((_, key, value, timestamp, headers),) = (
        each for each in found if each.topic == "late_records"
    )
    assert (key, value["n"], timestamp) == ("a", 4, 4 * MINUTE_MS)
    assert headers == {
        "__streams.late.reason": b"the window has closed",
        "__streams.late.step": b"Revenue",
        "__streams.late.window.start": b"%d" % (4 * MINUTE_MS),
        "__streams.late.window.end": b"%d" % (9 * MINUTE_MS),
        "__streams.late.stream_time": b"%d" % (22 * MINUTE_MS),
    }
    assert job.dropped == {"expired (late_to)": 1}
    job.close()


def test_record_with_several_rows_is_late_once(shared: OpenedOnce) -> None:
    query = SESSIONS.replace("FROM input", "FROM (SELECT *, explode(array(1, 2)) FROM input)")
    job = Job(pipeline(query, "grace: 0 s"), shared)
    job.send([*rows(10, 30, 11), *rows(12, key="b")])
    assert shown(job.take()) == ["a: ('00:10-00:15', 10, 10)", "a: ('00:30-00:35', 30, 30)"]
    assert job.dropped == {"expired": 2}
    job.close()


def test_sessions_of_records_with_different_keys(shared: OpenedOnce) -> None:
    job = Job(pipeline(BY_CUSTOMER, "grace: 0 s\n  late_to: late"), shared, partitions=2)
    job.send(rows(10, 14, 18, 22, 13), 0)
    found = job.take()
    # In front of the topic, no session is known: a record is late if one of its own has closed.
    assert [each.value["n"] for each in found if each.topic == "late_records"] == [13]
    assert shown([each for each in found if each.topic == "out"]) == [
        "a: ('00:10-00:27', 10, 14, 18, 22)"
    ]
    job.restart()
    # Behind it, a row of the other partition is judged by the session that it would be in.
    job.send(rows(2, 11, 25), 1)
    assert shown(job.take()) == ["a: ('00:10-00:30', 10, 14, 18, 22, 11, 25)"]
    assert job.dropped == {"expired (late_to)": 1, "expired": 1}
    job.close()


@pytest.mark.parametrize("source", ["input", "(SELECT * FROM input WHERE n > 0)"])
def test_sessions_of_an_expression(shared: OpenedOnce, source: str) -> None:
    query = BY_CUSTOMER.replace("BY customer", "BY customer IS NULL").replace(
        "customer AS", "'x' AS"
    )
    job = Job(pipeline(query.replace("FROM input", f"FROM {source}")), shared)
    job.send([*rows(10, key="a"), *rows(12, key="b"), *rows(30, key="a")])
    assert shown(job.take()) == ["x: ('00:10-00:17', 10, 12)", "x: ('00:30-00:35', 30)"]
    job.close()


def test_session_alone_may_be_the_group(shared: OpenedOnce) -> None:
    query = SESSIONS.replace("BY key, ", "BY ").replace("key, ", "session_window.start AS key, ", 1)
    job = Job(pipeline(query, "emit: on_close\n  grace: 0 s"), shared)
    job.send([*rows(10), *rows(13, key="b"), *rows(60, key="c")])
    assert shown(job.take()) == ["1970-01-01 00:10:00: ('00:10-00:18', 10, 13)"]
    job.close()


def test_batch_that_fails_changes_no_session(shared: OpenedOnce) -> None:
    query = SESSIONS + " HAVING sum(10 / n) > 0"
    job = Job(pipeline(query, "on_error: skip\n  emit: on_close\n  grace: 0 s"), shared)
    job.send(rows(10))
    job.send([*rows(11), {"key": "a", "n": 0, "at": 12}, *rows(30, 13)])
    assert shown(job.take()) == ["a: ('00:10-00:16', 10, 11)"]
    assert (job.skipped, job.dropped) == (1, {"expired": 1})
    job.close()


def test_state_of_sessions_with_another_gap_is_refused(shared: OpenedOnce) -> None:
    first = Job(pipeline(SESSIONS), shared)
    first.send(rows(1))
    first.close()
    changed = pipeline(SESSIONS.replace("5 minutes", "6 minutes"))
    with pytest.raises(QueryError, match=r"window .* was sessions, 300000000, now sessions, 36"):
        Job(changed, shared, first.stores)


def test_shape_of_sessions_crosses_processes(local: LocalQueries) -> None:
    shape = opened(local, SESSIONS.replace("GROUP BY", "GROUP BY n,")).shape
    assert shape.window == SessionSpec(gap_ms=300_000)
    assert (shape.window_column, shape.order_column) == ("session_window", "__order")
    assert shape.groups.names == ["n", "key 2", "session_window", "__order"]
    assert json.loads(shape.content)["groups"][:2] == ["int", "string"]
    assert len(json.loads(shape.content)["groups"]) == 3
    assert StateShape.from_json(json.loads(json.dumps(shape.to_json()))) == shape


def test_sessions_that_are_not_as_their_text_was_read_are_refused(local: LocalQueries) -> None:
    shape = opened(local, SESSIONS.replace("GROUP BY", "GROUP BY n,")).shape
    require_as_planned(shape, GroupingSpec(window=SessionSpec(gap_ms=300_000)))
    with pytest.raises(QueryError, match=r"the times of session_window.* are gap_ms 300000"):
        require_as_planned(shape, GroupingSpec(window=SessionSpec(gap_ms=1)))
    for wanted, name in ((None, "session_window"), (HOUR, "window")):
        with pytest.raises(QueryError, match=rf"^{name}\(…\) must be one of the columns of GROUP"):
            require_as_planned(shape, GroupingSpec(window=wanted))
    table = opened(local, "SELECT count(*) AS c FROM input GROUP BY key").shape
    with pytest.raises(QueryError, match=r"session_window\(…\) must be one of the columns"):
        require_as_planned(table, GroupingSpec(window=SessionSpec(gap_ms=1)))
