"""What queries over a changelog compute, and which ones are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.sql.columns import MOMENT
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.retraction import CHANGE, CHANGE_TIME
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_change import state_change
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

pytestmark = pytest.mark.integration

SCHEMA = "c STRING, n INT, d DECIMAL(10,2), f FLOAT, x DOUBLE"
TOTALS = (
    "SELECT c AS key, count(*) AS rows, sum(n) AS n, avg(n) AS an, sum(d) AS d, avg(d) AS ad, "
    "sum(f) AS f, cast(sum(if(n = 1, double('NaN'), if(n = 2, double('inf'), x))) AS STRING) AS x "
    "FROM input GROUP BY c"
)


def spec(query: str, *, changelog: bool = True) -> QuerySpec:
    return QuerySpec(query=query, format="json", schema=SCHEMA, changelog=changelog)


def by_category(value: str, on_error: str) -> str:
    """Return a pipeline that computes a value for each category of a table."""
    return f"""
sources: {{prices: {{topic: in, changelog: true}}}}
processors:
- id: T
  type: sql
  from: [prices]
  to: [sink]
  format: json
  schema: c STRING, n BIGINT
  query: SELECT c AS key, {value} AS v FROM input GROUP BY c
  on_error: {on_error}
"""


def row(n: int | None, d: str, f: float, x: float) -> dict[str, Any]:
    return {"c": "a", "n": n, "d": d, "f": f, "x": x}


def table(rows: Sequence[tuple[int, dict[str, Any]]]) -> pa.Table:
    """Return records with their changes."""
    times = pa.array([1000 * at for at in range(len(rows))], pa.int64()).cast(MOMENT)
    return pa.table(
        {
            "value": pa.array([json.dumps(each) for _, each in rows]),
            "timestamp": times,
            CHANGE: pa.array([change for change, _ in rows], pa.int64()),
            CHANGE_TIME: times,
        }
    )


def test_what_is_taken_out_leaves_no_trace_and_types_are_those_of_spark(
    local: LocalQueries,
) -> None:
    """NaN and infinities come and go, a sum of nulls is null, and a group ends with its rows."""
    stays, leaves = row(5, "1.25", 0.5, 0.25), [row(1, "3.00", 1, 1), row(2, "0.10", 2, 2)]
    nulls = row(None, "2.00", 1, 1)
    plain = local.open_aggregation(spec(TOTALS, changelog=False))
    signed = local.open_aggregation(spec(TOTALS))
    kept = signed.shape.rows.empty_table()

    def results(changes: Sequence[tuple[int, dict[str, Any]]]) -> Any:
        nonlocal kept
        merged = signed.merge(pa.concat_tables([kept, signed.partial(table(changes))]))
        kept = merged.select(kept.column_names)
        return merged["value"][0].as_py()

    def at_once(*rows: dict[str, Any]) -> Any:
        partial = plain.partial(table([(1, each) for each in rows]).drop([CHANGE, CHANGE_TIME]))
        return plain.merge(partial)["value"][0].as_py()

    assert results([(1, stays), (1, leaves[0])]) == at_once(stays, leaves[0])
    assert results([(1, leaves[1])]) == at_once(stays, *leaves)
    assert results([(-1, leaves[0])]) == at_once(stays, leaves[1])
    assert results([(-1, leaves[1]), (1, nulls)]) == at_once(stays, nulls)
    assert results([(-1, stays)]) == at_once(nulls)
    assert results([(-1, nulls)]) is None
    signed.close()
    plain.close()


@pytest.mark.parametrize(
    ("what", "reason"),
    long_but_the_first(
        [
            ("first(n)", r"first\(…\) over updates: a former row cannot be taken out"),
            (
                "max(array(n))",
                r"max\(…\) over updates: values of the type array<int> cannot be kept",
            ),
            ("stddev(DISTINCT n)", r"stddev\(DISTINCT …\) over updates"),
            ("try_sum(n)", r"try_sum\(…\) over updates"),
            ("collect_list(DISTINCT n)", r"collect_list\(DISTINCT …\) over updates"),
            ("percentile(n, 0.5)", r"percentile\(…\) over updates"),
            ("count(offset)", "a query over updates cannot read offset: of a former record, only"),
        ],
        3,
    ),
)
def test_what_cannot_be_taken_out_is_refused(local: LocalQueries, what: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        local.open_aggregation(spec(f"SELECT c AS key, {what} AS m FROM input GROUP BY c"))


def test_a_group_without_rows_is_not_kept(shared: OpenedOnce) -> None:
    job = Job(
        "sources: {prices: {topic: in, changelog: true}}\n"
        "processors:\n"
        "- {id: T, type: sql, from: [prices], to: [sink], format: json, schema: n DOUBLE,\n"
        '   query: "SELECT key, sum(n) AS n FROM input GROUP BY key"}\n',
        shared,
    )
    job.send([{"key": "a", "at": 1, "n": 1e17}, {"key": "b", "at": 1, "n": 1}])
    job.send([{"key": "a", "at": 2, "raw": None}, {"key": None, "at": 2, "n": 1}])
    assert [(each.key, each.value) for each in job.take()][-1] == ("a", None)
    stores = job.stores["T_0"]
    assert [len([*stores[name].entries()]) for name in ("groups", "changelog")] == [1, 1]
    assert job.dropped == {"null key": 1}
    job.send([{"key": "a", "at": 3, "n": 0.5}])
    assert job.latest() == {"a": {"n": 0.5}}
    job.close()


def test_a_deletion_passes_through_a_query_without_groups(shared: OpenedOnce) -> None:
    """What WHERE leaves out is one, too; results keep the order of their records."""
    job = Job(
        "sources: {prices: {topic: in, changelog: true}}\n"
        "sinks: {passed: passed}\n"
        "processors:\n"
        "- {id: B, type: sql, from: [prices], to: [T, passed], format: json, schema: n INT,\n"
        '   query: "SELECT key, -n AS n FROM input WHERE n < 5"}\n'
        "- {id: T, type: sql, to: [sink], format: json, schema: n INT,\n"
        '   query: "SELECT substr(key, 2) AS key, sum(n) AS n FROM input GROUP BY 1"}\n',
        shared,
    )
    values: list[int | None] = [1, 7, 2, None, 3]
    job.send(
        [
            {"key": "a", "at": at, "raw": None} if n is None else {"key": "a", "at": at, "n": n}
            for at, n in enumerate(values)
        ]
    )
    found = job.take()
    passed = [each.value and each.value["n"] for each in found if each.topic == "passed"]
    assert passed == [-1, None, -2, None, -3]
    assert [each.value["n"] for each in found if each.topic == "out"][-1] == -3
    job.close()


def test_a_row_leaves_the_window_of_its_former_time_and_is_never_late(shared: OpenedOnce) -> None:
    job = Job(
        "sources: {prices: {topic: in, changelog: true}}\n"
        "processors:\n"
        "- {id: T, type: sql, from: [prices], to: [sink], format: json, schema: n INT,\n"
        '   query: "SELECT string(unix_seconds(window.start)) AS key, sum(n) AS n FROM input '
        "GROUP BY window(timestamp, '1 hour')\"}\n",
        shared,
    )
    job.send([{"key": "a", "at": 1, "n": 1}, {"key": "b", "at": 2, "n": 2}])
    job.send([{"key": "a", "at": 9000, "n": 1}])
    assert job.latest() == {"0": {"n": 2}, "540000": {"n": 1}}
    job.send([{"key": "c", "at": 3, "n": 4}, {"key": "a", "at": 9001, "raw": None}])
    assert {each.key: each.value for each in job.take()} == {"0": {"n": 6}, "540000": None}
    assert not job.dropped
    job.close()


def test_rows_are_counted_by_a_query_that_reads_no_column(shared: OpenedOnce) -> None:
    job = Job(
        "sources: {prices: {topic: in, changelog: true}}\n"
        "processors:\n"
        "- {id: T, type: sql, from: [prices], to: [sink], format: json, schema: n INT,\n"
        "   query: \"SELECT 'all' AS key, count(*) AS n FROM input GROUP BY 'all'\"}\n",
        shared,
    )
    job.send([{"key": "a", "at": 1, "n": 1}, {"key": "b", "at": 1, "n": 2}])
    job.send([{"key": "a", "at": 2, "raw": None}])
    assert job.latest() == {"all": {"n": 1}}
    job.close()


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_result_that_cannot_be_computed_stops_the_task_behind_the_topic(
    shared: OpenedOnce, on_error: str
) -> None:
    """The row would be taken out of its group later, which never had it."""
    job = Job(by_category("10 / sum(n)", on_error), shared)
    job.send([{"key": "a", "c": "x", "at": 1, "n": 2}])
    assert job.latest() == {"x": {"v": 5.0}}
    with pytest.raises(ProcessingFailedError, match="DIVIDE_BY_ZERO"):
        job.send([{"key": "b", "c": "x", "at": 2, "n": -2}])
    job.close()


def test_result_that_cannot_be_computed_without_a_topic_leaves_the_row_as_it_was(
    shared: OpenedOnce,
) -> None:
    """The group and the newest record of the key are in one task, which undoes both."""
    text = by_category("10 / max(n)", "skip")
    job = Job(text.replace("c AS key", "key").replace("BY c", "BY key"), shared)
    job.send([{"key": "a", "at": 1, "n": 2}, {"key": "a", "at": 2, "n": 0}])
    assert (job.latest(), job.skipped) == ({"a": {"v": 5.0}}, 1)
    job.send([{"key": "a", "at": 3, "n": 5}])
    assert job.latest() == {"a": {"v": 2.0}}
    job.close()


def test_a_mean_is_exact_after_a_large_value_is_taken_out(local: LocalQueries) -> None:
    query = spec("SELECT c AS key, avg(n) AS n FROM input GROUP BY c")
    signed = local.open_aggregation(replace(query, schema="c STRING, n BIGINT"))
    large, small = ({"c": "a", "n": n} for n in (2**60, 1))
    kept = signed.shape.rows.empty_table()
    for changes in ([(1, large), (1, small)], [(-1, large)]):
        merged = signed.merge(pa.concat_tables([kept, signed.partial(table(changes))]))
        kept = merged.select(kept.column_names)
    assert json.loads(merged["value"][0].as_py()) == {"n": 1.0}
    signed.close()


def test_fields_of_a_struct_may_have_one_name(shared: OpenedOnce) -> None:
    """Arrow names fields, and Spark's default is to refuse such a struct there."""
    values = "to_json(collect_list(struct(n, -n AS n))), ' ', to_json(max_by(struct(c, c), n))"
    job = Job(by_category(f"concat({values})", "fail"), shared)
    job.send([{"key": key, "c": "x", "at": 1, "n": n} for n, key in enumerate("ab")])
    job.send([{"key": "b", "c": "x", "at": 2, "n": 7}])
    lists, best = '[{"n":0,"n":0},{"n":7,"n":-7}]', '{"c":"x","c":"x"}'
    assert job.latest() == {"x": {"v": f"{lists} {best}"}}
    job.close()


