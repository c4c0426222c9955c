"""A table of a MySQL or a MariaDB that changes in all ways, and what a connector gives of it.

`python -m tests.change_data.binlog_story` records it for tests without a database. With the command
of a MySQL from 8.0.20 on, it records that, with compressed transactions.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from benchmarks.peers.streams_java import JavaProgram
from kafka_pipeline.common.process.cli import run_command
from tests.change_data.connector import (
    MARIADB_JARS,
    MYSQL_JARS,
    Connector,
    compile_connector,
    of_binlog,
)
from tests.change_data.transactions import Passed, Rows, State, Transactions, record, rows_read
from tests.mysql_server.server import (
    Binaries,
    Database,
    Server,
    mariadb,
    mysql,
    running,
    unpacked_mysql,
)

_HERE = Path(__file__).parent
RECORDED = {title: _HERE / title.lower() / "recorded.jsonl.gz" for title in ("MySQL", "MariaDB")}
COMPRESSED = _HERE / "mysql" / "compressed.jsonl.gz"
"""What MySQL 9.7.4 gave with `binlog_transaction_compression`."""

JARS = {"MySQL": MYSQL_JARS, "MariaDB": MARIADB_JARS}

_TABLE = (
    "CREATE TABLE orders (id int, line int, customer varchar(50), price decimal(10, 2), day date, "
    "placed timestamp(6) NULL, at datetime(6), doc text, PRIMARY KEY (id, line))",
    "INSERT INTO orders VALUES"
    " (1, 1, 'ann', 1.50, '2024-01-01', '2024-01-01 00:02:03.456789', "
    "'2024-01-01 01:02:03.456789', repeat('x', 3000)),"
    " (1, 2, 'bob', 2.25, NULL, NULL, NULL, NULL),"
    " (2, 1, 'ann', -0.01, '1969-12-31', '1970-01-01 00:00:01', '1900-01-01', 'ä😀')",
)
_SCHEMAS = {"converter.schemas.enable": "true"}
_PLAIN = {
    "converter.schemas.enable": "false",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
}
_FIRST = (
    "INSERT INTO orders (id, line, customer, price) "
    "VALUES (11, 1, 'carl', 1), (12, 1, 'carl', 2), (13, 1, 'carl', 3)",
    "UPDATE orders SET price = price + 1 WHERE customer = 'ann'",
    "DELETE FROM orders WHERE id = 11",
)
_ONE_BY_ONE = (
    "UPDATE orders SET customer = 'bob' WHERE id = 1 AND line = 1",
    "UPDATE orders SET id = 20 WHERE id = 2",
    "INSERT INTO orders (id, line) VALUES (30, 1); DELETE FROM orders WHERE id = 30",
    "INSERT INTO orders (id, line, customer, price) VALUES (31, 1, 'dora', 1); "
    "UPDATE orders SET price = 2 WHERE id = 31; UPDATE orders SET price = 3 WHERE id = 31",
    "DELETE FROM orders WHERE id = 12; "
    "INSERT INTO orders (id, line, customer, price) VALUES (12, 1, 'emma', 12)",
    "REPLACE INTO orders (id, line, customer, price) VALUES (12, 1, 'emil', 13)",
    "INSERT INTO orders (id, line, customer, price) VALUES (12, 1, 'erna', 14) "
    "ON DUPLICATE KEY UPDATE customer = 'erna', price = 14",
    "INSERT INTO orders (id, line, customer, price) "
    "VALUES (50, 1, 'hans', 1), (50, 2, 'hans', 2), (50, 3, 'hans', 3)",
    # A key is taken by a row of the event that gives it up.
    "UPDATE orders SET line = line + 1 WHERE id = 50 ORDER BY line DESC",
    "UPDATE orders SET price = 0.5 WHERE id = 50; SAVEPOINT half; "
    "DELETE FROM orders WHERE id = 50; ROLLBACK TO SAVEPOINT half",
)
_WITH_NOTE = (
    "UPDATE orders SET note = 'new' WHERE id = 13",
    "UPDATE orders SET id = id + 100 WHERE customer = 'bob'",
)
_WHILE_DOWN = (
    "UPDATE orders SET price = 7 WHERE id = 20",
    "DELETE FROM orders WHERE id = 31",
    "INSERT INTO orders (id, line, customer, price) VALUES (31, 1, 'fred', 0.5)",
)
_LAST = (
    "UPDATE orders SET price = 5 WHERE id = 13",
    "DELETE FROM orders WHERE customer = 'carl'",
)


class _Story(Transactions):
    """The database, and its states after each of its transactions, by their GTIDs."""

    def __init__(self, database: Database) -> None:
        super().__init__(number_of=lambda id_: id_)
        self.database = database

    def commit(self, *transactions: str) -> None:
        """Run statements, each string in a transaction of its own."""
        for each in transactions:
            with closing(self.database.connect()) as connection:
                _execute(connection, each)
                self.committed(connection)

    def committed(self, connection: Connection[Any]) -> None:
        """Commit a transaction, and note the state after it."""
        connection.commit()
        number = self.gtid(connection)
        there = self._rows(
            "SELECT column_name AS name FROM information_schema.columns WHERE table_schema = "
            f"'{self.database.name}' AND table_name = 'orders' AND column_name IN ('doc', 'note')"
        )
        columns = "".join(f", {each['name']}" for each in there)
        rows = self._rows(
            f"SELECT id, line, customer, price, day, placed, at{columns} FROM orders "
            "ORDER BY id, line"
        )
        totals = self._rows(
            "SELECT customer, count(*) AS n, sum(price) AS price, max(price) AS top FROM orders "
            "GROUP BY customer ORDER BY customer"
        )
        self.add(number, State(rows, totals))

    def gtid(self, connection: Connection[Any]) -> str:
        """Return the GTID of the transaction that a connection has committed."""
        if self.database.server.is_mariadb:
            return str(_first(connection, "SELECT @@last_gtid"))
        server = _first(connection, "SELECT @@server_uuid")
        found = re.search(f"{server}:([-:0-9]+)", _first(connection, "SELECT @@gtid_executed"))
        assert found is not None
        return f"{server}:{re.split('[-:]', found[1])[-1]}"

    def overlap(self) -> None:
        """Have one transaction begin to write before another one, and commit after it."""
        first, second = self.database.connect(), self.database.connect()
        _execute(first, "UPDATE orders SET price = 100 WHERE id = 13")
        _execute(second, "INSERT INTO orders (id, line, customer, price) VALUES (40, 1, 'gina', 4)")
        for connection in (second, first):
            self.committed(connection)
            connection.close()

    def roll_back(self) -> None:
        """Write and roll back."""
        with closing(self.database.connect()) as connection:
            _execute(connection, "UPDATE orders SET price = 0")
            connection.rollback()

    def _rows(self, select: str) -> Rows:
        """Return the rows of a SELECT, with values as JSON has them."""
        with closing(self.database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(select)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, map(_json, row), strict=True)) for row in cursor.fetchall()]


def _json(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case date() | datetime():
            return value.isoformat()
    return value


def _execute(connection: Connection[Any], statements: str) -> None:
    with connection.cursor() as cursor:
        for each in statements.split("; "):
            cursor.execute(each)


def _first(connection: Connection[Any], select: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(select)
        (value,) = cursor.fetchone() or ("",)
    return value


def passed_on(program: JavaProgram, database: Database, folder: Path) -> Iterator[Passed]:
    """Yield the transactions of the story as connectors pass them on.

    Each connector is killed, and the next one repeats the changes since the first transaction. The
    last one has lost its position, and makes another snapshot. `program` is the connector.
    """
    for statement in _TABLE:
        database.run(statement)
    topic = f"shop.{database.name}.orders"
    story, kept = _Story(database), folder / "connector"
    source = of_binlog(database, kept)
    connector = Connector(program, kept, source, _SCHEMAS)
    position = yield from _begun(story, connector, topic)
    connector.kill(position)

    connector = Connector(program, kept, source, _PLAIN)
    story.commit(*_ONE_BY_ONE[:4])
    story.roll_back()
    database.run("FLUSH BINARY LOGS")
    story.overlap()
    story.commit(*_ONE_BY_ONE[4:])
    database.run("ALTER TABLE orders ADD note text AFTER line")
    story.commit(*_WITH_NOTE)
    yield from story.passed(connector)
    connector.kill(position)

    story.commit(*_WHILE_DOWN)
    database.server.stop(signal.SIGKILL)
    database.server.start()
    connector = Connector(program, kept, source, _PLAIN)
    yield from story.passed(connector)
    connector.kill()

    for file in ("offsets", "history"):
        (kept / file).unlink()
    # The snapshot has the table as it is now, whatever was passed on before.
    database.run("ALTER TABLE orders DROP doc, CHANGE note remark text")
    story.commit(_LAST[0])
    connector = Connector(program, kept, source, _SCHEMAS)
    yield story.snapshot(rows_read(connector, topic, len(story.states[story.numbers[-1]].rows)))
    story.commit(_LAST[1])
    yield from story.passed(connector)
    connector.kill()


def _begun(story: _Story, connector: Connector, topic: str) -> Generator[Passed, None, bytes]:
    """Yield the snapshot and the first transactions; return the position after the first one."""
    read = rows_read(connector, topic, 3)
    story.commit(_FIRST[0])
    (first,) = story.passed(connector)
    position = connector.position()
    yield Passed([*read, *first.records], first.state)
    story.commit(*_FIRST[1:])
    yield from story.passed(connector)
    return position


def passed_on_by_two(
    program: JavaProgram, first: Server, second: Server, folder: Path
) -> Iterator[Passed]:
    """Yield transactions of a MySQL that is lost, and of a replica that takes over.

    The binlog of the replica is younger: the same transaction has a lower place in it.
    """
    for _ in range(5):
        first.run("FLUSH BINARY LOGS")
    database = first.new_database()
    for statement in _TABLE:
        database.run(statement)
    second.follow(first)
    story, kept = _Story(database), folder / "connector"
    connector = Connector(program, kept, of_binlog(database, kept), _PLAIN)
    position = yield from _begun(story, connector, f"shop.{database.name}.orders")
    connector.kill(position)

    # The connector meets these only at the replica.
    story.commit(*_ONE_BY_ONE[:3])
    second.take_over(first)
    first.stop(signal.SIGKILL)
    story.database = Database(second, database.name)
    connector = Connector(program, kept, of_binlog(story.database, kept), _PLAIN)
    story.commit(*_ONE_BY_ONE[3:6])
    yield from story.passed(connector)
    connector.kill()


def _record(binaries: Binaries, file: Path, settings: str = "") -> None:
    with tempfile.TemporaryDirectory() as name, running(binaries) as server:
        folder = Path(name)
        program = compile_connector(folder, JARS[binaries.title])
        if settings:
            server.run(f"SET GLOBAL {settings}")
        record(file, passed_on(program, server.new_database(), folder))


def main() -> None:
    """Record the story of both servers, or of the MySQL whose command is given."""
    if command := sys.argv[1:]:
        _record(mysql(command), COMPRESSED, "binlog_transaction_compression = ON")
        return
    with unpacked_mysql() as binaries:
        _record(binaries, RECORDED["MySQL"])
    found = mariadb()
    assert found is not None, "MariaDB is not installed"
    _record(found, RECORDED["MariaDB"])


if __name__ == "__main__":
    run_command(main)()
