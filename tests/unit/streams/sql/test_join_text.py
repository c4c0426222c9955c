"""What the text of a query says about a join of two inputs."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.sql.join_bounds import TimeComparison, bounds_of
from kafka_pipeline.streams.sql.query_text import read_join
from kafka_pipeline.streams.sql.spec import QueryError
from tests.unit.streams.sql.join_pipeline import ON, WITHIN

MINUTE = 60_000
HOUR = 60 * MINUTE


def joined(how: str, on: str) -> str:
    return f"SELECT o.key FROM orders o {how} payments p ON o.key = p.key AND {on}"


@pytest.mark.parametrize(
    ("condition", "before_ms", "after_ms"),
    [
        (WITHIN, 5 * MINUTE, 10 * MINUTE),
        (
            "(p.timestamp >= o.timestamp) AND p.timestamp < o.timestamp + INTERVAL 1 DAY",
            0,
            86399999,
        ),
        ("o.timestamp = p.timestamp", 0, 0),
        (
            "o.timestamp < p.timestamp AND p.timestamp - INTERVAL '2' HOUR <= o.timestamp",
            -1,
            2 * HOUR,
        ),
        (
            "o.timestamp BETWEEN p.timestamp - INTERVAL '1 hour 30 minutes' AND p.timestamp",
            0,
            90 * MINUTE,
        ),
        (
            "p.timestamp >= o.timestamp + INTERVAL -5 MINUTES "
            "AND p.timestamp > o.timestamp - INTERVAL 1 HOUR AND p.n > o.n "
            "AND p.timestamp <= o.timestamp - (INTERVAL 1 MINUTE)",
            5 * MINUTE,
            -MINUTE,
        ),
        (
            "p.timestamp - o.timestamp <= INTERVAL '1:30' HOUR TO MINUTE AND "
            "o.timestamp - p.timestamp < INTERVAL '1 02:00:00.5' DAY TO SECOND",
            26 * HOUR + 499,
            90 * MINUTE,
        ),
        (
            "o.timestamp - (p.timestamp + INTERVAL 1 MINUTE) BETWEEN -INTERVAL '02:03.4' MINUTE TO "
            "SECOND AND INTERVAL '-1' HOUR + INTERVAL '1.5' SECONDS + INTERVAL 2 HOURS",
            HOUR + MINUTE + 1500,
            MINUTE + 3400,
        ),
    ],
)
def test_bounds(condition: str, before_ms: int, after_ms: int) -> None:
    assert read_join(joined("JOIN", condition)) == JoinSpec(
        left="orders", right="payments", keeps=(), before_ms=before_ms, after_ms=after_ms
    )


@pytest.mark.parametrize("between", [", payments", "CROSS JOIN payments", "JOIN payments"])
def test_condition_of_a_join_may_be_in_where(between: str) -> None:
    found = read_join(f"SELECT o.key FROM orders o {between} p WHERE {ON.removeprefix('ON ')}")
    assert found == read_join(joined("JOIN", WITHIN))


@pytest.mark.parametrize(
    ("how", "keeps"),
    [
        ("JOIN", ()),
        ("INNER JOIN", ()),
        ("LEFT JOIN", ("left",)),
        ("right outer join", ("right",)),
        ("FULL OUTER JOIN", ("left", "right")),
    ],
)
def test_kinds_of_joins(how: str, keeps: tuple[str, ...]) -> None:
    found = read_join(joined(how, WITHIN))
    assert found is not None
    assert found.keeps == keeps


@pytest.mark.parametrize(
    ("left", "using", "stage"),
    [
        ("orders", "key", "whole"),
        ("orders", "n, key", "whole"),
        ("orders", "n", "pairs"),
        ("(SELECT * FROM orders)", "key", "whole"),
        ("(SELECT n AS key, timestamp FROM orders)", "key", "pairs"),
    ],
)
def test_columns_of_using_are_keys_only_if_they_are_those_of_records(
    left: str, using: str, stage: str
) -> None:
    found = read_join(f"SELECT p.n FROM {left} o JOIN payments p USING ({using})")
    assert found is not None
    assert found.regular is not None
    assert found.regular.stage == stage


@pytest.mark.parametrize(
    ("query", "left", "right"),
    [
        (f"SELECT * FROM Orders o JOIN `pay.m-1` p {ON}", "orders", "pay.m-1"),
        (f"SELECT * FROM (SELECT * FROM orders WHERE n > 1) o JOIN pays p {ON}", "orders", "pays"),
        (f"WITH p AS (SELECT key, timestamp FROM b) SELECT * FROM a o JOIN p {ON}", "a", "b"),
        (f"SELECT * FROM (SELECT o.key FROM a o JOIN b p {ON}) WHERE key > 'a'", "a", "b"),
        (f"SELECT * FROM t JOIN a o ON t.x = o.n JOIN u ON u.y = 1 JOIN b p {ON}", "a", "b"),
    ],
)
def test_inputs_of_a_join(query: str, left: str, right: str) -> None:
    found = read_join(query, ("T", "u"))
    assert found is not None
    assert (found.left, found.right) == (left, right)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, 'a join' AS n FROM input",
        "SELECT i.key FROM input i JOIN t ON i.n = t.n LEFT JOIN u ON t.n = u.n",
        "SELECT key FROM orders UNION ALL SELECT p.key FROM payments p JOIN t ON p.n = t.n",
        "SELECT ((( FROM a JOIN b",
    ],
)
def test_other_queries_have_no_join(query: str) -> None:
    assert read_join(query, ("t", "u")) is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            joined("JOIN", "p.timestamp > o.timestamp AND p.timestamp <= o.timestamp"),
            "no two records can meet",
        ),
        ("SELECT o.key FROM orders o, payments p", r"LEFT ANTI JOIN.*CROSS JOIN"),
        ("SELECT key FROM orders NATURAL JOIN payments", "NATURAL"),
        (
            "SELECT o.key FROM orders o JOIN payments p ON o.n = p.n AND "
            "window(o.timestamp, '1 hour') = window(p.timestamp, '1 hour')",
            r"compare their start, as in FROM \(SELECT \*, window",
        ),
        (
            joined("JOIN", WITHIN) + " JOIN refunds r ON r.key = o.key",
            "joins inputs more than once",
        ),
    ],
)
def test_joins_that_cannot_run_are_refused(query: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        read_join(query)


def regular(query: str) -> tuple[str | None, str]:
    """Return which rows of the left side are results alone, and the stage that keeps them all."""
    found = read_join(query, ("t",))
    assert found is not None
    assert found.regular is not None
    return found.regular.only, found.regular.stage


@pytest.mark.parametrize(
    "query",
    [
        joined("JOIN", "p.timestamp > o.timestamp"),
        joined("JOIN", "p.timestamp - o.timestamp <= INTERVAL 5 MINUTES"),
        joined("JOIN", "p.timestamp - o.timestamp BETWEEN INTERVAL '1:2' DAY TO SECOND AND o.n"),
        joined("JOIN", "p.n = o.n"),
        joined("JOIN", f"({WITHIN} OR p.n = o.n)"),
        f"SELECT o.key FROM (SELECT key, created AS timestamp FROM orders) o JOIN payments p {ON}",
        "SELECT key FROM orders JOIN payments USING (key)",
        "SELECT o.key FROM (SELECT key AS k, * FROM orders) o JOIN payments p ON p.key = (o.k)",
        f"SELECT o.key FROM orders o JOIN orders p {ON}",
    ],
)
def test_joins_by_key_without_bounds(query: str) -> None:
    assert regular(query) == (None, "whole")


@pytest.mark.parametrize(
    ("condition", "also_by_columns"),
    [
        ("ON o.key = p.key", False),
        ("ON (o.key = p.key AND p.n > o.n)", False),
        ("ON o.key = p.key AND (p.n = o.n OR p.n > o.n)", False),
        ("ON o.key = p.key AND p.n = o.n", True),
        ("ON (p.n + 1 = o.n AND p.n > 3) AND o.key = p.key", True),
        ("ON p.n = o.n", False),
        ("USING (key)", False),
        ("USING (key, n)", True),
        ("USING (n)", False),
    ],
)
def test_rows_that_meet_by_key_also_meet_by_what_else_must_be_equal(
    condition: str, also_by_columns: bool
) -> None:
    found = read_join(f"SELECT o.n FROM orders o JOIN payments p {condition}")
    assert found is not None
    assert found.regular is not None
    assert found.regular.also_by_columns is also_by_columns


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT o.key FROM orders o JOIN payments p ON o.n = p.n AND {WITHIN}",
        "SELECT o.n FROM orders o JOIN payments p ON o.key = p.n AND o.n = p.key",
        "SELECT n FROM orders JOIN payments USING (n)",
        "SELECT o.n FROM (SELECT upper(key) AS key FROM orders) o JOIN payments p ON o.key = p.key",
        "SELECT o.n FROM orders o JOIN payments p ON o.key = p.key OR o.n = p.n",
        f"SELECT o.n FROM orders o, payments p WHERE o.n = p.n AND {WITHIN}",
    ],
)
def test_joins_by_columns(query: str) -> None:
    assert regular(query) == (None, "pairs")


@pytest.mark.parametrize(
    ("how", "only", "keeps"),
    [
        ("LEFT SEMI JOIN", "semi", ()),
        ("SEMI JOIN", "semi", ()),
        ("LEFT ANTI JOIN", "anti", ("left",)),
        ("ANTI JOIN", "anti", ("left",)),
    ],
)
def test_semi_and_anti_joins_have_no_bounds(how: str, only: str, keeps: tuple[str, ...]) -> None:
    found = read_join(joined(how, WITHIN))
    assert found is not None
    assert (found.keeps, found.before_ms, found.after_ms) == (keeps, 0, 0)
    assert regular(joined(how, WITHIN)) == (only, "whole")


def test_bounds_are_whole_milliseconds() -> None:
    """A record has a time in whole milliseconds, so nothing is lost."""
    comparisons = [TimeComparison(">=", -1500), TimeComparison("<", 2001)]
    assert bounds_of(comparisons) == (1, 2)
    assert bounds_of([TimeComparison(">", -1000), TimeComparison("<", 1000)]) == (0, 0)


@pytest.mark.parametrize(
    "left", ["(SELECT * FROM orders) o", "(SELECT * FROM orders) AS `o`", "orders"]
)
def test_comma_may_be_behind_a_subquery(left: str) -> None:
    assert read_join(f"SELECT p.n FROM {left} ,\n payments p WHERE p.n = 1") is not None
