"""`type: sql` with GROUP BY in pipeline.yaml: results, windows, late records, restarts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams.sql.declared_groups import require_as_planned
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import StateShape
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row

pytestmark = pytest.mark.integration

TEXT = """
sinks: {{late: late_records}}
processors:
- id: Revenue
  type: sql
  format: json
  schema: customer STRING, n INT
  query: {query}
  to: [sink]
  {more}
"""
TOTALS = "SELECT key, count(*) AS c, sum(n) AS s FROM input GROUP BY key HAVING sum(n) > 1"
HOURLY = (
    "SELECT key, date_format(window.start, 'HH:mm') AS hour, collect_list(n) AS l FROM input "
    "GROUP BY key, window(timestamp, '1 hour')"
)


def pipeline(query: str, more: str = "") -> str:
    return TEXT.format(query=query, more=more)


def test_group_is_updated_once_a_batch_and_deleted_when_having_drops_it(
    shared: OpenedOnce,
) -> None:
    job = Job(pipeline(TOTALS), shared)
    job.send([{"key": "a", "n": 1, "at": 0}, {"key": "b", "n": 5, "at": 1}])
    assert [each[:4] for each in job.take()] == [("out", "b", {"c": 1, "s": 5}, MINUTE_MS)]
    job.send([{"key": "a", "n": 1, "at": 5}, {"key": "a", "n": 1, "at": 4}])
    assert [each[:4] for each in job.take()] == [("out", "a", {"c": 3, "s": 3}, 5 * MINUTE_MS)]
    job.restart()
    job.send([{"key": "a", "n": -3, "at": 6}, {"key": "b", "n": -5, "at": 2}])
    assert sorted(each[1:4] for each in job.take()) == [
        ("a", None, 6 * MINUTE_MS),
        ("b", None, 2 * MINUTE_MS),
    ]
    job.send([{"key": "a", "n": -3, "at": 6}])
    assert job.take() == []
    job.close()


def test_deletion_has_no_value_if_that_is_made_of_grouping_columns(shared: OpenedOnce) -> None:
    query = "SELECT key, key AS name FROM input GROUP BY key HAVING count(*) < 2"
    job = Job(pipeline(query), shared)
    for at in (1, 2):
        job.send([{"key": "a", "at": at, "n": 1}])
    assert [(each.key, each.value) for each in job.take()] == [("a", {"name": "a"}), ("a", None)]
    job.close()


def test_windows_are_updated_and_late_records_are_counted(shared: OpenedOnce) -> None:
    job = Job(pipeline(HOURLY, "grace: 10 min"), shared)
    job.send([{"key": "a", "n": 1, "at": 30}, {"key": "a", "n": 2, "at": 69}])
    assert sorted(each.value["hour"] for each in job.take()) == ["00:00", "01:00"]
    # The second one moves time on, so the third one is late for its window.
    job.send(
        [
            {"key": "a", "n": 3, "at": 59},
            {"key": "a", "n": 4, "at": 71},
            {"key": "a", "n": 5, "at": 59},
        ]
    )
    assert {each.value["hour"]: each.value["l"] for each in job.take()} == {
        "00:00": [1, 3],
        "01:00": [2, 4],
    }
    assert job.dropped == {"expired": 1}
    job.restart()
    job.send([{"key": "a", "n": 6, "at": 59}, {"key": None, "n": 7, "at": 300}])
    assert job.take() == []
    assert job.dropped == {"expired": 2, "null key": 1}
    job.close()


def test_window_is_emitted_once_when_it_closes(shared: OpenedOnce) -> None:
    """Also if it began in the same batch, and although others have the time of the last one."""
    job = Job(pipeline(HOURLY, "grace: 10 min\n  emit: on_close"), shared)
    job.send([{"key": "b", "n": 1, "at": 5}, {"key": "a", "n": 2, "at": 6}])
    job.send([{"key": "b", "n": 3, "at": 69}])
    assert job.take() == []
    job.restart()
    job.send([{"key": "a", "n": 4, "at": 59}, {"key": "c", "n": 5, "at": 400}])
    assert [each[1:4] for each in job.take()] == [
        ("a", {"hour": "00:00", "l": [2, 4]}, 59 * MINUTE_MS),
        ("b", {"hour": "00:00", "l": [1]}, 5 * MINUTE_MS),
        ("b", {"hour": "01:00", "l": [3]}, 69 * MINUTE_MS),
    ]
    job.send([{"key": "a", "n": 6, "at": 59}, {"key": "c", "n": 7, "at": 401}])
    assert job.take() == []
    assert job.dropped == {"expired": 1}
    job.close()


def test_hopping_windows_lose_a_record_only_where_they_have_closed(shared: OpenedOnce) -> None:
    query = HOURLY.replace("'1 hour'", "'1 hour', '20 minutes', '5 minutes'")
    job = Job(pipeline(query, "grace: 0 s\n  late_to: late"), shared)
    job.send(
        [
            {"key": "a", "n": 1, "at": 70},
            {"key": "a", "n": 2, "at": 90},
            {"key": "a", "n": 3, "at": 70},
        ]
    )
    found = job.take()
    late = [each for each in found if each.topic == "late_records"]
    assert {each.value["hour"]: each.value["l"] for each in found if each not in late} == {
        "00:25": [1],
        "00:45": [1, 2, 3],
        "01:05": [1, 2, 3],
        "01:25": [2],
    }
    ((_, key, value, timestamp, headers),) = late
    assert (key, value, timestamp) == ("a", {"n": 3}, 70 * MINUTE_MS)
    assert headers == {
        "__streams.late.reason": b"the window has closed",
        "__streams.late.step": b"Revenue",
        "__streams.late.window.start": b"%d" % (25 * MINUTE_MS),
        "__streams.late.window.end": b"%d" % (85 * MINUTE_MS),
        "__streams.late.stream_time": b"%d" % (90 * MINUTE_MS),
    }
    assert job.dropped == {"expired (late_to)": 1}
    job.close()


def test_windows_before_1970_are_not_kept(shared: OpenedOnce) -> None:
    job = Job(pipeline(HOURLY.replace("'1 hour'", "'1 hour', '30 minutes'")), shared)
    job.send([{"key": "a", "n": 1, "at": 5}])
    assert [each.value["hour"] for each in job.take()] == ["00:00"]
    assert job.dropped == {}
    job.close()


def test_window_alone_may_be_the_group(shared: OpenedOnce) -> None:
    query = (
        "SELECT window.start AS key, count(*) AS c FROM input GROUP BY window(timestamp, '1 hour')"
    )
    job = Job(pipeline(query, "emit: on_close\n  grace: 0 s"), shared, partitions=2)
    job.send([{"key": "a", "at": 1}, {"key": None, "at": 2}, {"key": "c", "at": 61}], 0)
    job.send([{"key": "a", "at": 30}, {"key": "a", "at": 130}], 1)
    # The first partition is ahead when the second one begins, and its window has closed.
    assert [(each.key, each.value) for each in job.take()] == [
        ("1970-01-01 00:00:00", {"c": 2}),
        ("1970-01-01 01:00:00", {"c": 1}),
    ]
    assert job.dropped == {"expired": 1}
    job.close()


def test_groups_of_records_with_different_keys_meet_behind_a_topic(shared: OpenedOnce) -> None:
    query = "SELECT customer AS key, count(*) AS c, first(n) AS f FROM input GROUP BY customer"
    job = Job(pipeline(query), shared, partitions=2)
    rows = [{"key": i, "customer": "abc"[i % 3], "n": i, "at": i} for i in range(12)]
    for partition in (0, 1):
        job.send(rows[partition::2], partition)
    firsts = {"a": 0, "b": 4, "c": 2}
    assert job.latest() == {name: {"c": 4, "f": n} for name, n in firsts.items()}
    job.restart()
    job.send([{"key": "x", "customer": None, "n": 1, "at": 0}, *rows])
    found = job.latest()
    assert found.pop(None) == {"c": 1, "f": 1}
    assert found == {name: {"c": 8, "f": n} for name, n in firsts.items()}
    job.close()


def test_late_records_are_found_in_front_of_the_topic_and_behind_it(shared: OpenedOnce) -> None:
    query = HOURLY.replace("key", "customer AS key", 1).replace("BY key", "BY customer")
    job = Job(pipeline(query, "grace: 0 s\n  late_to: late"), shared, partitions=2)

    def rows(*minutes: int) -> list[dict[str, object]]:
        return [{"key": 1, "customer": "a", "n": at, "at": at} for at in minutes]

    job.send(rows(10, 70, 11), 0)
    # In the first partition, the third record is late. In the second one, the first is not, but its
    # window has closed behind the topic, where only its group is known.
    job.restart()
    job.send(rows(12, 71), 1)
    found = job.take()
    assert [each.value["n"] for each in found if each.topic == "late_records"] == [11]
    results = [(each.value["hour"], each.value["l"]) for each in found if each.topic == "out"]
    assert results == [("00:00", [10]), ("01:00", [70]), ("01:00", [70, 71])]
    assert job.dropped == {"expired (late_to)": 1, "expired": 1}
    job.send(rows(69, 130), 0)
    assert sorted(each.value["hour"] for each in job.take()) == ["01:00", "02:00"]
    job.close()


def test_record_that_is_not_text_or_not_computable_is_rejected_alone(shared: OpenedOnce) -> None:
    query = "SELECT key, sum(10 / n) AS s FROM input GROUP BY key"
    job = Job(pipeline(query, "on_error: skip"), shared)
    job.send(
        [
            {"key": "a", "n": 1, "at": 0},
            {"key": None, "n": 1, "at": 0},
            {"key": "a", "raw": b"\xff", "at": 1},
            {"key": "a", "n": 0, "at": 2},
            {"key": None, "n": 1, "at": 0},
            {"key": "a", "n": 5, "at": 3},
            {"key": "a", "raw": b"{", "at": 1},
        ]
    )
    assert job.latest() == {"a": {"s": 12.0}}
    assert (job.skipped, job.dropped) == (3, {"null key": 2})
    job.close()


@pytest.mark.parametrize(
    ("changed", "reason"),
    long_but_the_first(
        [
            (
                "SELECT key, sum(n * 1.5) AS s FROM input GROUP BY key",
                "the aggregate functions were .* now .*decimal",
            ),
            (
                TOTALS.replace("BY key", "BY key, customer").partition(" HAVING")[0],
                "grouping columns were string, now string, s",
            ),
            (HOURLY, "the window .* was none, now 3600000000, 3600000000, 0"),
            (
                TOTALS.replace("BY key", "BY customer").replace("key,", "customer AS key,"),
                "how records",
            ),
        ],
        2,
    ),
)
def test_state_of_another_query_is_refused(shared: OpenedOnce, changed: str, reason: str) -> None:
    first = Job(pipeline(TOTALS), shared)
    first.send([{"key": "a", "n": 5, "at": 0}])
    first.close()
    with pytest.raises(QueryError, match=f"the state was kept for another query: .*{reason}"):
        Job(pipeline(changed), shared, first.stores)


def test_state_of_a_query_with_another_condition_is_used(shared: OpenedOnce) -> None:
    first = Job(pipeline(TOTALS), shared)
    first.send([{"key": "a", "n": 5, "at": 0}])
    first.close()
    second = Job(
        pipeline(TOTALS.replace("> 1", "> 2").replace("FROM input", "FROM input WHERE n > 0")),
        shared,
        first.stores,
    )
    second.send([{"key": "a", "n": 5, "at": 0}, {"key": "a", "n": 0, "at": 0}])
    assert second.latest() == {"a": {"c": 2, "s": 10}}
    second.close()


@pytest.mark.parametrize("value", [b"?", b"12345678" + bytes(17)])
def test_rows_of_another_query_stop_the_task_whatever_on_error_says(
    shared: OpenedOnce, value: bytes
) -> None:
    query = "SELECT customer AS key, count(*) AS c FROM input GROUP BY customer"
    job = Job(pipeline(query, "on_error: skip"), shared)
    with pytest.raises(ConfigError, match="has other rows than those of its query"):
        job.deliver("Revenue_groups-repartition", 0, [b""], [value], [0])
    job.close()


@pytest.mark.parametrize("group", ["key", "customer"])
def test_record_that_makes_a_collection_too_large_is_rejected(
    shared: OpenedOnce, group: str
) -> None:
    query = f"SELECT {group} AS key, size(collect_set(n)) AS c FROM input GROUP BY {group}"
    job = Job(pipeline(query, "on_error: skip\n  max_collected: 3"), shared)
    numbers = [1, 2, 2, 3, 4, 1, 5]
    if group == "customer":
        for n in numbers:  # behind the topic, a row of a batch is rejected
            job.send([{"key": "k", "customer": "a", "n": n, "at": n}])
    else:
        job.send([{"key": "a", "n": n, "at": n} for n in numbers])
    job.send([{"key": "b", "customer": "b", "n": 9, "at": 9}])
    assert job.latest() == {"a": {"c": 3}, "b": {"c": 1}}
    assert job.skipped == 2
    job.close()


DISTINCT = "SELECT DISTINCT key, customer FROM input WHERE n > 0"


@pytest.mark.parametrize("query", [DISTINCT, DISTINCT.replace("key,", "n AS key,")])
def test_distinct_row_is_given_once_with_the_time_of_its_first_record(
    shared: OpenedOnce, query: str
) -> None:
    job = Job(pipeline(query), shared, partitions=2)

    def row(customer: str | None, at: int, n: int = 1) -> Row:
        return {"key": 1, "customer": customer, "n": n, "at": at}

    job.send([row("a", 7), row("a", 3), row("b", 2, n=0), row(None, 1)])
    assert sorted((each[1:4] for each in job.take()), key=str) == [
        ("1", {"customer": "a"}, 7 * MINUTE_MS),
        ("1", {"customer": None}, MINUTE_MS),
    ]
    job.restart()
    job.send([row("a", 9), row(None, 9), row("b", 8), row("b", 5)])
    assert [each[1:4] for each in job.take()] == [("1", {"customer": "b"}, 8 * MINUTE_MS)]
    job.send([row("a", 10)])
    assert (job.take(), job.dropped) == ([], {})
    job.close()


def test_distinct_rows_that_were_kept_for_the_close_are_given_when_emit_is_changed(
    shared: OpenedOnce,
) -> None:
    query = (
        "SELECT key, customer FROM (SELECT DISTINCT key, customer, window(timestamp, '1 hour') "
        "AS w FROM input)"
    )
    rows: list[Row] = [{"key": 1, "customer": each, "n": 1, "at": 5} for each in "ab"]
    job = Job(pipeline(query, "grace: 0 s\n  emit: on_close"), shared)
    job.send(rows[:1])
    job.close()
    job = Job(pipeline(query, "grace: 0 s\n  emit: on_update"), shared, job.stores)
    assert job.take() == []
    job.send([{**rows[0], "at": 7}, rows[1]])
    assert [each[1:4] for each in job.take()] == [
        ("1", {"customer": each}, 5 * MINUTE_MS) for each in "ab"
    ]
    job.send(rows)
    assert job.take() == []
    job.close()


@pytest.mark.parametrize("emit", ["on_update", "on_close"])
@pytest.mark.parametrize("group", long_but_the_first(["key", "customer"]))
def test_distinct_row_is_given_once_a_window(shared: OpenedOnce, emit: str, group: str) -> None:
    query = (
        f"SELECT {group} AS key, date_format(w.start, 'HH:mm') AS hour FROM (SELECT DISTINCT "
        f"{group}, window(timestamp, '1 hour') AS w FROM input)"
    )
    job = Job(pipeline(query, f"grace: 0 s\n  emit: {emit}"), shared)
    found = []
    for minutes in ([5, 3, 70], [71, 59], [80, 130], [400]):
        job.send([{"key": "a", "customer": "a", "n": 1, "at": at} for at in minutes])
        found.append([(each.value["hour"], each.timestamp // MINUTE_MS) for each in job.take()])
        job.restart()
    if emit == "on_update":
        assert found == [[("00:00", 5), ("01:00", 70)], [], [("02:00", 130)], [("06:00", 400)]]
    else:
        assert found == [[("00:00", 5)], [], [("01:00", 70)], [("02:00", 130)]]
    assert job.dropped == {"expired": 1}
    job.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(window(timestamp, '1 hour').start) AS w FROM input GROUP BY key",
        "SELECT DISTINCT key, window(timestamp, '1 hour').start AS w FROM input",
    ],
)
def test_window_that_is_no_grouping_column_is_refused(shared: OpenedOnce, query: str) -> None:
    with pytest.raises(QueryError, match="must be one of the columns of GROUP BY"):
        Job(pipeline(query), shared)


def test_key_that_spark_does_not_group_by_is_refused() -> None:
    empty = pa.schema([])
    shape = StateShape(
        empty,
        empty,
        empty,
        empty,
        None,
        "",
        "",
        "",
        key_column="",
        is_distinct=False,
        best=0,
        ranked="",
        loses_rows=False,
        empty=empty.empty_table(),
        content="",
    )
    with pytest.raises(QueryError, match="a column key that is not the key of the records"):
        require_as_planned(shape, GroupingSpec())
