"""Queries over a source with `format: debezium`, and over tables that follow one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from kafka_pipeline import Processor, Record, TopologyBuilder, serdes, stores
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.sql.change_rows import GlobalChanges
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce
from tests.unit.streams.test_debezium import PLACEHOLDER, column, event, unscaled, with_schema

pytestmark = pytest.mark.integration

SOURCES = "sources: {orders: {topic: changes, format: debezium}}\nprocessors:\n"
COLUMNS = "id INT, customer STRING, price INT"
TOTALS = (
    f"{SOURCES}- {{id: T, type: sql, from: [orders], to: [sink], format: json, "
    f'schema: "{COLUMNS}", on_error: skip,\n  query: "SELECT customer AS key, sum(price) AS price, '
    'count(*) AS n, max(price) AS top FROM orders GROUP BY customer"}\n'
)
Event = tuple[Any, dict[str, Any] | bytes | None]
"""The key and the value of a record."""


def order(id_: int, customer: str, price: int) -> dict[str, Any]:
    return {"id": id_, "customer": customer, "price": price}


def upsert(op: str, lsn: int, *row: Any) -> Event:
    found = order(*row)
    return {"id": found["id"]}, event(op, found, lsn)


def deletion(lsn: int, id_: int) -> list[Event]:
    return [({"id": id_}, event("d", None, lsn)), ({"id": id_}, None)]


def send(job: Job, events: Sequence[Event], minute: int = 1, topic: str = "changes") -> None:
    keys = [None if key is None else json.dumps(key).encode() for key, _ in events]
    values = [
        value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        for _, value in events
    ]
    job.deliver(topic, 0, keys, values, [minute * MINUTE_MS] * len(events))


def test_groups_are_those_of_the_rows_that_are_there(shared: OpenedOnce) -> None:
    job = Job(TOTALS, shared)
    send(job, [upsert("r", 5, 1, "a", 10), upsert("r", 5, 2, "a", 20), upsert("c", 7, 3, "b", 5)])
    # A price changes, an order goes to another customer, and one is deleted.
    send(job, [upsert("u", 8, 1, "a", 11), upsert("u", 9, 2, "b", 20), *deletion(10, 3)])
    assert job.latest() == {
        "a": {"price": 11, "n": 1, "top": 11},
        "b": {"price": 20, "n": 1, "top": 20},
    }
    # Another primary key: Debezium deletes the row of the former one.
    send(job, [*deletion(11, 1), upsert("c", 11, 4, "a", 11)])
    assert job.latest() == {"a": {"price": 11, "n": 1, "top": 11}}
    send(job, deletion(12, 4))
    assert [(each.key, each.value) for each in job.take()] == [("a", None)]
    assert not job.dropped
    assert job.skipped == 0
    job.close()


@pytest.mark.parametrize("size", [1, 1000])
def test_repeated_changes_are_counted_and_change_nothing(shared: OpenedOnce, size: int) -> None:
    job = Job(TOTALS, shared)
    log = [
        upsert("c", 1, 1, "a", 10),
        upsert("u", 2, 1, "a", 20),
        *deletion(3, 1),
        upsert("c", 4, 1, "b", 30),
        upsert("c", 5, 2, "b", 1),
    ]
    for start in range(0, len(log), size):
        send(job, log[start : start + size])
    assert job.latest() == {"b": {"price": 31, "n": 2, "top": 30}}
    job.restart()
    for start in range(1, len(log), size):
        send(job, log[start : start + size])
    assert job.take() == []
    assert job.dropped == {"repeated change": 4}
    send(job, [upsert("u", 6, 1, "b", 40)])
    assert job.latest() == {"b": {"price": 41, "n": 2, "top": 40}}
    job.close()


@pytest.mark.parametrize("seed", range(2))
def test_totals_equal_those_of_the_database(shared: OpenedOnce, seed: int) -> None:
    random = Random(seed)
    job, database = Job(TOTALS, shared), dict[int, dict[str, Any]]()
    log: list[Event] = []
    totals: dict[str, Any] = {}
    for lsn in range(1, 120):
        id_ = random.randrange(8)
        if id_ in database and random.random() < 0.3:
            del database[id_]
            log += deletion(lsn, id_)
        else:
            row = (id_, random.choice("abc"), random.randrange(50))
            log.append(upsert("u" if id_ in database else "c", lsn, *row))
            database[id_] = order(*row)
        if lsn % 20 == 0:
            # The connector starts again, and repeats some changes.
            send(job, [*log, *log[-random.randrange(1, 30) :]])
            log.clear()
            for each in job.take():
                totals[str(each.key)] = each.value
            assert {k: v for k, v in totals.items() if v} == _totals(database)
        if lsn == 60:
            job.restart()
    assert job.skipped == 0
    job.close()


def _totals(database: dict[int, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in database.values():
        had = found.get(row["customer"], {"price": 0, "n": 0, "top": 0})
        price = row["price"]
        found[row["customer"]] = {
            "price": had["price"] + price,
            "n": had["n"] + 1,
            "top": max(had["top"], price),
        }
    return found


def test_what_cannot_be_applied_is_rejected_and_the_rest_is_not(shared: OpenedOnce) -> None:
    job = Job(TOTALS, shared)
    send(
        job,
        [
            upsert("c", 1, 1, "a", 10),
            (None, event("t", None, 2)),
            (None, event("c", order(7, "a", 7), 3)),
            ({"id": 1}, b"{"),
            ({"id": 5}, event("u", {"id": 5, "customer": PLACEHOLDER}, 4)),
            ({"id": 6}, event("c", {"id": "six"}, 4)),
            (None, {"status": "BEGIN", "id": "1"}),
            ({"prefix": "p"}, event("m", None, 4)),
            upsert("c", 5, 2, "a", 20),
        ],
    )
    assert job.latest() == {"a": {"price": 30, "n": 2, "top": 20}}
    assert job.skipped == 5
    assert job.dropped == {"no change of a row": 2}
    # What was rejected is not kept: a repeated change of its key is not a repeated one.
    send(job, [upsert("c", 4, 6, "a", 1)])
    assert job.latest() == {"a": {"price": 31, "n": 3, "top": 20}}
    job.close()


def test_a_query_without_groups_passes_rows_and_deletions_on(shared: OpenedOnce) -> None:
    text = (
        f"{SOURCES}- {{id: P, type: sql, from: [orders], to: [sink], format: json,\n"
        f'  schema: "{COLUMNS}", query: "SELECT key, customer, price * 2 AS twice FROM orders '
        'WHERE price > 0"}\n'
    )
    job = Job(text, shared)
    send(job, [upsert("c", 1, 1, "a", 10), upsert("c", 1, 2, "b", 20), *deletion(2, 1)])
    send(job, [upsert("u", 3, 2, "b", 0), upsert("c", 1, 2, "b", 20)])
    assert [(each.key, each.value) for each in job.take()] == [
        ('{"id": 1}', {"customer": "a", "twice": 20}),
        ('{"id": 2}', {"customer": "b", "twice": 40}),
        ('{"id": 1}', None),
        ('{"id": 2}', None),
    ]
    assert job.dropped == {"repeated change": 1}
    job.close()


def test_columns_have_the_types_of_the_database(shared: OpenedOnce) -> None:
    text = (
        f"{SOURCES}- {{id: P, type: sql, from: [orders], to: [sink], format: json,\n"
        '  schema: "price DECIMAL(10, 2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ",\n'
        '  query: "SELECT key, price * 2 AS price, date_add(day, 1) AS day, '
        'at + INTERVAL 1 SECOND AS at, local AS local FROM orders"}\n'
    )
    job = Job(text, shared)
    columns = [
        column("price", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
        column("day", "io.debezium.time.Date"),
        column("at", "io.debezium.time.MicroTimestamp"),
        column("local", "io.debezium.time.MicroTimestamp"),
    ]
    row = {"price": unscaled(1999), "day": 19722, "at": 1_704_067_199_000_001, "local": 1}
    send(job, [({"id": 1}, with_schema(event("c", row, 1), columns))])
    (found,) = job.take()
    assert found.value["price"] == 39.98
    assert found.value["day"] == "2024-01-01"
    assert found.value["at"].startswith("2024-01-01T00:00:00")
    assert found.value["local"].startswith("1970-01-01T00:00:00")
    job.close()


TABLE = """
sources: {{products: {{topic: changes, format: debezium}}}}
processors:
- id: P
  type: sql
  format: json
  schema: n INT
  tables: {{products: {{topic: products, schema: "price INT"{history}}}}}
  query: SELECT i.key, n, price FROM input i LEFT JOIN products p ON i.key = p.key
  to: [sink]
