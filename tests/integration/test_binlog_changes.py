"""Debezium with MySQL and MariaDB themselves: a table that changes in all ways, and all types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.peers.streams_java import JavaProgram
from kafka_pipeline import serdes
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.debezium import EnvelopeError, read_change
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import Queries
from tests.change_data.binlog_story import JARS, passed_on, passed_on_by_two
from tests.change_data.connector import Connector, Given, compile_connector, of_binlog
from tests.change_data.judge import require_equal
from tests.mysql_server.server import Binaries, Server, mariadb, running, unpacked_mysql
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

COLUMNS = {
    # The definition of a column, a value, and what a row has of it.
    "big": ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    "small": ("tinyint(1)", "2", 2),
    "price": ("decimal(20, 6)", "12345678901234.567890", Decimal("12345678901234.567890")),
    "ratio": ("float", "3.4", Decimal("3.4")),
    "day": ("date", "'2024-02-29'", "2024-02-29"),
    "at": ("datetime(6)", "'2024-02-29 01:02:03.45'", "2024-02-29T01:02:03.45"),
    "latest": ("datetime", "'9999-12-31 23:59:59'", "9999-12-31T23:59:59"),
    "placed": ("timestamp(6) NULL", "'2024-02-29 01:02:03.456789'", "2024-02-29T01:02:03.456789Z"),
    "took": ("time(6)", "'-838:59:58.5'", "-838:59:58.5"),
    "made": ("year", "2155", 2155),
    "kind": ("enum('a', 'b;c')", "'b;c'", "b;c"),
    "tags": ("set('x', 'y', 'z')", "'x,z'", "x,z"),
    "bits": ("bit(10)", "b'1000000001'", "AQI="),
    "flag": ("bit(1)", "b'1'", True),
    "raw": ("varbinary(10)", "x'00ff'", "AP8="),
    "padded": ("binary(4)", "x'01'", "AQAAAA=="),
    "latin": ("varchar(20) CHARACTER SET latin1", "'Zoë'", "Zoë"),
    "greek": ("char(5) CHARACTER SET greek", "'αβγ'", "αβγ"),
    "emoji": ("mediumtext", "'😀'", "😀"),
    "zero": ("date", "'0000-00-00'", None),
    "must": ("date NOT NULL", "'0000-00-00'", "1970-01-01"),
}
OF_SCHEMA = {
    "converter.schemas.enable": "true",
    "bigint.unsigned.handling.mode": "precise",
    "skipped.operations": "none",
}
VALUES = """
sources: {orders: {topic: orders, format: debezium}}
sinks: {rows: rows}
processors:
- id: Rows
  type: sql
  format: json
  schema: >
    big DECIMAL(20, 0), price DECIMAL(20, 6), day DATE, at TIMESTAMP_NTZ, placed TIMESTAMP,
    made INT, doc STRING
  query: >
    SELECT key, big - 1 AS big, price, date_add(day, 1) AS day, year(at) AS year,
    unix_micros(placed) AS placed, made, get_json_object(doc, '$.b[0]') AS doc FROM orders
  from: [orders]
  to: [rows]
"""

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["MySQL", "MariaDB"])
def binaries(request: pytest.FixtureRequest) -> Iterator[Binaries]:
    with ExitStack() as used:
        if request.param == "MySQL":
            try:
                yield used.enter_context(unpacked_mysql())
            except UnavailableError as error:
                pytest.skip(str(error))
        elif (found := mariadb()) is not None:
            yield found
        else:
            pytest.skip("needs MariaDB: mariadbd, as in Debian's package mariadb-server")


@pytest.fixture(scope="module")
def server(binaries: Binaries) -> Iterator[Server]:
    with running(binaries) as found:
        yield found


@pytest.fixture
def program(binaries: Binaries, tmp_path: Path) -> JavaProgram:
    try:
        return compile_connector(tmp_path, JARS[binaries.title])
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def shared(queries: Queries) -> Iterator[OpenedOnce]:
    assert isinstance(queries, LocalQueries)
    found = OpenedOnce(queries)
    yield found
    found.forget()


def test_tables_equal_those_of_the_database_after_each_transaction(
    server: Server, program: JavaProgram, tmp_path: Path, shared: OpenedOnce
) -> None:
    job = require_equal(passed_on(program, server.new_database(), tmp_path), shared)
    assert job.skipped == 0
    assert job.dropped["repeated change"] > 0
    # The topic of schemas gets a record for each ALTER TABLE.
    assert job.dropped["no change of a row"] > 0


@pytest.mark.parametrize("binaries", ["MySQL"], indirect=True)
def test_tables_are_right_after_a_replica_has_taken_over(
    binaries: Binaries, program: JavaProgram, tmp_path: Path, shared: OpenedOnce
) -> None:
    with running(binaries, 1) as first, running(binaries, 2) as second:
        job = require_equal(passed_on_by_two(program, first, second, tmp_path), shared)
    assert job.skipped == 0
    assert job.dropped["repeated change"] > 0


def test_rows_of_a_snapshot_and_of_the_binlog_have_the_same_values(
    server: Server, program: JavaProgram, tmp_path: Path, shared: OpenedOnce
) -> None:
    database = server.new_database()
    columns = ", ".join(f"{name} {type_}" for name, (type_, *_) in COLUMNS.items())
    values = ", ".join(value for _, value, _ in COLUMNS.values())
    document = """'{"a": null, "b": [1.5, "ü"]}'"""
    database.run(f"CREATE TABLE orders (id int PRIMARY KEY, {columns}, doc json)")
    database.run(f"INSERT INTO orders VALUES (1, {values}, {document})")
    source = of_binlog(database, tmp_path / "kept")
    connector = Connector(program, tmp_path / "kept", source, OF_SCHEMA)
    topic = f"shop.{database.name}.orders"
    (read,) = rows_of(connector, topic, 1)
    database.run(f"INSERT INTO orders VALUES (2, {values}, {document})")
    database.run("TRUNCATE orders")
    written, truncated = rows_of(connector, topic, 2)
    connector.kill()
    for number, each in enumerate((read, written), start=1):
        assert each.value is not None
        row = serdes.debezium.deserialize(each.value)
        # MySQL's text of JSON has other spaces in the binlog.
        assert json.loads(row.pop("doc")) == {"a": None, "b": [1.5, "ü"]}
        assert row == {"id": number, **{name: wanted for name, (*_, wanted) in COLUMNS.items()}}
    with pytest.raises(EnvelopeError, match="op is t"):
        read_change(truncated.value)

    job = Job(VALUES, shared)
    job.deliver("orders", 0, [read.key, written.key], [read.value, written.value], [1, 2])
    wanted = {
        "big": 2**64 - 2,
        "price": 12345678901234.567890,
        "day": "2024-03-01",
        "year": 2024,
        "placed": 1_709_168_523_456_789,
        "made": 2155,
        "doc": "1.5",
    }
    assert [each.value for each in job.take()] == [wanted, wanted]
    job.close()


def rows_of(connector: Connector, topic: str, size: int) -> list[Given]:
    """Return so many records of a table."""
    return [*islice((each for each in connector.records(120) if each.topic == topic), size)]
