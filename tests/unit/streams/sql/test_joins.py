"""Joins of two inputs, on the Spark of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row
from tests.unit.streams.sql.join_pipeline import ON, WITHIN, pipeline

pytestmark = pytest.mark.integration


def row(key: str | None, at: float, n: int | None = 0, **more: object) -> Row:
    return {"key": key, "at": at, "n": n, **more}


def results(job: Job) -> list[tuple[str | None, object, object, float]]:
    """Return key, both numbers and the minute of the results since the last call."""
    return [
        (each.key, each.value.get("n"), each.value.get("m"), each.timestamp / MINUTE_MS)
        for each in job.take()
    ]


BOTH = "SELECT coalesce(o.key, p.key) AS key, o.n, p.n AS m FROM orders o {} JOIN payments p {}"


def test_records_meet_within_the_bounds_and_get_the_later_time(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("", ON)), shared)
    job.send([row("a", 20, 1), row("b", 20, 2), row(None, 20, 3)], topic="orders")
    assert results(job) == []
    job.send([row("a", 14.9, 4), row("a", 15, 5), row("b", 17, 6)], topic="payments")
    assert results(job) == [("a", 1, 5, 20.0), ("b", 2, 6, 20.0)]
    job.restart()
    job.send([row("a", 30, 7), row("a", 30.1, 8), row("c", 30, 9)], topic="payments")
    assert results(job) == [("a", 1, 7, 30.0)]
    job.send([row("a", 29, 10)], topic="orders")
    assert results(job) == [("a", 10, 7, 30.0), ("a", 10, 8, 30.1)]
    assert job.dropped == {"null key": 1}
    job.close()


def test_inputs_that_alternate_are_one_batch(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("LEFT", ON), "grace: 0 s"), shared)
    job.send_together(
        {
            "orders": [row("a", at, at) for at in range(0, 100, 20)],
            "payments": [row("a", at + 5, at) for at in range(0, 60, 20)] + [row("b", 200)],
        }
    )
    assert results(job) == [
        ("a", 0, 0, 5.0),
        ("a", 20, 20, 25.0),
        ("a", 40, 40, 45.0),
        ("a", 60, None, 60.0),
        ("a", 80, None, 80.0),
    ]
    job.close()


def test_rows_without_a_partner_come_once_none_can_come_any_more(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("FULL", ON), "grace: 2 min"), shared)
    job.send([row("a", 10, 1), row("b", 10, 2), row(None, 10, 3)], topic="orders")
    assert results(job) == [(None, 3, None, 10.0)]
    job.send([row("a", 20, 4), row("c", 20, 5), row(None, 20, 6)], topic="payments")
    assert results(job) == [("a", 1, 4, 20.0), (None, None, 6, 20.0)]
    job.send([row("z", 22)], topic="payments")
    assert results(job) == []
    job.restart()
    job.send([row("z", 22.1)], topic="payments")
    assert results(job) == [("b", 2, None, 10.0)]
    # Payments wait five minutes and the grace period for an order.
    job.send([row("y", 27, 7)], topic="orders")
    assert results(job) == []
    job.send([row("y", 27.1, 8)], topic="orders")
    assert results(job) == [("c", None, 5, 20.0)]
    job.close()


def test_late_records_are_counted(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("", ON), "grace: 1 min"), shared)
    job.send([row("a", 10, 1), row("a", 9, 2), row("a", 8.9, 3)], topic="orders")
    job.send([row("a", 9, 4), {"key": "a", "at": 8, "raw": b"{"}], topic="payments")
    assert results(job) == [("a", 2, 4, 9.0), ("a", 1, 4, 10.0)]
    assert job.dropped == {"expired": 2}
    assert job.skipped == 0
    job.close()


def test_late_records_go_to_their_sink(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("", ON), "grace: 1 min\n  late_to: late"), shared)
    job.send([row("a", 10, 1), row("a", 8, 2)], topic="orders")
    job.send([row("a", 4, 3), row("a", 10, 4)], topic="payments")
    first, second, result = job.take()
    assert (first.topic, first.key, first.value) == ("late", "a", {"n": 2})
    assert first.headers == {
        "__streams.late.reason": b"the window has closed",
        "__streams.late.step": b"P",
        "__streams.late.window.start": b"%d" % (3 * MINUTE_MS),
        "__streams.late.window.end": b"%d" % (18 * MINUTE_MS),
        "__streams.late.stream_time": b"%d" % (10 * MINUTE_MS),
    }
    assert (second.topic, second.value) == ("late", {"n": 3})
    assert second.headers["__streams.late.window.start"] == b"0"
    assert (result.topic, result.value) == ("out", {"n": 1, "m": 4})
    assert job.dropped == {"expired (late_to)": 2}
    job.close()


def test_what_else_the_condition_demands_decides_who_has_a_partner(shared: OpenedOnce) -> None:
    job = Job(pipeline(BOTH.format("LEFT", f"{ON} AND p.n > o.n"), "grace: 0 s"), shared)
    job.send([row("a", 10, 5), row("a", 10, 1), row("a", 10, None)], topic="orders")
    job.send([row("a", 12, 3), row("a", 12, 2)], topic="payments")
    assert results(job) == [("a", 1, 3, 12.0), ("a", 1, 2, 12.0)]
    job.send([row("z", 50)], topic="payments")
    assert results(job) == [("a", 5, None, 10.0), ("a", None, None, 10.0)]
    job.close()


def test_rows_can_be_filtered_and_multiplied_below_and_above_the_join(shared: OpenedOnce) -> None:
    query = (
        "SELECT o.key, o.d AS n, explode(array(p.n, 0)) AS m, o.timestamp "
        "FROM (SELECT key, timestamp, n * 2 AS d FROM orders WHERE n > 0) o "
        f"LEFT JOIN (SELECT *, explode(array(1, 2)) AS x FROM payments) p {ON} "
        "WHERE p.key IS NULL OR p.x = 2"
    )
    job = Job(pipeline(query, "grace: 0 s"), shared)
    job.send([row("a", 10, 1), row("a", 10, 0), row("b", 10, 3)], topic="orders")
    job.send([row("a", 12, 7), row("z", 70, 7)], topic="payments")
    assert results(job) == [
        ("a", 2, 7, 10.0),
        ("a", 2, 0, 10.0),
        ("b", 6, None, 10.0),
        ("b", 6, 0, 10.0),
    ]
    job.close()


def test_an_error_in_select_rejects_the_record_that_it_is_about(shared: OpenedOnce) -> None:
    """For rows without a partner, when they come, and not when their time is over."""
    query = (
        "SELECT o.key, 10 / o.n + coalesce(1 / p.n, 0) AS n "
        f"FROM orders o LEFT JOIN payments p {ON}"
    )
    job = Job(pipeline(query, "grace: 0 s"), shared)
    job.send(
        [row("a", 10, 5), row("a", 10, 0), {"key": "a", "at": 10, "raw": b"\xff"}], 0, "orders"
    )
    assert job.skipped == 2
    job.send([row("a", 11, 0), row("a", 11, 1)], topic="payments")
    assert job.skipped == 3
    job.send([row("z", 100, 0)], topic="payments")
    assert [(each.key, each.value) for each in job.take()] == [("a", {"n": 3.0})]
    job.close()


@pytest.mark.parametrize(
    "read",
    long_but_the_first(
        [
            f"(SELECT o.key, n, m FROM orders o JOIN payments p {ON})",
            f"(SELECT o.key, n, m FROM orders o, payments p WHERE {ON.removeprefix('ON ')} AND n = "
            "1)",
        ]
    ),
)
def test_each_input_may_have_columns_of_its_own(shared: OpenedOnce, read: str) -> None:
    query = f"SELECT key, n, m FROM {read}"
    job = Job(pipeline(query, schema="{orders: n INT, payments: m INT}"), shared)
    job.send([row("a", 10, 1)], topic="orders")
    job.send([row("a", 10, m=2)], topic="payments")
    assert results(job) == [("a", 1, 2, 10.0)]
    job.close()


@pytest.mark.long
def test_tables_are_looked_up_below_and_above_the_join(tmp_path: Path) -> None:
    """Those that Spark reads, and those of topics if all tasks have them as a whole."""
    (tmp_path / "config.yaml").write_text(SMALL_CONFIG)
    (tmp_path / "cities.csv").write_text("a,Ulm\n")
    query = (
        "SELECT o.key, c.city, r.rate * o.n AS n FROM orders o JOIN cities c ON o.key = c.code "
        f"LEFT JOIN payments p {ON} LEFT JOIN rates r ON p.n = r.number"
    )
    tables = (
        'tables:\n    cities: {format: csv, path: cities.csv, schema: "code STRING, city STRING"}\n'
        '    rates: {topic: rates, schema: "number INT, rate INT", global: true}'
    )
    text = pipeline(query, f"grace: 0 s\n  {tables}")
    (tmp_path / "pipeline.yaml").write_text(text.replace("sources: {", "sources: {rates: rates, "))
    with TopologyTestDriver.of_pipeline(
        tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    ) as driver:
        rates = driver.create_input_topic("rates", serdes.string, serdes.json)
        orders = driver.create_input_topic("orders", serdes.string, serdes.json)
        payments = driver.create_input_topic("payments", serdes.string, serdes.json)
        found = driver.create_output_topic("out", serdes.string, serdes.json)
        rates.pipe_input("x", {"number": 7, "rate": 100}, timestamp=1)
        for key in "ab":
            orders.pipe_input(key, {"n": 2}, timestamp=5)
        payments.pipe_input("a", {"n": 7}, timestamp=6)
        assert found.read_key_values() == [("a", {"city": "Ulm", "n": 200})]
        rates.pipe_input("x", {"number": 7, "rate": 1000}, timestamp=1)
        payments.pipe_input("a", {"n": 7}, timestamp=7)
        assert found.read_key_values() == [("a", {"city": "Ulm", "n": 2000})]


def test_a_changed_query_does_not_read_the_state(shared: OpenedOnce) -> None:
    query = f"SELECT o.key, p.n FROM orders o JOIN payments p {ON}"
    job = Job(pipeline(query), shared)
    job.send([row("a", 10, 1)], topic="orders")
    job.close()
    same = Job(pipeline(query.replace("p.n", "p.n * 2 AS n"), "grace: 1 h"), shared, job.stores)
    same.send([row("a", 10, 4)], topic="payments")
    assert [each.value for each in same.take()] == [{"n": 8}]
    same.close()
    with pytest.raises(QueryError, match="of orders, it has the columns key string, and now key"):
        Job(pipeline(query.replace("p.n", "p.n, o.n AS m")), shared, job.stores)


@pytest.mark.parametrize(
    ("query", "reason"),
    long_but_the_first(
        [
            (
                "SELECT o.key, o.n FROM orders o JOIN payments p ON o.n = p.n AND " + WITHIN,
                "ttl: none, which keeps them forever",
            ),
            (
                "SELECT key, n FROM orders UNION ALL SELECT key, n FROM payments",
                "UNION of orders and payments",
            ),
            (f"SELECT o.key, rand() AS n FROM orders o JOIN payments p {ON}", "random numbers"),
            (
                f"SELECT o.key, o.n FROM orders o JOIN payments p {ON} ORDER BY o.n",
                "ORDER BY needs",
            ),
            (
                f"SELECT o.key, o.n FROM orders o JOIN payments p {ON} "
                "WHERE o.n IN (SELECT n FROM orders)",
                "a subquery reads orders",
            ),
            (
                "SELECT o.key, o.n FROM (SELECT key, n, timestamp + INTERVAL 1 HOUR AS timestamp "
                f"FROM orders) o JOIN payments p {ON}",
                "ttl: none, which keeps them forever",
            ),
        ],
        3,
    ),
)
def test_other_queries_are_refused(shared: OpenedOnce, query: str, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        Job(pipeline(query), shared)


def test_lambda_functions_read_nulls_of_kept_arrays_and_maps(shared: OpenedOnce) -> None:
    query = (
        "SELECT o.key, o.n FROM orders o LEFT JOIN payments p ON o.key = p.key "
        "WHERE exists(o.some, v -> v > 1) AND exists(map_values(o.named.by), v -> v IS NULL)"
    )
    schema = "n INT, some ARRAY<INT>, named STRUCT<by MAP<STRING, INT>>"
    job = Job(pipeline(query, "ttl: none", schema), shared)
    given = {"some": [None, 2, 1], "named": {"by": {"x": None, "y": 1}}}
    job.send([row("a", 20, 7, **given)], topic="orders")
    assert [each.value for each in job.take()] == [{"n": 7}]
    job.close()