"""


def product(op: str, lsn: int, price: int) -> Event:
    return {"id": 1}, event(op, {"id": 1, "price": price}, lsn)


@pytest.mark.parametrize("history", ["", ", history: 1 h"], ids=["newest", "history"])
def test_a_table_of_a_topic_has_the_rows_that_are_there(shared: OpenedOnce, history: str) -> None:
    job = Job(TABLE.format(history=history), shared)
    first = [product("c", 1, 10), product("u", 2, 20)]

    def price_at(minute: int) -> Any:
        job.send([{"key": '{"id": 1}', "at": minute, "n": 1}])
        (found,) = job.take()
        return found.value["price"]

    send(job, first, minute=1)
    assert price_at(2) == 20
    send(job, [*deletion(3, 1), *first], minute=3)
    assert price_at(4) is None
    send(job, [product("c", 4, 40)], minute=5)
    assert price_at(6) == 40
    send(job, deletion(3, 1), minute=7)
    assert price_at(8) == 40
    assert price_at(2) == (20 if history else 40)
    assert job.dropped["repeated change"] == 3
    job.close()


class _Look(Processor):
    """Forwards the row of each key."""

    def process(self, record: Record) -> None:
        found = self.context.get_state_store("products").get(record.key)
        self.context.forward(record.with_value(b"" if found is None else found.value))


def test_a_global_table_has_the_rows_that_are_there() -> None:
    store = stores.timestamped_key_value("products", serdes.bytes, serdes.bytes)
    builder = TopologyBuilder()
    builder.add_global_store(store, "Changes", "changes", "Fill", lambda: GlobalChanges("products"))
    builder.add_source("In", "in")
    builder.add_processor("P", _Look, "In")
    builder.add_sink("Out", "out", "P")
    with TopologyTestDriver(builder) as driver:
        changes, records = driver.create_input_topic("changes"), driver.create_input_topic("in")
        results = driver.create_output_topic("out")

        def price() -> Any:
            records.pipe_input(b'{"id":1}', b"")
            ((_, value),) = results.read_key_values()
            return json.loads(value) if value else None

        def pipe(*events: Event) -> None:
            for key, value in events:
                text = None if value is None else json.dumps(value).encode()
                changes.pipe_input(json.dumps(key, separators=(",", ":")).encode(), text)

        long = {"id": 1, "n": 1, "doc": "x" * 2000}
        pipe(({"id": 1}, event("r", long, 1)), ({"id": 1}, event("u", {**long, "n": 2}, 2)))
        pipe(({"id": 1}, event("u", {"id": 1, "n": 3, "doc": PLACEHOLDER}, 3)))
        pipe(({"prefix": "p"}, event("m")))
        assert price() == {**long, "n": 3}
        pipe(*deletion(4, 1))
        assert price() is None
        with pytest.raises(RecordRejectedError, match="op is t: a TRUNCATE"):
            pipe(({"id": 1}, event("t")))
