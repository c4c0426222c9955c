"""A table of a PostgreSQL that changes in all ways, and what a connector gives of it.

`python -m tests.change_data.story FILE` records it for tests without a database.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psycopg import Connection

from benchmarks.peers.streams_java import JavaProgram
from kafka_pipeline.common.process.cli import run_command
from tests.change_data.connector import Connector, compile_connector, of_postgres
from tests.change_data.transactions import Passed, Rows, State, Transactions, record, rows_read
from tests.postgres import Database, installed, running

TOPIC = "shop.public.orders"
RECORDED = Path(__file__).with_name("recorded.jsonl.gz")

_TABLE = (
    "CREATE TABLE orders (id int, line int, customer text, price numeric(10, 2), day date, "
    "placed timestamptz, at timestamp, doc text, PRIMARY KEY (id, line))",
    # Large values are moved out of the row at once, and an update that leaves them does not log
    # them.
    "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
    "INSERT INTO orders VALUES"
    " (1, 1, 'ann', 1.50, '2024-01-01', '2024-01-01 01:02:03.456789+01', "
    "'2024-01-01 01:02:03.456789', repeat('x', 3000)),"
    " (1, 2, 'bob', 2.25, NULL, NULL, NULL, NULL),"
    " (2, 1, 'ann', -0.01, '1969-12-31', '1969-12-31 23:59:59Z', '1900-01-01', 'ä')",
)
_SCHEMAS = {"converter.schemas.enable": "true"}
_PLAIN = {
    "converter.schemas.enable": "false",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
}
_AS_ROWS = (
    "SELECT id, line, customer, price, day, placed AT TIME ZONE 'UTC' AS placed, at{columns} "
    "FROM orders ORDER BY id, line"
)
_TOTALS = (
    "SELECT customer, count(*) AS n, sum(price) AS price, max(price) AS top FROM orders "
    "GROUP BY customer ORDER BY customer"
)
_FIRST = (
    "INSERT INTO orders SELECT 10 + n, 1, 'carl', n, NULL, NULL, NULL, NULL "
    "FROM generate_series(1, 3) AS n",
    "UPDATE orders SET price = price + 1 WHERE customer = 'ann'",
    "DELETE FROM orders WHERE id = 11",
)
_ONE_BY_ONE = (
    "UPDATE orders SET customer = 'bob' WHERE id = 1 AND line = 1",
    "UPDATE orders SET id = 20 WHERE id = 2",
    "INSERT INTO orders VALUES (30, 1, 'dora', 9.99); DELETE FROM orders WHERE id = 30",
    "INSERT INTO orders VALUES (31, 1, 'dora', 1); UPDATE orders SET price = 2 WHERE id = 31; "
    "UPDATE orders SET price = 3 WHERE id = 31",
    "DELETE FROM orders WHERE id = 12; INSERT INTO orders VALUES (12, 1, 'emma', 12)",
    "ALTER TABLE orders ADD note text; UPDATE orders SET note = 'new' WHERE id = 13",
    # Under another key, the value that an update leaves out is not known, unless whole rows are
    # logged.
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "UPDATE orders SET id = id + 100 WHERE customer = 'bob'",
)
_WHILE_DOWN = (
    "UPDATE orders SET price = 7 WHERE id = 20",
    "DELETE FROM orders WHERE id = 31",
    "INSERT INTO orders VALUES (31, 1, 'fred', 0.5)",
)
_LAST = (
    "ALTER TABLE orders DROP doc; UPDATE orders SET price = 5 WHERE id = 13",
    "DELETE FROM orders WHERE customer = 'carl'",
)


class _Story(Transactions):
    """The database, and its states after each of its transactions."""

    def __init__(self, database: Database) -> None:
        super().__init__(number_of=lambda id_: id_.partition(":")[0])
        self.database = database

    def commit(self, *transactions: str) -> None:
        """Run statements, each string in a transaction of its own."""
        for each in transactions:
            with self.database.connect() as connection:
                connection.execute(each.encode())
                number = _number(connection)
            self.committed(number)

    def committed(self, number: str) -> None:
        """Note the state after a transaction."""
        there = self.database.run(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_name = 'orders' AND column_name IN ('doc', 'note')"
        )
        columns = "".join(f", {name}" for (name,) in there)
        rows = self._rows(_AS_ROWS.format(columns=columns))
        self.add(number, State(rows, self._rows(_TOTALS)))

    def overlap(self) -> None:
        """Have one transaction begin to write before another one, and commit after it."""
        first, second = self.database.connect(), self.database.connect()
        first.execute("UPDATE orders SET price = 100 WHERE id = 13")
        second.execute("INSERT INTO orders VALUES (40, 1, 'gina', 4)")
        for connection in (second, first):
            number = _number(connection)
            connection.commit()
            self.committed(number)
            connection.close()

    def roll_back(self) -> None:
        """Write and roll back."""
        with self.database.connect() as connection:
            connection.execute("UPDATE orders SET price = 0")
            connection.rollback()

    def _rows(self, select: str) -> Rows:
        """Return the rows of a SELECT as the database writes them in JSON."""
        text = f"SELECT coalesce(json_agg(found), '[]')::text FROM ({select}) AS found"
        rows: Rows = json.loads(self.database.run(text)[0][0])
        return rows


def _number(connection: Connection[Any]) -> str:
    """Return the number of the transaction that is open."""
    (number,) = connection.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
    return str(number)


def passed_on(program: JavaProgram, database: Database, folder: Path) -> Iterator[Passed]:
    """Yield the transactions of the story as connectors pass them on.

    Each connector is killed before it has kept its position, so that the next one repeats changes.
    The last one has lost its position, and makes another snapshot. `program` is the connector.
    """
    for statement in _TABLE:
        database.run(statement)
    story, kept = _Story(database), folder / "connector"
    connector = Connector(program, kept, of_postgres(database), _SCHEMAS)
    read = rows_read(connector, TOPIC, 3)
    story.commit(*_FIRST)
    first, *others = story.passed(connector)
    yield Passed([*read, *first.records], first.state)
    yield from others
    connector.kill()

    connector = Connector(program, kept, of_postgres(database), _PLAIN)
    story.commit(*_ONE_BY_ONE[:4])
    story.roll_back()
    story.overlap()
    story.commit(*_ONE_BY_ONE[4:])
    yield from story.passed(connector)
    connector.kill()

    story.commit(*_WHILE_DOWN)
    connector = Connector(program, kept, of_postgres(database), _PLAIN)
    yield from story.passed(connector)
    connector.kill()

    (kept / "offsets").unlink()
    # The snapshot has the table as it is now, whatever was passed on before.
    story.commit(_LAST[0])
    connector = Connector(program, kept, of_postgres(database), _SCHEMAS)
    now = story.states[story.numbers[-1]]
    yield story.snapshot(rows_read(connector, TOPIC, len(now.rows)))
    story.commit(_LAST[1])
    yield from story.passed(connector)
    connector.kill()


def main() -> None:
    """Record the story."""
    binaries = installed()
    assert binaries is not None, "PostgreSQL is installed"
    with tempfile.TemporaryDirectory() as folder, running(binaries) as server:
        program = compile_connector(Path(folder))
        story = passed_on(program, server.new_database(), Path(folder))
        record(Path(sys.argv[1]), story)


if __name__ == "__main__":
    run_command(main)()
