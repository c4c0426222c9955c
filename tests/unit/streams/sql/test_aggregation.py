"""Queries with GROUP BY, batch by batch: what they give, keep and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import WindowSpec
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_change import state_change
from kafka_pipeline.streams.sql.state_shape import (
    OPEN_FROM,
    PreparedAggregation,
    StateShape,
)
from kafka_pipeline.streams.sql.tables import Rows
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import (
    MINUTE_US,
    SCHEMA,
    Folding,
    Row,
    merged_of,
    opened,
    records,
    results_of,
)

pytestmark = pytest.mark.integration

BATCHES: list[list[Row]] = [
    [{"n": 1, "customer": "b"}, {"n": 5, "customer": "a"}, {"n": None, "customer": "e"}],
    [{"n": 3, "customer": None}],
    [{"n": 3, "customer": "d"}, {"n": 8, "customer": "c"}],
]
BY_EXPRESSION = {
    "count(*)": 6,
    "count(n)": 5,
    "count_if(n > 2)": 4,
    "count(n) FILTER (WHERE n > 3)": 2,
    "sum(n)": 20,
    "sum(CAST(n AS DECIMAL(10, 2)))": 20.0,
    "nullif(sum(CAST(n AS DECIMAL(5, 2))), 0)": 20.0,
    "sum(n) / nullif(count(n), 0) + avg(CAST(n AS DECIMAL(5, 2)))": 8.0,
    "avg(CAST(n AS DECIMAL(5, 2))) BETWEEN 3 AND 5": True,
    "try_sum(n)": 20,
    "sum(n) * 10 + count(*)": 206,
    "avg(n)": 4.0,
    "try_avg(n)": 4.0,
    "min(n)": 1,
    "max(n)": 8,
    "min(customer)": "a",
    "max(customer)": "e",
    "max(struct(n, customer)).customer": "c",
    "first(n)": 1,
    "first(customer)": "b",
    "any_value(customer)": "b",
    "last(customer)": "c",
    "last(CAST(NULL AS INT), true)": None,
    "max_by(customer, n)": "c",
    "min_by(customer, n)": "b",
    "stddev(n)": 7**0.5,
    "stddev_pop(n)": 5.6**0.5,
    "variance(n)": 7.0,
    "var_pop(n)": 5.6,
    "skewness(n)": 7.2 / 5.6**1.5,
    "kurtosis(n)": 68 / 5.6**2 - 3,
    "corr(n, n)": 1.0,
    "covar_pop(n, n)": 5.6,
    "covar_samp(n, n)": 7.0,
    "bool_and(n > 0)": True,
    "every(n > 1)": False,
    "some(n > 7)": True,
    "bit_and(n)": 0,
    "bit_or(n)": 15,
    "bit_xor(n)": 12,
}
BY_AGGREGATE: dict[str, Any] = {
    "collect_list(n)": [1, 5, 3, 3, 8],
    "collect_list(struct(n, customer))[0]": {"n": 1, "customer": "b"},
    "array_agg(customer)": ["b", "a", "e", "d", "c"],
    "array_sort(collect_set(n))": [1, 3, 5, 8],
    "count(DISTINCT n)": 4,
    "count(DISTINCT n, customer)": 4,
    "count(DISTINCT n % 2) FILTER (WHERE n > 1)": 2,
    "sum(DISTINCT n)": 17,
    "sum(DISTINCT CAST(n AS DECIMAL(10, 2)))": 17.0,
    "avg(DISTINCT n)": 4.25,
    "sum(DISTINCT n) * 10 + count(DISTINCT customer)": 175,
    "max(DISTINCT n)": 8,
    "any_value(DISTINCT customer)": "b",
    "bool_or(DISTINCT n > 7)": True,
    "stddev_pop(DISTINCT n)": 6.6875**0.5,
    "corr(DISTINCT n, n)": 1.0,
    "bit_xor(DISTINCT n)": 15,
    "array_sort(collect_set(DISTINCT n))": [1, 3, 5, 8],
    "approx_count_distinct(n)": 4,
    "approx_percentile(n, 0.5)": 3,
    "percentile(n, 0.5)": 3.0,
    "median(n)": 3.0,
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY n)": 3.0,
    "count(*)": 6,
    "max(customer)": "e",
}
HOURLY = (
    "SELECT customer AS key, window.start AS hour, count(*) AS orders, sum(amount) AS revenue "
    "FROM input GROUP BY customer, window(timestamp, '1 hour') HAVING sum(amount) > 100"
)


@pytest.fixture(scope="session")
def hourly(local: LocalQueries) -> PreparedAggregation:
    return opened(local, HOURLY)


@pytest.fixture(scope="session")
def values(local: LocalQueries) -> dict[Any, Any]:
    """The value of each function over the three batches, by its text."""
    found: dict[Any, Any] = {}
    for functions in (BY_EXPRESSION, BY_AGGREGATE):
        columns = ", ".join(f"{text} AS `{index}`" for index, text in enumerate(functions))
        folding = Folding(opened(local, f"SELECT {columns} FROM input GROUP BY key"))
        for batch in BATCHES:
            folding.add(records(batch))
        ((_, value, _),) = folding.results()
        found |= {
            (text, functions is BY_EXPRESSION): value[str(i)] for i, text in enumerate(functions)
        }
    return found


@pytest.mark.parametrize("text", BY_EXPRESSION)
def test_function_gives_the_same_as_on_all_records(values: dict[Any, Any], text: str) -> None:
    assert values[text, True] == pytest.approx(BY_EXPRESSION[text])


@pytest.mark.parametrize("text", BY_AGGREGATE)
def test_function_that_needs_an_aggregate_does_too(values: dict[Any, Any], text: str) -> None:
    expected = BY_AGGREGATE[text]
    assert values[text, False] == (
        expected if isinstance(expected, list | dict) else pytest.approx(expected)
    )


def test_group_that_having_leaves_out_is_told_apart_and_keeps_its_state(
    hourly: PreparedAggregation,
) -> None:
    folding = Folding(hourly)
    first = folding.add(records([{"customer": "a", "amount": 60}, {"customer": "b", "amount": 7}]))
    assert first.has_result.tolist() == [False, False]
    assert sorted(map(tuple, (row.values() for row in first.results.to_pylist()))) == [
        (None, 0, b"a"),
        (None, 60_000, b"b"),
    ]
    second = folding.add(records([{"customer": "a", "amount": 60}], start=5))
    value = {"hour": "1970-01-01T00:00:00.000Z", "orders": 2, "revenue": 120.0}
    assert results_of(second) == [(b"a", value, 300_000)]
    third = folding.add(records([{"customer": "a", "amount": -50}], start=6))
    assert third.has_result.tolist() == [False]
    assert third.results["key"].to_pylist() == [b"a"]


def test_shape_says_what_is_kept(hourly: PreparedAggregation) -> None:
    shape = hourly.shape
    assert hourly.columns == ("value", "timestamp", OPEN_FROM)
    assert shape.groups.names == ["customer", "window"]
    assert shape.buffers.names == ["count", "sum", "max"]
    assert [str(type_) for type_ in shape.buffers.types] == [
        "int64",
        "double",
        "timestamp[us, tz=UTC]",
    ]
    assert shape.output.names == ["value", "timestamp", "key"]
    assert shape.window_column == "window"
    assert shape.window == WindowSpec(size_ms=3_600_000, slide_ms=3_600_000)
    assert (shape.last_time, shape.has_key) == ("max", False)
    assert StateShape.from_json(json.loads(json.dumps(shape.to_json()))) == shape


def test_names_of_columns_differ(local: LocalQueries) -> None:
    """Although a grouping column has the name of one of the results, or of a buffer."""
    shape = opened(
        local,
        "SELECT `sum` AS key, sum(n) AS s, sum(amount) AS t FROM "
        "(SELECT customer AS `sum`, n AS value, n, amount, timestamp FROM input) "
        "GROUP BY `sum`, value",
    ).shape
    assert shape.rows.names == ["sum", "value 2", "sum 2", "sum 3", "max"]


@pytest.mark.parametrize(
    ("query", "is_same"),
    long_but_the_first(
        [
            (HOURLY.replace("GROUP BY", "WHERE n > 1 GROUP BY").replace("> 100", "> 50"), True),
            (HOURLY.replace("1 hour", "2 hours"), False),
            (HOURLY.replace("customer AS key", "concat(customer, 'x') AS key"), True),
            (HOURLY.replace("'1 hour'", "'1 hour', '30 minutes'"), False),
            (HOURLY.replace("sum(amount)", "sum(n)"), False),
            (HOURLY.replace("GROUP BY", "GROUP BY n,"), False),
        ],
        2,
    ),
)
def test_content_changes_with_what_is_kept(
    local: LocalQueries, hourly: PreparedAggregation, query: str, is_same: bool
) -> None:
    changed = opened(local, query).shape
    assert (state_change(hourly.shape.content, changed.content).different == "") is is_same


def test_hopping_windows_of_a_renamed_time(local: LocalQueries) -> None:
    """The time of the record is passed on through the windows, although the query drops it."""
    query = opened(
        local,
        "SELECT window.start AS start, count(*) AS c FROM (SELECT timestamp AS t FROM input) "
        "GROUP BY window(t, '1 hour', '30 minutes', '10 minutes')",
    )
    assert query.shape.window == WindowSpec(size_ms=3_600_000, slide_ms=1_800_000, start_ms=600_000)
    folding = Folding(query)
    folding.add(records([{"n": 1, "at": 0}]))
    folding.add(records([{"n": 1, "at": 15}]))
    assert sorted((value["start"], value["c"], last) for _, value, last in folding.results()) == [
        ("1969-12-31T23:10:00.000Z", 1, 0),
        ("1969-12-31T23:40:00.000Z", 2, 900_000),
        ("1970-01-01T00:10:00.000Z", 1, 900_000),
    ]


def test_nan_zeros_and_nulls_are_grouped_as_spark_does(local: LocalQueries) -> None:
    """Also when they come in different batches, and so through the bytes of a store."""
    folding = Folding(
        opened(
            local,
            "SELECT to_json(struct(x, s)) AS key, count(*) AS c FROM (SELECT CASE customer "
            "WHEN 'nan' THEN double('NaN') WHEN 'zero' THEN 0.0D WHEN 'minus' THEN -0.0D END AS x, "
            "struct(float(-amount) AS f) AS s, timestamp FROM input) GROUP BY x, s",
        )
    )
    for amount in (0.0, -0.0):
        for customer in ("nan", "zero", "minus", "null"):
            folding.add(records([{"customer": customer, "amount": amount}]))
    counts = {key: value["c"] for key, value, _ in folding.results()}
    assert counts == {
        b'{"x":"NaN","s":{"f":0.0}}': 2,
        b'{"x":0.0,"s":{"f":0.0}}': 4,
        b'{"s":{"f":0.0}}': 2,
    }
    assert len(folding.state) == 3


def test_distinct_tells_values_apart_as_spark_does(local: LocalQueries) -> None:
    """Also when they come in different batches, and so through the bytes of a store."""
    folding = Folding(
        opened(
            local,
            "SELECT count(DISTINCT x) AS x, count(DISTINCT s) AS s, count(DISTINCT tags) AS t FROM "
            "(SELECT key, timestamp, tags, double(customer) AS x, struct(double(customer) AS y) "
            "AS s FROM input) GROUP BY key",
        )
    )
    for _ in range(2):
        for customer, tags in (("NaN", ["a"]), ("0", []), ("-0.0", [None]), (None, None)):
            folding.add(records([{"customer": customer, "tags": tags}]))
    ((_, value, _),) = folding.results()
    assert value == {"x": 2, "s": 3, "t": 3}


@pytest.mark.parametrize(
    ("function", "group"),
    long_but_the_first(
        [
            ("collect_list(n)", r"collect_list\(…\)"),
            ("array_agg(n)", r"(array_agg|collect_list)\(…\)"),
            ("size(collect_set(n))", r"collect_set\(…\)"),
            ("sum(DISTINCT n)", r"sum\(DISTINCT …\)"),
        ],
        2,
    ),
)
def test_collections_are_bounded(local: LocalQueries, function: str, group: str) -> None:
    query = (
        f"SELECT customer AS key, {function} AS x FROM input GROUP BY customer, n % 2 "
        "HAVING count(*) > 100"
    )
    folding = Folding(
        local.open_aggregation(QuerySpec(query, format="json", schema=SCHEMA, max_collected=2))
    )
    folding.add(records([{"customer": "a", "n": n} for n in (1, 2, 3, 4)]))
    reason = f"{group} has more than 2 values in the group {{a, 1}}: see max_collected"
    with pytest.raises(QueryError, match=reason) as raised:
        folding.add(records([{"customer": "a", "n": 5}]))
    assert raised.value.shown.endswith(" has more than 2 values in a group: see max_collected")
    folding.add(records([{"customer": "b", "n": 5}]))


@pytest.mark.parametrize("source", ["input", "(SELECT customer, n FROM input)"])
def test_grouping_sets_are_groups(local: LocalQueries, source: str) -> None:
    query = (
        f"SELECT customer AS key, grouping(customer) AS total, sum(n) AS s FROM {source} "
        "GROUP BY ROLLUP (customer)"
    )
    folding = Folding(opened(local, query))
    for customer in ("a", "b", None):
        folding.add(records([{"customer": customer, "n": 2}]))
    found = {(key, value["total"]): value["s"] for key, value, _ in folding.results()}
    assert found == {(b"a", 0): 2, (b"b", 0): 2, (None, 0): 2, (None, 1): 6}


def test_function_of_a_dataframe(local: LocalQueries) -> None:
    code = "tests.user_code.grouped_frames:per_hour"
    spec = QuerySpec(function=code, format="json", schema=SCHEMA, config={"least": 2})
    folding = Folding(local.open_aggregation(spec))
    folding.add(records([{"customer": "a"}, {"customer": "b"}]))
    folding.add(records([{"customer": "a"}], start=9))
    assert folding.results() == [(b"a", {"orders": 2}, 540_000)]


def test_values_that_are_strings(local: LocalQueries) -> None:
    query = local.open_aggregation(
        QuerySpec(
            "SELECT key, count(*) AS value, max(timestamp) AS timestamp FROM input GROUP BY key"
        )
    )
    assert query.columns == ("key", "timestamp")
    assert query.shape.buffers.names == ["count", "max"]
    table = pa.table(
        {"key": ["k", "k"], "timestamp": pa.array([5000, 7000], pa.timestamp("us", "UTC"))}
    )
    merged = merged_of(query, query.partial(table))
    assert merged.results.to_pylist() == [{"value": b"2", "timestamp": 7, "key": b"k"}]


def test_no_records_have_no_groups(hourly: PreparedAggregation) -> None:
    partial = hourly.partial(records([]))
    merged = merged_of(hourly, partial)
    assert (len(partial), len(merged.rows), len(merged.results), len(merged.has_result)) == (0,) * 4
    assert partial.schema == merged.rows.schema == hourly.shape.rows


def test_record_that_does_not_fit_is_a_query_error_and_the_next_batch_works(
    hourly: PreparedAggregation,
) -> None:
    bad = records([{"customer": "a", "amount": "much"}])
    with pytest.raises(QueryError):
        hourly.partial(bad)
    assert len(hourly.partial(records([{"customer": "a", "amount": 1}]))) == 1


def test_error_in_a_result_is_a_query_error(local: LocalQueries) -> None:
    query = opened(local, "SELECT key, 1 / (sum(n) - 5) AS x FROM input GROUP BY key")
    with pytest.raises(QueryError, match="Division by zero"):
        query.merge(query.partial(records([{"n": 5}])))


def test_result_is_not_computed_for_a_group_that_having_leaves_out(local: LocalQueries) -> None:
    query = opened(
        local,
        "SELECT key, c, raise_error(concat('count is ', c)) AS x FROM "
        "(SELECT customer AS key, count(*) AS c FROM input GROUP BY customer) WHERE c > 1",
    )
    merged = merged_of(query, query.partial(records([{"customer": "a"}])))
    assert merged.has_result.tolist() == [False]
    with pytest.raises(QueryError, match="count is 2"):
        query.merge(query.partial(records([{"customer": "a"}, {"customer": "a"}])))


def test_lookup_tables_below_groups_are_read_again(local: LocalQueries, tmp_path: Path) -> None:
    file = tmp_path / "regions.csv"
    file.write_text("a,north\nb,south\n")
    tables = {"regions": {"format": "csv", "path": str(file), "schema": "code STRING, name STRING"}}
    text = (
        "SELECT r.name AS key, count(*) AS c FROM input i JOIN regions r ON i.customer = r.code "
        "GROUP BY r.name"
    )
    spec = QuerySpec(text, format="json", schema=SCHEMA, tables=tables)
    # Not the one that tasks share, whose tables are out of reach.
    query = local._queries().open_aggregation(spec)
    folding = Folding(query)
    rows = records([{"customer": "a"}, {"customer": "b"}])
    folding.add(rows)
    before = query.shape
    session = query._session
    for names, expected in (
        ([("a", "west")], {b"north": 1, b"south": 1, b"west": 1}),
        ([(1, 2)], {b"north": 1, b"south": 1, b"west": 2}),
    ):
        frame = session.createDataFrame(names, ["code", "name"])
        query._tables.rows = Rows(query._tables.rows.version + 1, {"regions": frame})
        folding.add(rows)
        assert {key: value["c"] for key, value, _ in folding.results()} == expected
    assert query.shape == before
    query.close()


def test_state_is_bytes_that_another_process_reads(hourly: PreparedAggregation) -> None:
    """The bytes are a contract: a change here makes the state of running jobs unreadable."""
    rows = hourly.partial(records([{"customer": "a", "amount": 1.5}], start=61))
    (group,) = RowCodec(hourly.shape.groups).encode(rows)
    (buffers,) = RowCodec(hourly.shape.buffers).encode(rows)
    hour = 60 * MINUTE_US
    assert group == b"".join(
        [b"\1\1\0\0\0a\1\1", hour.to_bytes(8, "little"), b"\1", (2 * hour).to_bytes(8, "little")]
    )
    assert buffers.hex() == "01" + "0100000000000000" + "01" + "000000000000f83f" + "01" + (
        (61 * MINUTE_US).to_bytes(8, "little").hex()
    )