def test_too_many_values_of_a_collection_stop_the_task(shared: OpenedOnce) -> None:
    """Any number of rows may have one of them in a set."""
    text = by_category("size(collect_list(n)) + size(collect_set(n % 2))", "fail")
    job = Job(text.replace("on_error", "max_collected: 3\n  on_error"), shared)
    job.send([{"key": key, "c": "x", "at": 1, "n": n} for n, key in enumerate("abc")])
    job.send([{"key": "c", "c": "x", "at": 2, "n": 7}])
    assert job.latest() == {"x": {"v": 5}}
    with pytest.raises(ProcessingFailedError, match=r"collect_list\(…\) has more than 3 values"):
        job.send([{"key": "d", "c": "x", "at": 3, "n": 1}])
    job.close()


def test_a_state_is_not_used_with_another_text(local: LocalQueries) -> None:
    query = "SELECT c AS key, sum(n) AS n FROM input GROUP BY c"
    contents = {}
    for name, each in {
        "records": spec(query, changelog=False),
        "upserts": spec(query),
        "others": spec(query.replace("sum(n) AS n", "sum(n) AS n, max(n) AS m")),
    }.items():
        opened = local.open_aggregation(each)
        contents[name] = opened.shape.content
        opened.close()
    for before, now, words in (
        ("records", "upserts", "which now reads the newest record of each key"),
        ("upserts", "records", "which now reads each record as one more row"),
        ("upserts", "others", "could not be taken out again"),
    ):
        assert words in state_change(contents[before], contents[now]).different
    assert state_change(contents["upserts"], contents["upserts"]).different == ""
