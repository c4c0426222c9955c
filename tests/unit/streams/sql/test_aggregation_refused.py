"""Queries with GROUP BY that are refused, and why."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, opened

pytestmark = pytest.mark.integration


REFUSED = [
    (
        "SELECT customer AS key, n FROM input",
        "no GROUP BY, so there is no state .*: leave group_by out",
    ),
    ("SELECT count(*) AS n FROM input", "without GROUP BY .* of a partition"),
    (
        "SELECT c, count(*) AS n FROM (SELECT customer, count(*) AS c FROM input "
        "GROUP BY customer) GROUP BY c",
        "a second GROUP BY, DISTINCT or .* below the first .Aggregate.",
    ),
    (
        "SELECT n, count(*) AS c FROM (SELECT DISTINCT n, customer FROM input) GROUP BY n",
        "a second GROUP BY, DISTINCT or .* below the first .Distinct.",
    ),
    (
        "SELECT DISTINCT customer, count(*) AS c FROM input GROUP BY customer",
        "a second GROUP BY, DISTINCT or .* below the first .Aggregate.",
    ),
    (
        "SELECT DISTINCT customer, c FROM (SELECT DISTINCT customer, n AS c FROM input)",
        "a second GROUP BY, DISTINCT or .* below the first .Distinct.",
    ),
    (
        "SELECT DISTINCT session_window(timestamp, '1 hour') AS s FROM input",
        r"SELECT DISTINCT with session_window\(…\): use GROUP BY",
    ),
    (
        "SELECT explode(t) AS t FROM (SELECT DISTINCT tags AS t FROM input)",
        "only SELECT, HAVING and WHERE can follow GROUP BY .* .Generate.",
    ),
    (
        "SELECT count(*) AS c FROM (SELECT timestamp + INTERVAL 1 HOUR AS t FROM input) "
        "GROUP BY window(t, '1 hour')",
        r"window\(…\) is over .*t`?: it must be over timestamp",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY window(timestamp + INTERVAL 1 HOUR, "
        "'2 hours', '1 hour')",
        "it must be over timestamp, the time of the record",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY window(current_timestamp(), '10 seconds')",
        "it must be over timestamp, .* the source says timestamp: wall_clock",
    ),
    (
        "SELECT count(*) AS c FROM input MATCH_RECOGNIZE (PARTITION BY n ORDER BY timestamp "
        "PATTERN (a b+) DEFINE b AS b.n > a.n) GROUP BY n",
        'MATCH_RECOGNIZE is not possible, .* "Find a pattern of events" in the recipes',
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY CUBE (window(timestamp, '1 hour'), n)",
        r"write window\(…\) into GROUP BY itself",
    ),
    (
        "SELECT median(DISTINCT n) AS c FROM input GROUP BY key",
        r"median\(DISTINCT …\) cannot be computed from the distinct values of a group",
    ),
    (
        "SELECT count(DISTINCT customer COLLATE UTF8_LCASE) AS c FROM input GROUP BY key",
        r"count\(DISTINCT …\): different bytes are equal under the collation",
    ),
    ("SELECT count(DISTINCT map(n, n)) AS c FROM input GROUP BY key", "can't be a MAP"),
    (
        "SELECT a.customer, count(*) AS c FROM input a JOIN input b ON a.n = b.n "
        "GROUP BY a.customer",
        "JOIN of input with itself",
    ),
    (
        "SELECT i.customer, c FROM input i JOIN (SELECT n, count(*) AS c FROM input GROUP BY n)"
        " g ON i.n = g.n",
        "JOIN of input with itself",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY CUBE (session_window(timestamp, '1 hour'), n)",
        r"write session_window\(…\) into GROUP BY itself",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY session_window(timestamp, CASE WHEN n > 1 "
        "THEN '5 minutes' ELSE '1 minute' END)",
        r"the gap of session_window\(…\) must be a constant",
    ),
    (
        "SELECT count(*) AS c FROM (SELECT timestamp + INTERVAL 1 HOUR AS t FROM input) "
        "GROUP BY session_window(t, '5 minutes')",
        r"window\(…\) is over .*t`?: it must be over timestamp",
    ),
    ("SELECT count(*) AS c FROM input GROUP BY n + rand()", "random numbers"),
    (
        "SELECT count(*) AS c FROM input GROUP BY key HAVING max(timestamp) < now()",
        "random numbers and the current time",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY key HAVING max(timestamp) < TIMESTAMP 'now'",
        "random numbers and the current time",
    ),
    ("SELECT mode(n) AS c FROM input GROUP BY key", r"mode\(…\) cannot keep state"),
    ("SELECT listagg(customer) AS c FROM input GROUP BY key", r"use array_join\(collect_list"),
    ("SELECT hll_sketch_agg(n) AS c FROM input GROUP BY key", "hll_sketch_agg"),
    ("SELECT count(*) AS c FROM input GROUP BY map(n, n)", "a map cannot be the key"),
    (
        "SELECT count(*) AS c FROM input GROUP BY customer COLLATE UTF8_LCASE",
        "different bytes are equal under its collation",
    ),
    (
        "SELECT explode(collect_list(n)) AS c FROM input GROUP BY key",
        "only SELECT, HAVING and WHERE can follow GROUP BY .* .Generate.",
    ),
    (
        "SELECT customer, count(*) AS c FROM input GROUP BY customer ORDER BY c",
        "ORDER BY needs all rows",
    ),
    ("SELECT count(*) AS c FROM input GROUP BY key LIMIT 3", "LIMIT counts the rows"),
    (
        "SELECT customer, sum(count(*)) OVER () AS c FROM input GROUP BY customer",
        r"OVER \(…\) needs the rows around",
    ),
    (
        "SELECT count(*) AS c FROM input GROUP BY key HAVING count(*) > (SELECT max(n) FROM input)",
        "a subquery reads input",
    ),
    (
        "SELECT count(*) AS c FROM (SELECT n FROM input UNION ALL SELECT n FROM input) GROUP BY n",
        "UNION would change the order",
    ),
    ("SELECT count(*) AS c FROM input WHERE 1 = 2 GROUP BY key", "it gives no row"),
    ("SELECT max(make_ym_interval(n)) AS c FROM input GROUP BY key", "not supported"),
    ("SELECT customer AS key FROM input GROUP BY customer", "no column for the value"),
    ("SELECT nothing AS c FROM input GROUP BY key", "nothing"),
]


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(REFUSED, 8),
)
def test_query_without_state_that_can_be_kept_is_refused(
    local: LocalQueries, query: str, reason: str
) -> None:
    with pytest.raises(QueryError, match=reason):
        opened(local, query)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("mean_in_python", "an aggregate function in Python cannot be merged"),
        ("by_pandas", r"a Python function of whole groups .* use groupBy\(…\)\.agg\(…\)"),
        ("within_watermark", "only Spark's own streams have: use deduplicate of the DSL"),
        ("by_state", "applyInPandasWithState keeps state that .* use a class with a store"),
    ],
)
def test_groups_in_python_are_refused(local: LocalQueries, function: str, reason: str) -> None:
    code = f"tests.user_code.grouped_frames:{function}"
    with pytest.raises(QueryError, match=reason):
        local.open_aggregation(QuerySpec(function=code, format="json", schema=SCHEMA))


def test_plain_queries_refuse_aggregates_as_before(local: LocalQueries) -> None:
    with pytest.raises(QueryError, match="GROUP BY and aggregates need all rows"):
        local.open(
            QuerySpec(
                "SELECT customer, count(*) AS c FROM input GROUP BY customer",
                format="json",
                schema=SCHEMA,
            )
        )
